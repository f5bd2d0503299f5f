// SPDX-License-Identifier: Apache-2.0
// The end of the road for our own bugs.
//
// A broken invariant must not write a wrong checkpoint, so the process says where it noticed and
// aborts. A hook may first leave a reproducer behind (the pass pipeline dumps its input and the
// passes that remain). The hook runs once: a fault inside it, or a second thread that fails
// meanwhile, aborts straight away. The message is written before the hook runs, so that it survives
// whatever the hook does. Running out of memory for tables ends the process here too, as an error
// and not as a bug. Bad input, files and peers never come here; they are statuses with
// diagnostics.
#include "base/panic.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static gw_panic_hook *_Atomic panic_hook;
static void *_Atomic panic_user;

void gw_panic_set_hook(gw_panic_hook *hook, void *user) {
    atomic_store(&panic_hook, (gw_panic_hook *)NULL);
    atomic_store(&panic_user, user);
    atomic_store(&panic_hook, hook);
}

/* In one write, so that lines of several processes do not mix. */
static void write_text(char *text, int n, size_t room) {
    size_t len = n < 0 ? 0 : (size_t)n < room - 1 ? (size_t)n : room - 2;
    text[len] = '\n';
    (void)!write(STDERR_FILENO, text, len + 1);
}

void gw_panic_memory(size_t bytes) {
    char text[256];
    int n = snprintf(text, sizeof text,
                     "gradwright: error: out of memory for metadata: the system refuses %zu bytes; "
                     "look at free memory, ulimit -v and the cgroup's limit [host-memory]",
                     bytes);
    write_text(text, n, sizeof text);
    _exit(1);
}

void gw_panic_at(const char *file, int line, const char *fmt, ...) {
    char text[2048];
    int n = snprintf(text, sizeof text, "gradwright: internal error: %s:%d: ", file, line);
    va_list ap;
    va_start(ap, fmt);
    n += vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
    va_end(ap);
    write_text(text, n, sizeof text);
    gw_panic_hook *hook = atomic_exchange(&panic_hook, (gw_panic_hook *)NULL);
    if (hook) hook(atomic_load(&panic_user));
    abort();
}
