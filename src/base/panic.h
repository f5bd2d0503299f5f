// SPDX-License-Identifier: Apache-2.0
// Our own bugs: print, dump, abort. Never used for bad input, files or peers.
#ifndef GW_BASE_PANIC_H
#define GW_BASE_PANIC_H

#include <stddef.h>

#include "base/compiler.h" /* GW_PRINTF, GW_NORETURN */

/* Prints "gradwright: internal error: file:line: message" to stderr, runs the hook (once), aborts.
 */
GW_NORETURN void gw_panic_at(const char *file, int line, const char *fmt, ...) GW_PRINTF(3, 4);

/* No memory for a table: one line on stderr, exit code 1. No bug, so nothing is dumped, and nobody
 * could do better: the forty call sites of an arena have nothing to give back. */
GW_NORETURN void gw_panic_memory(size_t bytes);

/* Called by gw_panic_at after the message, before abort: dumps a reproducer. NULL removes it. */
typedef void gw_panic_hook(void *user);
void gw_panic_set_hook(gw_panic_hook *hook, void *user);

#define gw_panic(...) gw_panic_at(__FILE__, __LINE__, __VA_ARGS__)

/* Stays in release builds: a broken invariant must not write a wrong checkpoint. */
#define GW_ASSERT(cond)                                                                            \
    do {                                                                                           \
        if (GW_UNLIKELY(!(cond))) gw_panic("assertion failed: %s", #cond);                         \
    } while (0)

#endif
