// SPDX-License-Identifier: Apache-2.0
// The end of the road for our own bugs.
//
// A broken invariant must not write a wrong checkpoint, so the process says where it noticed and
// aborts. A hook may first leave a reproducer behind (the pass pipeline dumps its input and the
// passes that remain). The hook runs once: a fault inside it, or a second thread that fails
// meanwhile, aborts straight away. The message is written before the hook runs, so that it survives
// whatever the hook does. Bad input, files and peers never come here; they are statuses with
// diagnostics.
#include "base/panic.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static gw_panic_hook *_Atomic panic_hook;
static void *_Atomic panic_user;

void gw_panic_set_hook(gw_panic_hook *hook, void *user) {
    atomic_store(&panic_hook, (gw_panic_hook *)NULL);
    atomic_store(&panic_user, user);
    atomic_store(&panic_hook, hook);
}

void gw_panic_at(const char *file, int line, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    flockfile(stderr);
    fprintf(stderr, "gradwright: internal error: %s:%d: ", file, line);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    fflush(stderr);
    funlockfile(stderr);
    va_end(ap);
    gw_panic_hook *hook = atomic_exchange(&panic_hook, (gw_panic_hook *)NULL);
    if (hook) hook(atomic_load(&panic_user));
    abort();
}
