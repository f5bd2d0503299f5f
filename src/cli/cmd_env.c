// SPDX-License-Identifier: Apache-2.0
// `gradwright env`: what was found on this machine, what is missing, and which package brings it.
//
// The report opens with what a run can use, which is the least of several limits, and shows each
// limit below, so that a surprise ("why two threads?") can be traced by reading down.
#include <inttypes.h> /* PRId64 */
#include <jansson.h>  /* json_t */
#include <stdio.h>    /* fprintf */

#include "base/str.h"    /* gw_fmt_bytes */
#include "base/term.h"   /* gw_table */
#include "cli/command.h" /* gw_command */
#include "cli/probe.h"   /* gw_probe */
#include "version.h"     /* GW_VERSION */

static const gw_option options[] = {GW_OPTION_JSON};

// ------------------------------------------------------------------ for people

static const char *feature_list(const gw_probe *p, bool present, gw_arena *a) {
    gw_str s = {0};
    for (int i = 0; i < p->nfeatures; i++)
        if (p->features[i].present == present)
            gw_str_printf(&s, "%s%s", s.len ? " " : "", p->features[i].name);
    const char *text = gw_arena_strdup(a, s.len ? gw_str_c(&s) : "none");
    gw_str_release(&s);
    return text;
}

static const char *bytes_text(gw_arena *a, int64_t n, const char *when_zero) {
    char buf[32];
    return n > 0 ? gw_arena_strdup(a, gw_fmt_bytes(buf, n)) : when_zero;
}

static void print_machine(const gw_probe *p, gw_arena *a, FILE *out) {
    gw_table *t = gw_table_new("ll");
    gw_table_row(t, "machine", "");
    gw_table_row(t, "processor", p->cpu_model ? p->cpu_model : "unknown");
    gw_table_row(t, "system",
                 gw_arena_printf(a, "%s, %s", p->arch ? p->arch : "unknown",
                                 p->kernel ? p->kernel : "unknown"));
    gw_table_row(t, "has", feature_list(p, true, a));
    gw_table_row(t, "has not", feature_list(p, false, a));
    gw_table_row(t, "oneDNN uses", p->onednn_isa);
    gw_table_row(
        t, "cores",
        gw_arena_printf(
            a, "%" PRId64 " usable: %" PRId64 " online, %" PRId64 " by affinity, cgroup %s",
            gw_probe_usable_cores(p), p->cores_online, p->cores_allowed,
            p->cgroup_cpus > 0 ? gw_arena_printf(a, "%.3g", p->cgroup_cpus) : "without limit"));
    gw_table_row(t, "memory",
                 gw_arena_printf(a, "%s usable: %s total, %s available, cgroup %s",
                                 bytes_text(a, gw_probe_usable_memory(p), "0 B"),
                                 bytes_text(a, p->memory_total, "unknown"),
                                 bytes_text(a, p->memory_available, "0 B"),
                                 bytes_text(a, p->cgroup_memory, "without limit")));
    gw_table_row(t, "/dev/shm",
                 p->shm_total > 0
                     ? gw_arena_printf(a, "%s, %s free", bytes_text(a, p->shm_total, "0 B"),
                                       bytes_text(a, p->shm_free, "0 B"))
                     : "absent");
    gw_table_print(t, out, "");
    gw_table_free(t);
}

static void print_libraries(const gw_probe *p, FILE *out) {
    gw_table *t = gw_table_new("lll");
    gw_table_row(t, "library", "version", "needed for");
    for (int i = 0; i < p->nlibraries; i++) {
        const gw_probe_library *l = &p->libraries[i];
        gw_table_row(t, l->name, l->version ? l->version : "not found",
                     *l->needed ? l->needed : "everything");
    }
    gw_table_print(t, out, "");
    gw_table_free(t);
}

static void print_missing(const gw_probe *p, FILE *out) {
    int missing = 0;
    for (int i = 0; i < p->nlibraries; i++) missing += p->libraries[i].version == NULL;
    if (missing == 0) return;
    gw_table *t = gw_table_new("lll");
    gw_table_row(t, "missing", "package", "what it is for");
    for (int i = 0; i < p->nlibraries; i++) {
        const gw_probe_library *l = &p->libraries[i];
        if (!l->version)
            gw_table_row(t, l->name, l->package, *l->needed ? l->needed : "everything");
    }
    fprintf(out, "\n");
    gw_table_print(t, out, "");
    gw_table_free(t);
    fprintf(out,
            "\nThese are optional: training on this machine's processor needs none of them.\n");
}

// ------------------------------------------------------------------ for machines

static json_t *libraries_json(const gw_probe *p) {
    json_t *all = json_array();
    for (int i = 0; i < p->nlibraries; i++) {
        const gw_probe_library *l = &p->libraries[i];
        json_array_append_new(all, json_pack("{s:s, s:s?, s:b, s:b, s:s, s:s}", "name", l->name,
                                             "version", l->version, "found", l->version != NULL,
                                             "optional", l->optional, "package", l->package,
                                             "needed_for", l->needed));
    }
    return all;
}

static json_t *features_json(const gw_probe *p) {
    json_t *o = json_object();
    for (int i = 0; i < p->nfeatures; i++)
        json_object_set_new(o, p->features[i].name, json_boolean(p->features[i].present));
    return o;
}

static void print_json(const gw_probe *p, FILE *out) {
    json_t *cpu =
        json_pack("{s:s?, s:s?, s:s?, s:o, s:s, s:I, s:I, s:I, s:I}", "model", p->cpu_model, "arch",
                  p->arch, "kernel", p->kernel, "features", features_json(p), "onednn_isa",
                  p->onednn_isa, "cores_online", (json_int_t)p->cores_online, "cores_allowed",
                  (json_int_t)p->cores_allowed, "cores_physical", (json_int_t)p->cores_physical,
                  "cores_usable", (json_int_t)gw_probe_usable_cores(p));
    json_t *cgroup =
        json_pack("{s:i, s:o, s:o}", "version", p->cgroup_version, "cpus",
                  p->cgroup_cpus > 0 ? json_real(p->cgroup_cpus) : json_null(), "memory_bytes",
                  p->cgroup_memory > 0 ? json_integer(p->cgroup_memory) : json_null());
    json_t *memory = json_pack(
        "{s:I, s:I, s:I, s:I, s:I}", "total_bytes", (json_int_t)p->memory_total, "available_bytes",
        (json_int_t)p->memory_available, "usable_bytes", (json_int_t)gw_probe_usable_memory(p),
        "shm_total_bytes", (json_int_t)p->shm_total, "shm_free_bytes", (json_int_t)p->shm_free);
    json_t *all = json_pack("{s:s, s:s, s:o, s:o, s:o, s:I, s:o}", "version", GW_VERSION, "commit",
                            GW_COMMIT, "cpu", cpu, "cgroup", cgroup, "memory", memory, "gpus",
                            (json_int_t)p->gpus, "libraries", libraries_json(p));
    json_dumpf(all, out, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
    fputc('\n', out);
    json_decref(all);
}

static gw_status run(gw_cli *cli) {
    gw_probe p;
    gw_probe_machine(&p, cli->arena);
    if (gw_cli_flag(cli, "json")) {
        print_json(&p, cli->out);
        return GW_OK;
    }
    fprintf(cli->out, "gradwright %s (commit %s)\n\n", GW_VERSION, GW_COMMIT);
    print_machine(&p, cli->arena, cli->out);
    fprintf(cli->out, "\n");
    print_libraries(&p, cli->out);
    print_missing(&p, cli->out);
    return GW_OK;
}

const gw_command gw_cmd_env = {
    .name = "env",
    .summary = "what this machine has: processor, limits, libraries",
    .usage = {"[--json]"},
    .description =
        "Shows the processor and its features, the cores and memory this process may use\n"
        "(affinity and cgroup limits included), library versions, and what is missing\n"
        "with the package that brings it.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 0,
    .max_args = 0,
    .completes = GW_COMPLETE_NONE,
    .example = "gradwright env --json",
    .run = run,
};
