// SPDX-License-Identifier: Apache-2.0
// Damaged copies of a small file, for readers that must refuse or survive them.
#ifndef GW_TESTS_FILE_DAMAGE_H
#define GW_TESTS_FILE_DAMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/str.h"  /* gw_str */

/* Opens `path`, uses everything the reader offers, closes. */
typedef gw_status damage_reader(const char *path, gw_diags *dg);

void put_file(const char *path, const void *bytes, size_t n);
gw_str get_file(const char *path); /* release with gw_str_release */

/* Every proper prefix of the file must be refused with at least one diagnostic. */
void damage_cut(const char *path, damage_reader *read);
/* `rounds` copies with one to four bytes changed: refused or read, never a crash. Deterministic. */
void damage_flip(const char *path, damage_reader *read, int rounds);

#endif
