// SPDX-License-Identifier: Apache-2.0
// From --hardware, --memory and --faults to a simulated step.
//
// A fault that cannot act on the plan is refused, not ignored: a slow link of dp where dp is 1, a
// hot expert without experts across ranks. All that is wrong is said at once. Failures and storage
// are facts about a machine, so those of --faults take the place of what its file states.
#include "cli/plan_sim.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"            /* gw_parse_f64, gw_parse_bytes */
#include "cli/plan_checkpoint.h" /* gw_cli_plan_checkpoint */
#include "run/exec_experts.h"    /* gw_op_is_experts_ep */

typedef enum fault {
    STRAGGLER,
    STRAGGLER_RANK,
    JITTER,
    SLOW_LINK,
    HOT_EXPERT,
    STALL,
    SEED,
    FAILURES,
    STORAGE,
    RESTART,
    INTERVAL,
    FAULTS
} fault;

/* What a fault may be: below `least` nothing of the kind happens. */
static const struct {
    const char *name;
    double least, most;
} keys[FAULTS] = {
    [STRAGGLER] = {"straggler", 1, 1e3},
    [STRAGGLER_RANK] = {"straggler-rank", 0, 1e6},
    [JITTER] = {"jitter", 0, 10},
    [SLOW_LINK] = {"slow-link", 1e-6, 1},
    [HOT_EXPERT] = {"hot-expert", 1, 1e4},
    [STALL] = {"stall", 0, 1e6},
    [SEED] = {"seed", 0, 1e15},
    [FAILURES] = {"failures", 0, 1},
    [STORAGE] = {"storage", 1, 1e15},
    [RESTART] = {"restart", 0, 1e6},
    [INTERVAL] = {"interval", 1, 1e9},
};

typedef struct faults {
    double is[FAULTS];
    bool given[FAULTS];
} faults;

static gw_status bad_fault(gw_cli *cli, const char *word) {
    gw_str all = {0};
    for (int i = 0; i < FAULTS; i++)
        gw_str_printf(&all, "%s%s from %g to %g", i ? ", " : "", keys[i].name, keys[i].least,
                      keys[i].most);
    gw_status st = gw_cli_usage_error(cli, "--faults: '%.60s' is no fault; known are %s", word,
                                      gw_str_c(&all));
    gw_str_release(&all);
    return st;
}

static bool number(int k, const char *text, double *x) {
    int64_t bytes = 0;
    if (k != STORAGE || gw_parse_f64(text, x)) return gw_parse_f64(text, x);
    bool ok = gw_parse_bytes(text, &bytes);
    *x = (double)bytes;
    return ok;
}

static gw_status read_fault(gw_cli *cli, const char *word, faults *f) {
    const char *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    int k = 0;
    double x = 0;
    while (k < FAULTS && (strlen(keys[k].name) != n || memcmp(keys[k].name, word, n) != 0)) k++;
    if (!equals || k == FAULTS || !number(k, equals + 1, &x)) return bad_fault(cli, word);
    if (!(x >= keys[k].least && x <= keys[k].most)) return bad_fault(cli, word);
    if (f->given[k]) return gw_cli_usage_error(cli, "--faults: %s is given twice", keys[k].name);
    f->is[k] = x;
    f->given[k] = true;
    return GW_OK;
}

/* One fault says something about another. */
static gw_status needs(gw_cli *cli, const faults *f, fault one, fault other) {
    if (!f->given[one] || f->given[other]) return GW_OK;
    return gw_cli_usage_error(cli, "--faults: %s says more about %s=X, which is not given",
                              keys[one].name, keys[other].name);
}

static gw_status read_faults(gw_cli *cli, faults *f) {
    memset(f, 0, sizeof *f);
    if (!gw_cli_given(cli, "faults")) return GW_OK;
    char *text = gw_arena_strdup(cli->arena, gw_cli_string(cli, "faults", "")), *end = NULL;
    gw_status st = *text ? GW_OK : bad_fault(cli, text), one;
    for (char *word = strtok_r(text, ",", &end); word; word = strtok_r(NULL, ",", &end))
        if ((one = read_fault(cli, word, f)) != GW_OK) st = one;
    if (st != GW_OK) return st;
    st = needs(cli, f, STRAGGLER_RANK, STRAGGLER);
    one = needs(cli, f, SEED, JITTER);
    return st != GW_OK ? st : one;
}

gw_status gw_cli_machine(gw_cli *cli, gw_machine_spec *m, bool *stated) {
    faults f;
    *stated = gw_cli_given(cli, "hardware");
    gw_status st = read_faults(cli, &f);
    if (!*stated) return st;
    gw_status read = gw_machine_read(gw_cli_string(cli, "hardware", ""), cli->arena, m, cli->diags);
    if (f.given[FAILURES]) m->failures_per_hour = f.is[FAILURES];
    if (f.given[STORAGE]) m->storage_write = f.is[STORAGE];
    return read != GW_OK ? read : st;
}

/* ---- can they act? ---- */

static int64_t experts_over(const gw_planned *p) {
    int64_t most = 1;
    for (int r = 0; r < p->n; r++) {
        const gw_graph *g = &p->programs[r];
        gw_coll_machine local = gw_coll_machine_local(1);
        for (int64_t i = 0; i < g->ops.count; i++)
            if (gw_op_is_experts_ep(g, &g->ops.items[i]))
                most = GW_MAX(most, gw_experts_ep_even(g, &g->ops.items[i], &local).size);
    }
    return most;
}

static gw_status check_days(gw_cli *cli, const faults *f, const gw_machine_spec *m) {
    if (!f->given[RESTART] && !f->given[INTERVAL]) return GW_OK;
    if (m->failures_per_hour > 0 && m->storage_write > 0) return GW_OK;
    return gw_cli_usage_error(cli,
                              "--faults: restart and interval are of a fleet that fails and writes "
                              "checkpoints: %s states no%s%s; give%s%s",
                              m->name, m->failures_per_hour > 0 ? "" : " failures",
                              m->storage_write > 0 ? "" : " storage",
                              m->failures_per_hour > 0 ? "" : " failures=1e-5 (of a chip, an hour)",
                              m->storage_write > 0 ? "" : " storage=2GB (a node, a second)");
}

static gw_status check_faults(gw_cli *cli, const faults *f, const gw_planned *p,
                              const gw_machine_spec *m) {
    const gw_mesh *mesh = &p->programs[0].mesh;
    uint32_t dp = gw_mesh_group(mesh, "dp") | gw_mesh_group(mesh, "dp_replicate");
    gw_status st = check_days(cli, f, m);
    if (f->given[STRAGGLER_RANK] && f->is[STRAGGLER_RANK] >= p->n)
        st = gw_cli_usage_error(cli, "--faults: straggler-rank %g of %d rank%s of the pipeline",
                                f->is[STRAGGLER_RANK], p->n, p->n == 1 ? "" : "s");
    if (f->given[SLOW_LINK] && gw_mesh_size(mesh, dp) < 2)
        st = gw_cli_usage_error(cli, "--faults: slow-link is of the links that dp crosses, and "
                                     "layout.dp is 1");
    if (!f->given[HOT_EXPERT]) return st;
    int64_t over = experts_over(p);
    if (over < 2)
        st = gw_cli_usage_error(cli, "--faults: hot-expert needs experts across ranks: layout.ep "
                                     "above 1");
    else if (f->is[HOT_EXPERT] > (double)over)
        st = gw_cli_usage_error(cli,
                                "--faults: hot-expert %g: one of %lld ranks has at most all rows, "
                                "%lld times the mean",
                                f->is[HOT_EXPERT], (long long)over, (long long)over);
    return st;
}

/* Does any change the step, and not only what becomes of days? */
static bool of_step(const faults *f) {
    for (int i = 0; i < FAILURES; i++)
        if (f->given[i]) return true;
    return false;
}

gw_status gw_cli_simulate(gw_cli *cli, const gw_target *t, const gw_planned *p,
                          const gw_machine_spec *m, bool timeline, gw_simplan *out) {
    faults f;
    GW_TRY(read_faults(cli, &f));
    GW_TRY(check_faults(cli, &f, p, m));
    gw_sim_faults step = {.straggler = f.is[STRAGGLER],
                          .straggler_rank = (int)f.is[STRAGGLER_RANK],
                          .jitter = f.is[JITTER],
                          .slow_link = f.is[SLOW_LINK],
                          .hot_expert = f.is[HOT_EXPERT],
                          .data_stall_s = f.is[STALL],
                          .seed = (uint64_t)f.is[SEED]};
    const gw_graph **programs = gw_arena_new(cli->arena, const gw_graph *, p->n);
    for (int r = 0; r < p->n; r++) programs[r] = &p->programs[r];
    int64_t memory = gw_cli_given(cli, "memory") ? gw_cli_int(cli, "memory", 0) : 0;
    gw_ckpt_size save = gw_cli_plan_checkpoint(p, cli->arena);
    gw_simplan_init(out, &(gw_simplan_input){
                             .ranks = p->ranks,
                             .programs = programs,
                             .n = p->n,
                             .largest = p->largest,
                             .machine = m,
                             .faults = &step,
                             .faults_text = of_step(&f) ? gw_cli_string(cli, "faults", "") : NULL,
                             .schedule = t->setup.schedule ? t->setup.schedule->name : NULL,
                             .memory_bytes = (double)memory,
                             .restart_s = f.given[RESTART] ? f.is[RESTART] : -1,
                             .interval_s = f.is[INTERVAL],
                             .checkpoint_bytes = (double)save.bytes,
                             .timeline = timeline});
    return GW_OK;
}
