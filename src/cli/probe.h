// SPDX-License-Identifier: Apache-2.0
// What this machine offers: read from /proc, /sys and libraries; nothing is changed or started.
#ifndef GW_CLI_PROBE_H
#define GW_CLI_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */

enum { GW_PROBE_MAX_FEATURES = 24, GW_PROBE_MAX_LIBRARIES = 16 };

typedef struct gw_probe_feature {
    const char *name; /* "AVX2" */
    bool present;
} gw_probe_feature;

typedef struct gw_probe_library {
    const char *name;    /* "oneDNN" */
    const char *version; /* NULL when not found */
    const char *package; /* the Debian package that brings it */
    const char *needed;  /* what needs it; "" for what the program itself is linked with */
    bool optional;
} gw_probe_library;

typedef struct gw_probe {
    const char *cpu_model, *arch, *kernel;
    gw_probe_feature features[GW_PROBE_MAX_FEATURES];
    int nfeatures;
    const char *onednn_isa; /* what oneDNN uses on this CPU */
    int64_t cores_online;   /* logical */
    int64_t cores_allowed;  /* by this process's affinity mask */
    int64_t cores_physical; /* 0 = unknown */
    double cgroup_cpus;     /* quota / period, the least of all levels; 0 = no limit */
    int64_t cgroup_memory;  /* bytes, the least of all levels; 0 = no limit */
    int cgroup_version;     /* 1, 2; 0 = none */
    int64_t memory_total, memory_available; /* bytes of the machine */
    int64_t shm_total, shm_free;            /* bytes of /dev/shm; 0 = absent */
    gw_probe_library libraries[GW_PROBE_MAX_LIBRARIES];
    int nlibraries;
    int64_t gpus; /* CUDA devices; 0 without a driver */
} gw_probe;

/* Looks at everything. Never fails: what cannot be read is 0 or NULL. Strings live in `a`. */
void gw_probe_machine(gw_probe *p, gw_arena *a);

/* The cores a run can use: affinity, and the cgroup's quota rounded up. At least 1. */
int64_t gw_probe_usable_cores(const gw_probe *p);
/* The memory a run can use, in bytes: the machine's, or the cgroup's limit if that is less. */
int64_t gw_probe_usable_memory(const gw_probe *p);

#endif
