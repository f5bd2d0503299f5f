// SPDX-License-Identifier: Apache-2.0
// What the two halves of encoding.h share.
#ifndef GW_DATA_TEXT_ENCODING_IMPL_H
#define GW_DATA_TEXT_ENCODING_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "data/text/encoding.h" /* gw_encoding */

/* [128]: the characters of bytes 80 to FF of a single-byte encoding; 0 where there is none. */
const uint16_t *gw_encoding_high(gw_encoding e);

/* gw_encoding_choose where it is known whether the bytes are valid UTF-8. */
gw_encoding gw_encoding_choose_knowing(const uint8_t *raw, size_t n, const char *charset, bool html,
                                       bool valid);

#endif
