// SPDX-License-Identifier: Apache-2.0
// Which language a text is in.
#ifndef GW_DATA_TEXT_LANGID_H
#define GW_DATA_TEXT_LANGID_H

#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

/* An opened identifier with the scratch of one thread. */
typedef struct gw_langid gw_langid;

/* spec: "builtin", or the path of a supervised fastText model (.bin or quantised .ftz), such as
 * lid.176. A file that is damaged, or of another kind or version, is refused with its byte offset.
 */
GW_WARN_UNUSED gw_status gw_langid_open(const char *spec, gw_langid **out, gw_diags *dg);
void gw_langid_free(gw_langid *l);

/* Language of text[0..n), valid UTF-8: ISO 639-1 where there is one (of a model file: its label
 * without "__label__", cut to 7 bytes), "" with score 0 where there is too little to tell. score:
 * 0..1, the probability that the answer is right; of a model file the model's own. Line feeds count
 * as spaces, as datatrove does it. "builtin" reads at most GW_LANGID_BYTES, a third each from the
 * beginning, middle and end, and less than half of that where one language leads in each and has
 * 0.995 by then; model files read all, as their library does. */
enum { GW_LANGID_BYTES = 1200 };
void gw_langid_detect(gw_langid *l, const char *text, int64_t n, char lang[8], float *score);

/* The k best labels, best first, in full length (of "builtin": codes); returns how many. Labels are
 * borrowed from `l`, until its next use. */
int gw_langid_top(gw_langid *l, const char *text, int64_t n, int k, const char **labels,
                  float *scores);

/* Languages of "builtin": codes[0..return). */
int gw_langid_builtin_languages(const char *const **codes);
/* For manifests: "builtin-2" or "fasttext:<xxh128 of the file>"; borrowed. */
const char *gw_langid_version(const gw_langid *l);

#endif
