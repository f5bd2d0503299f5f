// SPDX-License-Identifier: Apache-2.0
// One walk over control groups for every limit that is read from them.
//
// /proc/self/cgroup has a line for each hierarchy: "0::/path" of version 2, "4:cpu,cpuacct:/path"
// of version 1, whose controllers are mounted each under its own name. From the group that is named
// the walk goes up to the mount. In a container the path may not exist below the mount; the levels
// that do are read. A measure gives the figure of one directory, negative where it sets no limit,
// and the least is kept. Figures are doubles: exact to 2^53, and what is larger is no limit.
#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef double measure(const char *dir, bool v2);

typedef struct search {
    measure *m;
    double least; /* negative: no limit so far */
    char *name;
    int n;
} search;

static bool read_line(const char *dir, const char *file, char *buf, int n) {
    char path[1280];
    snprintf(path, sizeof path, "%.1023s/%s", dir, file);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(buf, n, f) != NULL;
    fclose(f);
    return ok;
}

/* Is `want` one of the comma-separated controllers? */
static bool has_controller(const char *list, const char *want) {
    size_t n = strlen(want);
    for (const char *c = list; *c;) {
        size_t len = strcspn(c, ",");
        if (len == n && strncmp(c, want, n) == 0) return true;
        c += len;
        c += *c == ',';
    }
    return false;
}

static void walk(search *s, const char *root, const char *group, bool v2) {
    char dir[1024];
    snprintf(dir, sizeof dir, "%s%s", root, strcmp(group, "/") == 0 ? "" : group);
    size_t stop = strlen(root);
    for (;;) {
        double x = s->m(dir, v2);
        if (x >= 0 && (s->least < 0 || x < s->least)) {
            s->least = x;
            if (s->name)
                snprintf(s->name, (size_t)s->n, "%s", strlen(dir) > stop ? dir + stop : "/");
        }
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < stop) break;
        *slash = 0;
    }
}

static double least_of(const char *proc, const char *cgroups, const char *controller, measure *m,
                       char *name, int n) {
    char path[1024], line[1024];
    search s = {m, -1, name, n};
    if (name && n > 0) name[0] = 0;
    snprintf(path, sizeof path, "%s/self/cgroup", proc);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':');
        char *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        list++;
        snprintf(path, sizeof path, "%.512s/%s", cgroups, controller);
        if (*list == 0)
            walk(&s, cgroups, group, true);
        else if (has_controller(list, controller))
            walk(&s, path, group, false);
    }
    if (f) fclose(f);
    return s.least;
}

/* A number of a file in dir; -1 when it is absent or no number ("max"). */
static double number_in(const char *dir, const char *file) {
    char text[64], *end = NULL;
    if (!read_line(dir, file, text, sizeof text)) return -1;
    double x = strtod(text, &end);
    return end == text ? -1 : x;
}

static double cpus_of(const char *dir, bool v2) {
    if (!v2) {
        double quota = number_in(dir, "cpu.cfs_quota_us");
        double period = number_in(dir, "cpu.cfs_period_us");
        return quota > 0 && period > 0 ? quota / period : -1;
    }
    char text[64], *end = NULL;
    if (!read_line(dir, "cpu.max", text, sizeof text)) return -1;
    double quota = strtod(text, &end);
    if (end == text) return -1; /* "max" */
    double period = strtod(end, NULL);
    return period > 0 ? quota / period : -1;
}

static double processes_of(const char *dir, bool v2) {
    (void)v2;
    double max = number_in(dir, "pids.max"), now = number_in(dir, "pids.current");
    if (max < 0) return -1;
    return now > max ? 0 : max - (now > 0 ? now : 0);
}

/* Version 1 shows a number near 2^63 where there is no limit. */
static double memory_of(const char *dir, bool v2) {
    double top = number_in(dir, v2 ? "memory.max" : "memory.limit_in_bytes");
    return top > 1e18 ? -1 : top;
}

/* Cache that can be dropped; version 1 gives it for the whole subtree, as its usage is, under a
 * name of its own. */
static double droppable(const char *dir) {
    char path[1280], line[160];
    snprintf(path, sizeof path, "%.1023s/memory.stat", dir);
    FILE *f = fopen(path, "re");
    double cache = 0, subtree = -1;
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "inactive_file ", 14) == 0) cache = strtod(line + 14, NULL);
        if (strncmp(line, "total_inactive_file ", 20) == 0) subtree = strtod(line + 20, NULL);
    }
    if (f) fclose(f);
    return subtree >= 0 ? subtree : cache;
}

static double memory_left_of(const char *dir, bool v2) {
    double top = memory_of(dir, v2);
    if (top < 0) return -1;
    double used = number_in(dir, v2 ? "memory.current" : "memory.usage_in_bytes") - droppable(dir);
    double left = top - (used > 0 ? used : 0);
    return left > 0 ? left : 0;
}

int gw_cgroup_version(const char *proc, const char *cgroups) {
    char line[1024], path[1024];
    int version = 0;
    snprintf(path, sizeof path, "%s/cgroup.controllers", cgroups);
    bool unified = access(path, R_OK) == 0;
    snprintf(path, sizeof path, "%s/self/cgroup", proc);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        char *list = strchr(line, ':');
        if (!list) continue;
        if (list[1] == ':' && unified) version = 2;
        if (list[1] != ':' && version == 0) version = 1;
    }
    if (f) fclose(f);
    return version;
}

double gw_cgroup_cpus(const char *proc, const char *cgroups, char *name, int n) {
    double x = least_of(proc, cgroups, "cpu", cpus_of, name, n);
    return x > 0 ? x : 0;
}

int64_t gw_cgroup_processes_left(const char *proc, const char *cgroups, char *name, int n) {
    return (int64_t)least_of(proc, cgroups, "pids", processes_of, name, n);
}

int64_t gw_cgroup_memory(const char *proc, const char *cgroups, char *name, int n) {
    return (int64_t)least_of(proc, cgroups, "memory", memory_of, name, n);
}

int64_t gw_cgroup_memory_left(const char *proc, const char *cgroups, char *name, int n) {
    return (int64_t)least_of(proc, cgroups, "memory", memory_left_of, name, n);
}
