// SPDX-License-Identifier: Apache-2.0
// Characters newer than Unicode 13, so that results do not depend on the age of a library's tables.
#ifndef GW_DATA_UNICODE_NEW_H
#define GW_DATA_UNICODE_NEW_H

#include <stdint.h>

/* Oldest and newest tables that can be chosen, and the usual ones (of the public tokenizer
 * libraries). */
enum { GW_UNI_OLDEST = 13, GW_UNI_NEWEST = 17, GW_UNI_DEFAULT = 16 };

/* The Unicode version (14 to 17; 15.1 counts as 16) that assigned cp; 13 if an earlier one did,
 * or none up to 17. */
int gw_uni_version_of(uint32_t cp);
/* An older character with the same general category and the same length in UTF-8, for use with
 * tables that may not know cp; an unassigned one if `version` does not have cp either. cp itself if
 * it is not newer than 13. Ideographs stand for ideographs; apart from that scripts are not kept.
 */
uint32_t gw_uni_stand_in(uint32_t cp, int version);

#endif
