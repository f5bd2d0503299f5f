// SPDX-License-Identifier: Apache-2.0
// The disk under a save: every call that changes it is seen, can be the last one, and is
// remembered, so that what a power failure could have left is made afterwards.
#ifndef GW_TESTS_DISK_H
#define GW_TESTS_DISK_H

#include <stdbool.h>
#include <stdint.h>

/* From here on calls below `root` are counted; with die_at >= 0 the process ends without any
 * clean-up before (die_after false) or after the call of that number. */
void disk_watch(const char *root, int64_t die_at, bool die_after);
/* Ends it. Returns how many calls there were. */
int64_t disk_unwatch(void);
/* A mark in what is remembered: calls so far. */
int64_t disk_calls(void);

/* The tree below `root` as it is, as the state that surely is on the disk; then disk_watch. */
void disk_begin(const char *root);
/* Makes below `to` (which is emptied) what a power failure after the first `calls` calls may leave:
 * what was synced is there; of what was not, a part that follows from `seed`, in any order. */
void disk_after_failure(const char *to, int64_t calls, uint64_t seed);
void disk_end(void);

#endif
