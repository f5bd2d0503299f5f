// SPDX-License-Identifier: Apache-2.0
// Joining ranks that mpirun or srun started: finding the plugin, opening it, and the way out.
//
// The program is built without MPI. What it needs of it stands in gradwright-mpi.so, which is
// opened here, and only here, when the environment says that a launcher started this process as one
// of several. It is opened for everybody (RTLD_GLOBAL), because Open MPI opens components of its
// own that look for its symbols, and it stays open: MPI does not survive being closed.
//
// A launcher that does not speak PMIx (srun without --mpi=pmix) leaves every process alone in a
// world of its own, or has MPI end it without a word that helps. Both are found out and said.
//
// The way out. mpirun ends all ranks when one ends badly, srun does so only when asked. So an exit
// hook calls MPI_Abort, with the exit status, whenever this process ends before MPI was finalized:
// after a failure, or by an exit from the middle of a run. It runs when everything has been
// printed.
#include "comm/mpi.h" /* gw_mpi_join */

#include <dlfcn.h>  /* dlopen */
#include <sched.h>  /* sched_getaffinity */
#include <stdio.h>  /* snprintf */
#include <stdlib.h> /* getenv, on_exit */
#include <string.h> /* memcpy */
#include <time.h>   /* nanosleep */
#include <unistd.h> /* readlink */

#include "base/arena.h"         /* gw_mem_zalloc */
#include "base/log.h"           /* gw_log_debug */
#include "base/str.h"           /* gw_parse_i64 */
#include "comm/comm_new.h"      /* gw_comm_new */
#include "comm/mpi/transport.h" /* gw_mpi_transport_new */

// ------------------------------------------------------------------ the launcher

static int number_in(const char *variable) {
    const char *text = getenv(variable);
    int64_t n = 0;
    return text && gw_parse_i64(text, &n) && n > 0 && n < INT32_MAX ? (int)n : 0;
}

/* Ranks of this process's step, when srun started it. */
static int slurm_tasks(void) {
    return getenv("SLURM_PROCID") ? number_in("SLURM_STEP_NUM_TASKS") : 0;
}

int gw_mpi_launched(void) {
    int n = number_in("OMPI_COMM_WORLD_SIZE");
    if (!n) n = number_in("PMI_SIZE");
    return n ? n : slurm_tasks();
}

/* srun without PMIx: MPI_Init would end the process. */
static gw_status check_launcher(gw_diags *dg) {
    bool pmix = getenv("PMIX_RANK") || getenv("OMPI_COMM_WORLD_SIZE");
    if (slurm_tasks() < 2 || pmix) return GW_OK;
    gw_diag *d = gw_diag_add(
        dg, GW_ERROR, GW_ERR_DEVICE, "mpi-start", (gw_where){0},
        "srun started %d ranks without PMIx, by which they would find each other", slurm_tasks());
    gw_diag_hint(dg, d,
                 "srun --mpi=pmix, or MpiDefault=pmix in slurm.conf; `srun --mpi=list` shows "
                 "what there is");
    return GW_ERR_DEVICE;
}

// ------------------------------------------------------------------ the plugin

static const char plugin_name[] = "gradwright-mpi.so";

/* The i-th place where the plugin may be; false past the last. */
static bool place_at(int i, char *path, size_t size) {
    const char *named = getenv("GRADWRIGHT_MPI");
    if (named && *named) {
        snprintf(path, size, "%s", named);
        return i == 0;
    }
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    char *slash = strrchr(exe, '/');
    if (i > 1 || !slash) return false;
    *slash = 0;
    snprintf(path, size, i ? "%s/../lib/gradwright/%s" : "%s/%s", exe, plugin_name);
    return true;
}

static gw_status no_plugin(gw_diags *dg) {
    char path[4224], tried[8500] = "";
    for (int i = 0; place_at(i, path, sizeof path); i++) {
        size_t at = strlen(tried);
        snprintf(tried + at, sizeof tried - at, "%s%s", i ? " and " : "", path);
    }
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_DEVICE, "mpi-plugin", (gw_where){0},
                             "a launcher started %d ranks, but the MPI plugin %s is not there",
                             gw_mpi_launched(), plugin_name);
    gw_diag_detail(dg, d, "looked for %s", tried);
    gw_diag_hint(dg, d,
                 "apt-get install libopenmpi-dev openmpi-bin, then make, which builds it; "
                 "ranks on one host need no MPI: --ranks N instead of the launcher");
    return GW_ERR_DEVICE;
}

static gw_status open_plugin(const gw_mpi_api **api, gw_diags *dg) {
    char path[4224];
    int i = 0;
    for (; place_at(i, path, sizeof path); i++)
        if (access(path, F_OK) == 0) break;
    if (!place_at(i, path, sizeof path)) return no_plugin(dg);
    void *h = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!h) {
        gw_diag *d =
            gw_diag_add(dg, GW_ERROR, GW_ERR_DEVICE, "mpi-plugin", (gw_where){.file = path},
                        "the MPI plugin cannot be opened: %s", dlerror());
        gw_diag_hint(dg, d, "a missing libmpi: apt-get install openmpi-bin");
        return GW_ERR_DEVICE;
    }
    void *symbol = dlsym(h, GW_MPI_ENTRY);
    gw_mpi_entry *entry = NULL;
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no conversion from void * */
    *api = entry ? entry() : NULL;
    if (*api && (*api)->abi == GW_MPI_ABI) return GW_OK;
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_DEVICE, "mpi-plugin", (gw_where){.file = path},
                             "the MPI plugin belongs to another version of the program");
    gw_diag_hint(dg, d, "make builds both; make install puts both in place");
    return GW_ERR_DEVICE;
}

// ------------------------------------------------------------------ the way out

typedef struct guard {
    const gw_mpi_api *api;
    const gw_transport *transport; /* NULL before there is one; lives while MPI is open */
} guard;

static void leave_hook(int status, void *arg) {
    guard *g = arg;
    if (!g->api->is_open()) return;
    /* A moment for the others, which have been told; a long one for the rank that says why, which
     * ends this process when it has. */
    bool silent = g->transport && gw_mpi_transport_silent(g->transport);
    nanosleep(&(struct timespec){.tv_sec = silent ? 5 : 0, .tv_nsec = 200000000}, NULL);
    g->api->abort(status ? status : 1);
}

// ------------------------------------------------------------------ joining

/* Cores that this rank may use, when ranks of its host have the same ones. */
static int cores_of_rank(const gw_mpi_world *w) {
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int mine = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)online;
    if ((long)mine * w->on_host <= online) return mine;
    long part = online / w->on_host;
    return part < 1 ? 1 : part < mine ? (int)part : mine;
}

/* What a plan may count on between hosts on a 10 Gbit/s network, or within one host through MPI. */
static gw_coll_machine machine_of(const gw_mpi_world *w, int threads) {
    gw_coll_machine m = gw_coll_machine_local(threads);
    bool one_host = w->per_host == w->size;
    m.shared = false;
    m.per_host = w->per_host;
    m.latency_s = one_host ? 2e-6 : 30e-6;
    m.bytes_per_s = one_host ? 4e9 : 1.1e9;
    return m;
}

static gw_status failed(const gw_mpi_api *api, int code, const char *what, gw_diags *dg) {
    char text[256];
    api->error_text(code, text, (int)sizeof text);
    return GW_FAIL(dg, GW_ERR_DEVICE, "mpi-start", "%s failed in the MPI library: %s", what, text);
}

gw_status gw_mpi_join(double timeout_s, gw_comm **out, gw_diags *dg) {
    const gw_mpi_api *api;
    gw_mpi_world w;
    *out = NULL;
    GW_TRY(check_launcher(dg));
    GW_TRY(open_plugin(&api, dg));
    setvbuf(stderr, NULL, _IOLBF, 4096); /* the launcher merges what ranks print: whole lines */
    int e = api->init(&w);
    if (e) return failed(api, e, "starting", dg);
    guard *g = gw_mem_zalloc(sizeof *g);
    g->api = api;
    on_exit(leave_hook, g);
    if (w.size == 1) {
        api->finalize();
        if (gw_mpi_launched() < 2) return GW_OK;
        return GW_FAIL(dg, GW_ERR_DEVICE, "mpi-start",
                       "the launcher started %d ranks, but %s finds only this one: they belong to "
                       "different MPI libraries",
                       gw_mpi_launched(), w.library);
    }
    int threads = cores_of_rank(&w), spin = w.on_host <= sysconf(_SC_NPROCESSORS_ONLN);
    if ((e = api->min_int(&threads)) != 0) return failed(api, e, "agreeing on threads", dg);
    if (timeout_s <= 0) timeout_s = w.per_host == w.size ? 5 : 60;
    gw_log_debug("rank %d of %d over %s, %d on this host, %d threads", w.rank, w.size, w.library,
                 w.on_host, threads);
    gw_transport *t = gw_mpi_transport_new(api, &w, timeout_s, spin);
    g->transport = t;
    *out = gw_comm_new(t, machine_of(&w, threads));
    return GW_OK;
}
