// SPDX-License-Identifier: Apache-2.0
// Classes of characters, and the special cases of spaCy's tokenizers: generated tables.
//
// words_tables.inc and words_en.inc are written by tests/golden/make_words.py, which asks the
// libraries themselves: each bit is the answer of one of their patterns or sets (or of Python's str
// methods) for that character. So the classes are exactly theirs, with the Unicode version of their
// Python, and do not move with the libraries of the machine that runs gradwright. To follow a newer
// spaCy or datatrove, run the script again and look at the golden test.
#include <string.h>

#include "data/text/words.h"      /* gw_ch_class, gw_splitter_for_language */
#include "data/text/words_impl.h" /* words_class_wide */
#include "data/text/words_tables.inc"
#include "data/unicode.h" /* gw_utf8_decode */

uint8_t words_class_index(uint32_t cp) {
    return cp > 0x10ffff ? 0 : ch_stage2[ch_stage1[cp >> 7]][cp & 127];
}

uint32_t gw_ch_class(uint32_t cp) { return cp > 0x10ffff ? 0 : ch_palette[words_class_index(cp)]; }

uint32_t words_class_wide(const char *p, const char *end, int *len) {
    uint32_t cp = gw_utf8_decode((const uint8_t *)p, (const uint8_t *)end, len);
    return cp < 128 ? gw_ch_ascii[cp] : gw_ch_class(cp);
}
