// SPDX-License-Identifier: Apache-2.0
// Libraries: those linked, asked for their version; those optional, looked for by dlopen.
//
// A version comes from the library that runs, never from the header it was compiled with: the two
// differ exactly when somebody needs this command. Optional libraries are opened by the names that
// their packages install (the linker name last, since it needs a -dev package), asked for their
// version by the one function that needs no initialisation, and stay open: some of them do not
// survive being closed.
#include "cli/probe_libraries.h" /* gw_probe_libraries */

#include <dlfcn.h>    /* dlopen */
#include <dnnl.h>     /* dnnl_version */
#include <jansson.h>  /* jansson_version_str */
#include <libfyaml.h> /* fy_library_version */
#include <stdio.h>    /* snprintf */
#include <stdlib.h>   /* getenv */
#include <string.h>   /* strchr */
#include <unistd.h>   /* access */
#include <utf8proc.h> /* utf8proc_version */
#include <xxhash.h>   /* XXH_versionNumber */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h> /* pcre2_config */

#include "base/str.h" /* gw_str_eq */

static void add(gw_probe *p, gw_probe_library l) {
    if (p->nlibraries < GW_PROBE_MAX_LIBRARIES) p->libraries[p->nlibraries++] = l;
}

// ------------------------------------------------------------------ linked

static void linked(gw_probe *p, const char *name, const char *version, const char *package) {
    add(p, (gw_probe_library){name, version, package, "", false});
}

static const char *isa_name(dnnl_cpu_isa_t isa) {
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } names[] = {
        {dnnl_cpu_isa_sse41, "SSE4.1"},
        {dnnl_cpu_isa_avx, "AVX"},
        {dnnl_cpu_isa_avx2, "AVX2"},
        {dnnl_cpu_isa_avx2_vnni, "AVX2-VNNI"},
        {dnnl_cpu_isa_avx512_core, "AVX-512"},
        {dnnl_cpu_isa_avx512_core_vnni, "AVX512-VNNI"},
        {dnnl_cpu_isa_avx512_core_bf16, "AVX512-BF16"},
        {dnnl_cpu_isa_avx512_core_amx, "AMX"},
    };
    for (size_t i = 0; i < GW_COUNT(names); i++)
        if (names[i].isa == isa) return names[i].name;
    return "its default";
}

static void probe_linked(gw_probe *p, gw_arena *a) {
    const dnnl_version_t *d = dnnl_version();
    linked(p, "oneDNN", gw_arena_printf(a, "%d.%d.%d", d->major, d->minor, d->patch),
           "libdnnl-dev");
    p->onednn_isa = isa_name(dnnl_get_effective_cpu_isa());
    linked(p, "libfyaml", fy_library_version(), "libfyaml-dev");
    linked(p, "jansson", jansson_version_str(), "libjansson-dev");
    unsigned x = XXH_versionNumber();
    linked(p, "xxHash", gw_arena_printf(a, "%u.%u.%u", x / 10000, x / 100 % 100, x % 100),
           "libxxhash-dev");
    char pcre[64] = "";
    int n = pcre2_config(PCRE2_CONFIG_VERSION, NULL);
    if (n > 0 && n < (int)sizeof pcre) pcre2_config(PCRE2_CONFIG_VERSION, pcre);
    linked(p, "PCRE2", gw_arena_strdup(a, pcre), "libpcre2-dev");
    linked(p, "utf8proc",
           gw_arena_printf(a, "%s (Unicode %s)", utf8proc_version(), utf8proc_unicode_version()),
           "libutf8proc-dev");
    Dl_info info;
    void *omp = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    const char *path = omp && dladdr(omp, &info) && info.dli_fname ? info.dli_fname : NULL;
    const char *slash = path ? strrchr(path, '/') : NULL;
    linked(p, "OpenMP", path ? gw_arena_strdup(a, slash ? slash + 1 : path) : NULL, "libgomp1");
}

// ------------------------------------------------------------------ optional

/* The first name that opens, or NULL. */
static void *open_any(const char *const *names) {
    for (; *names; names++) {
        void *h = dlopen(*names, RTLD_LAZY | RTLD_LOCAL);
        if (h) return h;
    }
    return NULL;
}

/* A function pointer from dlsym, by copy: ISO C has no conversion from void *. */
#define SYMBOL(handle, fn, name)                                                                   \
    do {                                                                                           \
        void *symbol_ = (handle) ? dlsym((handle), (name)) : NULL;                                 \
        memcpy(&(fn), &symbol_, sizeof(fn));                                                       \
    } while (0)

static void optional(gw_probe *p, const char *name, const char *version, const char *package,
                     const char *needed) {
    add(p, (gw_probe_library){name, version, package, needed, true});
}

static void probe_mpi(gw_probe *p, gw_arena *a) {
    static const char *const names[] = {"libmpi.so.40", "libmpi.so.12", "libmpi.so", NULL};
    void *h = open_any(names);
    int (*version)(char *, int *);
    SYMBOL(h, version, "MPI_Get_library_version");
    char text[8192] = "";
    int len = 0;
    if (version && version(text, &len) != 0) text[0] = 0;
    size_t n = strcspn(text, ",\n");
    const char *found = !h ? NULL : n ? gw_arena_strndup(a, text, n) : "found, no version";
    optional(p, "MPI", found, "libopenmpi-dev", "ranks on several hosts");
}

static void probe_cuda_driver(gw_probe *p, gw_arena *a) {
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
    void *h = open_any(names);
    int (*init)(unsigned), (*version)(int *), (*count)(int *);
    SYMBOL(h, init, "cuInit");
    SYMBOL(h, version, "cuDriverGetVersion");
    SYMBOL(h, count, "cuDeviceGetCount");
    int v = 0, n = 0;
    if (version && version(&v) != 0) v = 0;
    if (init && count && (init(0) != 0 || count(&n) != 0)) n = 0;
    p->gpus = n;
    const char *found = v > 0 ? gw_arena_printf(a, "CUDA %d.%d, %d device%s", v / 1000,
                                                v % 1000 / 10, n, n == 1 ? "" : "s")
                        : h   ? "found, does not answer"
                              : NULL;
    optional(p, "CUDA driver", found, "nvidia-driver (non-free)", "GPUs");
}

static void probe_cuda_libraries(gw_probe *p, gw_arena *a) {
    static const char *const blas[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                       "libcublasLt.so.11", "libcublasLt.so", NULL};
    static const char *const dnn[] = {"libcudnn.so.9", "libcudnn.so.8", "libcudnn.so", NULL};
    static const char *const nccl[] = {"libnccl.so.2", "libnccl.so", NULL};
    size_t (*blas_version)(void), (*dnn_version)(void);
    int (*nccl_version)(int *);
    SYMBOL(open_any(blas), blas_version, "cublasLtGetVersion");
    SYMBOL(open_any(dnn), dnn_version, "cudnnGetVersion");
    SYMBOL(open_any(nccl), nccl_version, "ncclGetVersion");
    size_t b = blas_version ? blas_version() : 0, d = dnn_version ? dnn_version() : 0;
    /* cuBLASLt: 120103 is 12.1.3. cuDNN: 8907 is 8.9.7, from version 9 on 90100 is 9.1.0. */
    optional(p, "cuBLASLt",
             b ? gw_arena_printf(a, "%zu.%zu.%zu", b / 10000, b / 100 % 100, b % 100) : NULL,
             "nvidia-cuda-toolkit (non-free)", "GPUs");
    size_t major = d >= 90000 ? d / 10000 : d / 1000, minor = d / 100 % (d >= 90000 ? 100 : 10);
    optional(p, "cuDNN", d ? gw_arena_printf(a, "%zu.%zu.%zu", major, minor, d % 100) : NULL,
             "nvidia-cudnn (non-free)", "GPUs");
    int v = 0;
    if (nccl_version && nccl_version(&v) != 0) v = 0;
    /* 2708 is 2.7.8; from 2.9 on 21805 is 2.18.5. */
    int nmajor = v >= 10000 ? v / 10000 : v / 1000,
        nminor = v >= 10000 ? v / 100 % 100 : v / 100 % 10;
    optional(p, "NCCL", v ? gw_arena_printf(a, "%d.%d.%d", nmajor, nminor, v % 100) : NULL,
             "libnccl2 (from NVIDIA)", "several GPUs");
}

static void probe_slurm(gw_probe *p, gw_arena *a) {
    const char *path = getenv("PATH"), *found = NULL;
    char *copy = gw_arena_strdup(a, path ? path : ""), *save = NULL;
    for (char *dir = strtok_r(copy, ":", &save); dir && !found; dir = strtok_r(NULL, ":", &save)) {
        char *file = gw_arena_printf(a, "%s/srun", dir);
        if (access(file, X_OK) == 0) found = file;
    }
    optional(p, "Slurm", found, "slurm-client", "starting ranks with srun");
}

void gw_probe_libraries(gw_probe *p, gw_arena *a) {
    probe_linked(p, a);
    probe_mpi(p, a);
    probe_slurm(p, a);
    probe_cuda_driver(p, a);
    probe_cuda_libraries(p, a);
}
