// SPDX-License-Identifier: Apache-2.0
// Queueing a Slurm job again, from inside.
//
// A job nears its time limit, or gives way to another: Slurm sends the signal that the script asked
// for (#SBATCH --signal=USR1@180), the run saves and ends with status 3, and one process of it asks
// `scontrol requeue`. Slurm then ends what is left of the job and runs its script once more, with
// SLURM_RESTART_COUNT above 0. It does so at once, so what there is to say is said before. The
// program is asked rather than the library that it is built on: that is what every cluster has in
// PATH, whatever its version.
#include "cli/requeue.h"

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h" /* gw_arena */
#include "base/log.h"   /* gw_log_info */

enum { WAIT_TENTHS = 300 };

const char *gw_requeue_job(void) {
    const char *job = getenv("SLURM_JOB_ID");
    return job && *job ? job : NULL;
}

bool gw_requeue_again(void) {
    const char *count = getenv("SLURM_RESTART_COUNT");
    return count && strtol(count, NULL, 10) > 0;
}

/* Its wait status; -1: it did not end in time, and was ended. */
static int await(pid_t pid) {
    int status = 0;
    for (int i = 0; i < WAIT_TENTHS; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid) return status;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
}

/* With no signal blocked, whatever is blocked here. */
static int start(char *const *argv, pid_t *pid) {
    posix_spawnattr_t a;
    sigset_t none;
    sigemptyset(&none);
    int e = posix_spawnattr_init(&a);
    if (e) return e;
    posix_spawnattr_setsigmask(&a, &none);
    posix_spawnattr_setflags(&a, POSIX_SPAWN_SETSIGMASK);
    e = posix_spawnp(pid, argv[0], NULL, &a, argv, environ);
    posix_spawnattr_destroy(&a);
    return e;
}

void gw_requeue_ask(void) {
    gw_arena mem = {0};
    const char *job = gw_requeue_job();
    if (!job) return;
    char *argv[] = {gw_arena_strdup(&mem, "scontrol"), gw_arena_strdup(&mem, "requeue"),
                    gw_arena_strdup(&mem, job), NULL};
    pid_t pid = 0;
    gw_log_info("the run is saved; asking Slurm to queue job %s again", job);
    int e = start(argv, &pid);
    int status = e ? 0 : await(pid);
    if (e)
        gw_log_warn("the job is not queued again: cannot start scontrol: %s", strerror(e));
    else if (status == -1)
        gw_log_warn("the job is not queued again: scontrol requeue %s does not end", job);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        gw_log_warn("the job is not queued again: scontrol requeue %s ended with status %d", job,
                    WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    gw_arena_release(&mem);
}
