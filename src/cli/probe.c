// SPDX-License-Identifier: Apache-2.0
// What this machine offers: processor, limits, memory.
//
// Limits matter more than totals: in a container the machine shows all its cores and memory while
// the cgroup grants a part, and a program that believes the totals is throttled or killed. So both
// are read, at every level of the cgroup tree (a parent's limit binds too), version 1 and
// version 2.
//
// Features are those that kernels are chosen by. They come from /proc/cpuinfo, which shows what the
// kernel has enabled (AMX needs its permission), not merely what the chip has.
#include "cli/probe.h" /* gw_probe */

#include <math.h>        /* ceil */
#include <sched.h>       /* sched_getaffinity */
#include <stdio.h>       /* fopen */
#include <stdlib.h>      /* calloc for large CPU sets */
#include <string.h>      /* strstr */
#include <sys/statvfs.h> /* statvfs */
#include <sys/utsname.h> /* uname */
#include <unistd.h>      /* sysconf */

#include "base/cgroup.h"         /* gw_cgroup_cpus */
#include "base/str.h"            /* gw_str */
#include "cli/probe_libraries.h" /* gw_probe_libraries */

// ------------------------------------------------------------------ small files

/* Appends a file of /proc or /sys; false when it cannot be read. */
static bool slurp(const char *path, gw_str *out) {
    FILE *f = fopen(path, "r");
    if (!f) return false;
    char buf[4096];
    size_t n;
    gw_str_clear(out);
    while ((n = fread(buf, 1, sizeof buf, f)) > 0 && out->len < ((size_t)8 << 20))
        gw_str_add_n(out, buf, n);
    fclose(f);
    return true;
}

/* The rest of the line that begins with `name`, after ':' and spaces; NULL when there is none. */
static const char *field(gw_arena *a, const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *s = text; s && *s; s = strchr(s, '\n')) {
        s += *s == '\n';
        if (strncmp(s, name, n) != 0) continue;
        const char *colon = s + n + strspn(s + n, " \t");
        if (*colon != ':') continue;
        colon += 1 + strspn(colon + 1, " \t");
        return gw_arena_strndup(a, colon, strcspn(colon, "\n"));
    }
    return NULL;
}

static bool has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *s = list; s && (s = strstr(s, word)) != NULL; s += n)
        if ((s == list || s[-1] == ' ') && (s[n] == ' ' || s[n] == 0)) return true;
    return false;
}

// ------------------------------------------------------------------ processor

typedef struct feature_name {
    const char *name, *flag;
} feature_name;

static void probe_features(gw_probe *p, const char *flags, const feature_name *names, size_t n) {
    for (size_t i = 0; i < n && p->nfeatures < GW_PROBE_MAX_FEATURES; i++)
        p->features[p->nfeatures++] =
            (gw_probe_feature){names[i].name, has_word(flags, names[i].flag)};
}

/* Distinct (package, core) pairs of /proc/cpuinfo; 0 where it does not tell. */
static int64_t physical_cores(gw_arena *a, const char *cpuinfo) {
    enum { MAX = 4096 };
    int64_t *seen = gw_arena_new(a, int64_t, MAX);
    int64_t count = 0, package = 0;
    for (const char *s = cpuinfo; s && *s; s = strchr(s, '\n')) {
        s += *s == '\n';
        const char *colon = strchr(s, ':');
        if (!colon) break;
        if (gw_str_starts(s, "physical id")) package = strtoll(colon + 1, NULL, 10);
        if (!gw_str_starts(s, "core id")) continue;
        int64_t id = package * 65536 + strtoll(colon + 1, NULL, 10);
        int64_t i = 0;
        while (i < count && seen[i] != id) i++;
        if (i == count && count < MAX) seen[count++] = id;
    }
    return count;
}

static int64_t allowed_cores(void) {
    for (int bits = 1024; bits <= 1 << 20; bits *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)bits);
        if (!set) return 1;
        size_t bytes = CPU_ALLOC_SIZE((size_t)bits);
        int rc = sched_getaffinity(0, bytes, set);
        int64_t n = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (rc == 0) return n;
    }
    return 1;
}

static void probe_cpu(gw_probe *p, gw_arena *a) {
    static const feature_name x86[] = {
        {"SSE4.2", "sse4_2"},
        {"AVX", "avx"},
        {"AVX2", "avx2"},
        {"FMA", "fma"},
        {"F16C", "f16c"},
        {"AVX-512F", "avx512f"},
        {"AVX-512BW", "avx512bw"},
        {"AVX-512VL", "avx512vl"},
        {"AVX512-VNNI", "avx512_vnni"},
        {"AVX512-BF16", "avx512_bf16"},
        {"AVX512-FP16", "avx512_fp16"},
        {"AMX-TILE", "amx_tile"},
        {"AMX-BF16", "amx_bf16"},
        {"AMX-INT8", "amx_int8"},
    };
    static const feature_name arm[] = {
        {"NEON", "asimd"}, {"FP16", "asimdhp"}, {"DOTPROD", "asimddp"}, {"BF16", "bf16"},
        {"I8MM", "i8mm"},  {"SVE", "sve"},      {"SVE2", "sve2"},
    };
    struct utsname u;
    if (uname(&u) == 0) {
        p->arch = gw_arena_strdup(a, u.machine);
        p->kernel = gw_arena_printf(a, "%s %s", u.sysname, u.release);
    }
    gw_str info = {0};
    if (slurp("/proc/cpuinfo", &info)) {
        const char *text = gw_str_c(&info);
        p->cpu_model = field(a, text, "model name");
        const char *flags = field(a, text, "flags");
        const char *arm_flags = field(a, text, "Features");
        if (flags) probe_features(p, flags, x86, GW_COUNT(x86));
        if (arm_flags) probe_features(p, arm_flags, arm, GW_COUNT(arm));
        p->cores_physical = physical_cores(a, text);
    }
    gw_str_release(&info);
    p->cores_online = sysconf(_SC_NPROCESSORS_ONLN);
    p->cores_allowed = allowed_cores();
}

// ------------------------------------------------------------------ cgroups

static void probe_cgroup(gw_probe *p) {
    p->cgroup_version = gw_cgroup_version(GW_PROC, GW_CGROUPS);
    p->cgroup_cpus = gw_cgroup_cpus(GW_PROC, GW_CGROUPS, NULL, 0);
    int64_t bytes = gw_cgroup_memory(GW_PROC, GW_CGROUPS, NULL, 0);
    p->cgroup_memory = bytes > 0 ? bytes : 0;
}

// ------------------------------------------------------------------ memory

static int64_t kib_field(gw_arena *a, const char *text, const char *name) {
    const char *v = field(a, text, name);
    return v ? strtoll(v, NULL, 10) * 1024 : 0;
}

static void probe_memory(gw_probe *p, gw_arena *a) {
    gw_str text = {0};
    if (slurp("/proc/meminfo", &text)) {
        p->memory_total = kib_field(a, gw_str_c(&text), "MemTotal");
        p->memory_available = kib_field(a, gw_str_c(&text), "MemAvailable");
    }
    gw_str_release(&text);
    struct statvfs v;
    if (statvfs("/dev/shm", &v) != 0) return;
    p->shm_total = (int64_t)v.f_blocks * (int64_t)v.f_frsize;
    p->shm_free = (int64_t)v.f_bavail * (int64_t)v.f_frsize;
}

void gw_probe_machine(gw_probe *p, gw_arena *a) {
    *p = (gw_probe){0};
    probe_cpu(p, a);
    probe_cgroup(p);
    probe_memory(p, a);
    gw_probe_libraries(p, a);
}

int64_t gw_probe_usable_cores(const gw_probe *p) {
    int64_t n = p->cores_allowed > 0 ? p->cores_allowed : 1;
    if (p->cgroup_cpus > 0 && (double)n > p->cgroup_cpus) n = (int64_t)ceil(p->cgroup_cpus);
    return n;
}

int64_t gw_probe_usable_memory(const gw_probe *p) {
    if (p->cgroup_memory > 0 && p->cgroup_memory < p->memory_total) return p->cgroup_memory;
    return p->memory_total;
}
