// SPDX-License-Identifier: Apache-2.0
// The MPI plugin, gradwright-mpi.so: the only file that is compiled with mpi.h.
//
// It is opened at run time, and only in a process that mpirun or srun started, so that the program
// builds, runs and is installed without MPI. It holds no decisions: each function of the table
// (comm/mpi/plugin.h) is one MPI call, or the few that belong together, with MPI's types turned
// into plain ones. The library is initialised for one thread (MPI_THREAD_FUNNELED), the one that
// makes all calls.
//
// Errors come back as codes (MPI_ERRORS_RETURN) as far as the library lets them; a peer that died
// is usually noticed by mpirun first, which ends all ranks.
//
// Which ranks share a host decides the size of groups for algorithms that treat a host as one: a
// number that must be the same on all ranks, so it is agreed upon here, once. It is given only
// where hosts hold equally many ranks, numbered in blocks, as mpirun and srun do by default.
#include "comm/mpi/plugin.h" /* gw_mpi_api */

#include <dlfcn.h>  /* dlopen */
#include <link.h>   /* dl_iterate_phdr */
#include <mpi.h>    /* MPI_* */
#include <stdint.h> /* uint64_t */
#include <stdio.h>  /* snprintf */
#include <stdlib.h> /* free, getenv */
#include <string.h> /* memcpy, strcspn, strdup */
#include <time.h>   /* nanosleep */

/* MPI is a singleton of the process; so are its communicators. */
static MPI_Comm channels[GW_MPI_CHANNELS] = {MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};

_Static_assert(sizeof(MPI_Request) <= sizeof(gw_mpi_request), "a request fits");

static MPI_Request unpack(const gw_mpi_request *r) {
    MPI_Request q;
    memcpy(&q, r, sizeof q);
    return q;
}

static void pack(gw_mpi_request *r, MPI_Request q) {
    memset(r, 0, sizeof *r);
    if (q != MPI_REQUEST_NULL) memcpy(r, &q, sizeof q);
}

static bool is_none(const gw_mpi_request *r) { return r->words[0] == 0 && r->words[1] == 0; }

/* Fills on_host and per_host. */
static int find_hosts(gw_mpi_world *w) {
    MPI_Comm host;
    int e =
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL, &host);
    if (e != MPI_SUCCESS) return e;
    int mine[3], least[3], first = w->rank, place = 0;
    MPI_Comm_size(host, &w->on_host);
    MPI_Comm_rank(host, &place);
    MPI_Bcast(&first, 1, MPI_INT, 0, host);
    MPI_Comm_free(&host);
    /* Smallest, largest (as the smallest negative) and "in a block" over all ranks. */
    mine[0] = w->on_host;
    mine[1] = -w->on_host;
    mine[2] = first + place == w->rank && first % w->on_host == 0;
    e = MPI_Allreduce(mine, least, 3, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    w->per_host = least[0] == -least[1] && least[2] ? w->on_host : 1;
    return e;
}

/* Slurm's PMIx may let one rank through the barrier at the end of MPI_Init before another has come
 * to it (22.05: one start in about two thousand on a busy machine), and Open MPI crashes there on a
 * message that it is not ready for. So nobody speaks at once. */
static void let_others_arrive(void) {
    struct timespec moment = {.tv_nsec = 250000000};
    if (getenv("SLURM_PROCID") && getenv("PMIX_RANK")) nanosleep(&moment, NULL);
}

static int init(gw_mpi_world *w) {
    *w = (gw_mpi_world){0};
    int done = 0, provided, e, n;
    MPI_Finalized(&done);
    w->finalized = done != 0;
    if (done) return MPI_SUCCESS;
    if ((e = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided)) != MPI_SUCCESS) return e;
    let_others_arrive();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->size);
    for (int i = 0; i < GW_MPI_CHANNELS; i++) {
        if ((e = MPI_Comm_dup(MPI_COMM_WORLD, &channels[i])) != MPI_SUCCESS) return e;
        MPI_Comm_set_errhandler(channels[i], MPI_ERRORS_RETURN);
    }
    int *limit = NULL, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&limit, &found);
    w->max_tag = found ? *limit : 32767; /* what the standard promises */
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    MPI_Get_library_version(text, &n);
    snprintf(w->library, sizeof w->library, "%.*s", (int)strcspn(text, ",\n"), text);
    return find_hosts(w);
}

static int send_message(gw_mpi_channel c, const void *bytes, int n, int to, int tag,
                        gw_mpi_request *r) {
    MPI_Request q = MPI_REQUEST_NULL;
    int e = MPI_Isend(bytes, n, MPI_BYTE, to, tag, channels[c], &q);
    pack(r, q);
    return e;
}

static int send_synchronous(gw_mpi_channel c, const void *bytes, int n, int to, int tag,
                            gw_mpi_request *r) {
    MPI_Request q = MPI_REQUEST_NULL;
    int e = MPI_Issend(bytes, n, MPI_BYTE, to, tag, channels[c], &q);
    pack(r, q);
    return e;
}

static int receive_message(gw_mpi_channel c, void *bytes, int n, int from, int tag,
                           gw_mpi_request *r) {
    MPI_Request q = MPI_REQUEST_NULL;
    int e = MPI_Irecv(bytes, n, MPI_BYTE, from < 0 ? MPI_ANY_SOURCE : from, tag, channels[c], &q);
    pack(r, q);
    return e;
}

static int test(gw_mpi_request *r, bool *done, int *n) {
    *done = true;
    if (is_none(r)) return MPI_SUCCESS;
    MPI_Request q = unpack(r);
    MPI_Status status;
    int flag = 0, e = MPI_Test(&q, &flag, &status);
    *done = flag != 0;
    pack(r, q);
    if (e == MPI_SUCCESS && flag && n) MPI_Get_count(&status, MPI_BYTE, n);
    return e;
}

static int probe(gw_mpi_channel c, int from, bool *found, int *tag) {
    MPI_Status status;
    int flag = 0, which = *tag < 0 ? MPI_ANY_TAG : *tag;
    int e = MPI_Iprobe(from, which, channels[c], &flag, &status);
    *found = flag != 0;
    if (flag) *tag = status.MPI_TAG;
    return e;
}

static int cancel(gw_mpi_request *r) {
    if (is_none(r)) return MPI_SUCCESS;
    MPI_Request q = unpack(r);
    int e = MPI_Cancel(&q);
    if (e == MPI_SUCCESS) e = MPI_Wait(&q, MPI_STATUS_IGNORE);
    pack(r, MPI_REQUEST_NULL);
    return e;
}

static int min_int(int *x) {
    int mine = *x;
    return MPI_Allreduce(&mine, x, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
}

static void error_text(int code, char *buf, int n) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    if (MPI_Error_string(code, text, &len) != MPI_SUCCESS)
        snprintf(text, sizeof text, "error %d", code);
    snprintf(buf, (size_t)n, "%s", text);
}

/* Open MPI 4.1 unloads its components while its thread of events may still be within one: about one
 * end in a thousand under srun was a segmentation fault. Each is opened once more, to stay. (Their
 * paths are copied first: the list of libraries is locked while it is walked.) */
typedef struct libraries {
    char *paths[256];
    int n;
} libraries;

static int note_library(struct dl_phdr_info *info, size_t size, void *user) {
    libraries *l = user;
    (void)size;
    if (l->n < (int)(sizeof l->paths / sizeof *l->paths) && strstr(info->dlpi_name, "/mca_"))
        l->paths[l->n++] = strdup(info->dlpi_name);
    return 0;
}

static void keep_components(void) {
    libraries l = {.n = 0};
    dl_iterate_phdr(note_library, &l);
    for (int i = 0; i < l.n; i++) {
        if (l.paths[i]) (void)dlopen(l.paths[i], RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
        free(l.paths[i]);
    }
}

static int finalize(void) {
    for (int i = 0; i < GW_MPI_CHANNELS; i++)
        if (channels[i] != MPI_COMM_NULL) MPI_Comm_free(&channels[i]);
    keep_components();
    return MPI_Finalize();
}

static bool is_open(void) {
    int begun = 0, ended = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    return begun && !ended;
}

static void abort_all(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

static const gw_mpi_api api = {
    .abi = GW_MPI_ABI,
    .init = init,
    .isend = send_message,
    .issend = send_synchronous,
    .irecv = receive_message,
    .test = test,
    .probe = probe,
    .cancel = cancel,
    .min_int = min_int,
    .error_text = error_text,
    .finalize = finalize,
    .is_open = is_open,
    .abort = abort_all,
};

gw_mpi_entry gw_mpi_plugin;
const gw_mpi_api *gw_mpi_plugin(void) { return &api; }
