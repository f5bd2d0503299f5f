// SPDX-License-Identifier: Apache-2.0
// The program's first steps: how idle threads wait, then the command.
//
// OpenMP threads wait for one another by spinning. libgomp's default spin of some milliseconds
// costs nothing on an idle machine, but where another process shares the cores a spinning thread
// holds back the very thread it waits for (measured here on two busy cores: a training step 2 to 3
// times longer). A spin of a few microseconds before sleeping keeps most of the gain on idle
// machines. libgomp reads the setting once, while the program is loaded, so the program sets it and
// starts itself again. Whoever sets GOMP_SPINCOUNT or OMP_WAIT_POLICY decides for themselves.
// malloc is told to keep one arena, and little free memory at its top: oneDNN's short-lived packing
// buffers would otherwise leave tens of megabytes of fragments, memory that no plan counts. Those
// buffers stay below the bound, so that a product does not give its pages back only to fault them
// in again.
// Its own start anew would show as "exe" in ps and top, so the program says its name. A line on
// stderr leaves in one write, so that lines of several ranks do not mix.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli/command.h" /* gw_cli_main */

#define SPIN_COUNT "3000"

static void settle_waiting(char **argv) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (setenv("GOMP_SPINCOUNT", SPIN_COUNT, 0) != 0) return;
    (void)execv("/proc/self/exe", argv); /* on failure the default stays */
}

int main(int argc, char **argv) {
    settle_waiting(argv);
    prctl(PR_SET_NAME, "gradwright");
    (void)setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
#ifdef M_ARENA_MAX
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 8 << 20);
#endif
    return gw_cli_main(argc, argv);
}
