// SPDX-License-Identifier: Apache-2.0
// The two kinds of language identifiers behind one handle.
#ifndef GW_DATA_TEXT_LANGID_IMPL_H
#define GW_DATA_TEXT_LANGID_IMPL_H

#include "data/text/langid.h" /* gw_langid */

typedef struct langid_builtin langid_builtin;
typedef struct langid_model langid_model;

/* langid.c. At most k labels, best first. */
langid_builtin *langid_builtin_new(void);
void langid_builtin_free(langid_builtin *b);
int langid_builtin_top(langid_builtin *b, const char *text, int64_t n, int k, const char **labels,
                       float *scores);

/* langid_fasttext.c */
GW_WARN_UNUSED gw_status langid_model_open(const char *path, langid_model **out, gw_diags *dg);
void langid_model_free(langid_model *m);
int langid_model_top(langid_model *m, const char *text, int64_t n, int k, const char **labels,
                     float *scores);
const char *langid_model_version(const langid_model *m);

#endif
