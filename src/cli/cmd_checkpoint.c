// SPDX-License-Identifier: Apache-2.0
// `gradwright checkpoint`: what a run has saved, what is in it, whether it is whole.
//
// A checkpoint is named by its own folder, or by its run: then it is the newest complete one, or
// the one of --step. Listing reads manifests and looks for files, verify reads every
// byte. diff compares what two
// checkpoints mean, so it can tell whether two layouts of one run agree, or what a step changed.
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"   /* gw_path_is_dir, gw_path_join */
#include "base/str.h"  /* gw_fmt_bytes */
#include "base/term.h" /* gw_table */
#include "ckpt/checkpoint.h"
#include "ckpt/diff.h"
#include "cli/command.h"   /* gw_command */
#include "cli/runarg.h"    /* gw_cli_need_path */
#include "ckpt/place.h"    /* gw_place_look */
#include "file/store.h"    /* gw_store_is_url */
#include "file/json.h"     /* gw_json_text */
#include "train/session.h" /* gw_run_lock */

static const gw_option options[] = {
    {"step", 0, "N", "of a run: the checkpoint of this step", GW_OPT_INT, NULL},
    {"keep-last", 0, "N", "prune: the newest that stay", GW_OPT_INT, NULL},
    {"keep-every", 0, "N", "prune: steps that N divides stay too", GW_OPT_INT, NULL},
    {"all", 0, NULL, "show, diff: every tensor", GW_OPT_FLAG, NULL},
    GW_OPTION_JSON,
};

// ------------------------------------------------------------------ which

static const char *state_text(gw_ckpt_state s) {
    switch (s) {
    case GW_CKPT_COMPLETE: return "complete";
    case GW_CKPT_TORN: return "torn";
    case GW_CKPT_DAMAGED: return "damaged";
    case GW_CKPT_HELD: return "held";
    }
    return "";
}

/* verify of a run whose newest checkpoint is damaged is no success, and says so with --quiet too.
 */
static void passed_over(gw_cli *cli, const gw_ckpt_found *f) {
    bool fails = strcmp(cli->args[0], "verify") == 0;
    (void)gw_diag_add(cli->diags, fails ? GW_ERROR : GW_WARNING, GW_ERR_FORMAT,
                      "checkpoint-damaged", (gw_where){0}, "%s is damaged and passed over: %s",
                      f->path, f->why);
    if (fails) cli->exit_code = 1;
}

static gw_status pick(gw_cli *cli, const char *run, const char **path) {
    gw_ckpt_list list;
    int64_t step = gw_cli_int(cli, "step", -1);
    bool given = gw_cli_given(cli, "step");
    const gw_ckpt_found *best = NULL;
    GW_TRY(gw_checkpoint_list(run, cli->arena, &list, cli->diags));
    for (int i = 0; i < list.n; i++) {
        const gw_ckpt_found *f = &list.items[i];
        if (given ? f->step == step : f->state == GW_CKPT_COMPLETE && !best)
            best = f; /* the list has the newest commit first, as a resume goes through it */
    }
    for (int i = 0; best && !given && &list.items[i] < best; i++)
        if (list.items[i].state == GW_CKPT_DAMAGED) {
            passed_over(cli, &list.items[i]);
        }
    if (!best && given)
        return GW_FAIL(cli->diags, GW_ERR_IO, "checkpoint-none",
                       "'%s' has no checkpoint of step %" PRId64, run, step);
    for (int i = 0; i < list.n && !best; i++)
        if (list.items[i].state == GW_CKPT_DAMAGED)
            (void)!GW_FAIL(cli->diags, GW_ERR_FORMAT, "checkpoint-manifest", "%s",
                           list.items[i].why);
    if (!best)
        return GW_FAIL(cli->diags, GW_ERR_IO, "checkpoint-none",
                       "'%s' has no complete checkpoint (%d in all)", run, list.n);
    *path = best->path;
    return GW_OK;
}

/* What is there, be it in a directory or in a store. */
static gw_status look_at(gw_cli *cli, const char *path, gw_place_kind *kind) {
    gw_place p;
    gw_place_entry e = {0};
    gw_status st = gw_place_open(&p, path, cli->diags);
    if (st == GW_OK) st = gw_place_look(&p, path, &e, cli->diags);
    *kind = e.kind;
    gw_place_close(&p);
    return st;
}

/* Where the checkpoints of a run are that was named: a store, or what the run's config.yaml says.
 */
static gw_status home_of(gw_cli *cli, const char *arg, const char **home) {
    size_t n = strlen(arg);
    *home = n > 1 && arg[n - 1] == '/' ? gw_arena_strndup(cli->arena, arg, n - 1) : arg;
    if (gw_store_is_url(arg)) {
        gw_place_kind kind;
        GW_TRY(look_at(cli, *home, &kind));
        return kind == GW_PLACE_ABSENT ? gw_cli_nothing_at(cli, arg) : GW_OK;
    }
    GW_TRY(gw_cli_need_path(cli, arg));
    *home = gw_session_checkpoints_of(*home, cli->arena);
    return GW_OK;
}

/* The same for verbs that take a run alone. One of its checkpoints, or the folder of them, is a
 * slip that is easily made. */
static gw_status run_at(gw_cli *cli, const char *arg, const char **home) {
    gw_place_kind within, manifest;
    GW_TRY(home_of(cli, arg, home));
    GW_TRY(look_at(cli, gw_path_join(cli->arena, *home, "checkpoints"), &within));
    GW_TRY(look_at(cli, gw_path_join(cli->arena, *home, "manifest.json"), &manifest));
    if (within == GW_PLACE_FOLDER) return GW_OK;
    const char *slash = strrchr(*home, '/'), *name = slash ? slash + 1 : *home;
    if (strcmp(name, "checkpoints") != 0 && manifest == GW_PLACE_ABSENT) return GW_OK;
    return gw_cli_usage_error(
        cli, "'%s' is %s: %s takes the run directory that it is in", arg,
        manifest == GW_PLACE_ABSENT ? "a folder of checkpoints" : "one checkpoint", cli->args[0]);
}

/* A run has a folder of checkpoints; what else is a folder is taken for a checkpoint. */
static gw_status read_one(gw_cli *cli, const char *arg, gw_ckpt_manifest **m) {
    const char *path;
    gw_place_kind kind, within, manifest;
    GW_TRY(home_of(cli, arg, &path));
    GW_TRY(look_at(cli, path, &kind));
    GW_TRY(look_at(cli, gw_path_join(cli->arena, path, "checkpoints"), &within));
    GW_TRY(look_at(cli, gw_path_join(cli->arena, path, "manifest.json"), &manifest));
    if (kind != GW_PLACE_FOLDER)
        return gw_cli_usage_error(cli,
                                  "'%s' is no folder: name a run directory or one of its "
                                  "checkpoints",
                                  path);
    if (within == GW_PLACE_FOLDER)
        GW_TRY(pick(cli, path, &path));
    else if (gw_cli_given(cli, "step"))
        return gw_cli_usage_error(cli,
                                  "--step chooses one of a run's checkpoints; '%s' has no "
                                  "folder 'checkpoints'",
                                  arg);
    else if (manifest == GW_PLACE_ABSENT)
        return GW_FAIL(cli->diags, GW_ERR_IO, "checkpoint-none",
                       "'%s' is neither a run directory nor a checkpoint: it has no folder "
                       "'checkpoints' and no manifest.json",
                       arg);
    return gw_checkpoint_read(path, cli->arena, m, cli->diags);
}

static int64_t data_bytes(const gw_ckpt_manifest *m) {
    int64_t sum = 0;
    for (int i = 0; i < m->nfiles; i++) sum += m->files[i].bytes;
    return sum;
}

static gw_status want_args(gw_cli *cli, int want, const char *what) {
    if (cli->nargs == want + 1) return GW_OK;
    return gw_cli_usage_error(cli, "%s takes %s", cli->args[0], what);
}

// ------------------------------------------------------------------ ls

/* What is said of one that was moved aside: its name, what is wrong with it. */
static const char *aside_text(const gw_ckpt_found *f, gw_arena *a) {
    const char *why = f->why ? f->why : f->state == GW_CKPT_TORN ? "it has no manifest" : NULL;
    return gw_arena_printf(a, "moved aside as %s%s%s%s", strrchr(f->path, '/') + 1, why ? "; " : "",
                           why ? why : "",
                           f->stays ? "; stays, as " GW_CKPT_KEPT_FILE " says" : "");
}

static json_t *found_json(const gw_ckpt_found *f, const gw_ckpt_manifest *m, bool aside) {
    json_t *o =
        json_pack("{s:I, s:o, s:s}", "step", (json_int_t)f->step, "path", gw_json_text(f->path),
                  "state", aside ? "replaced" : state_text(f->state));
    if (f->why) json_object_set_new(o, "why", gw_json_text(f->why));
    if (f->stays) json_object_set_new(o, "stays", json_true());
    if (!m) return o;
    json_object_set_new(o, "commit", json_integer(m->meta.number));
    json_object_set_new(o, "time", json_string(m->meta.time));
    json_object_set_new(o, "tokens", json_integer(m->meta.tokens));
    json_object_set_new(o, "bytes", json_integer(data_bytes(m)));
    json_object_set_new(o, "files", json_integer(m->nfiles));
    return o;
}

static void found_row(gw_table *t, const gw_ckpt_found *f, const gw_ckpt_manifest *m,
                      const char *aside) {
    char step[32], number[32] = "", tokens[32] = "", bytes[32] = "", files[32] = "";
    snprintf(step, sizeof step, "%" PRId64, f->step);
    if (m) {
        snprintf(number, sizeof number, "%" PRId64, m->meta.number);
        snprintf(files, sizeof files, "%d", m->nfiles);
        gw_fmt_count(tokens, m->meta.tokens);
        gw_fmt_bytes(bytes, data_bytes(m));
    }
    const char *why = aside      ? aside
                      : f->why   ? f->why
                      : f->stays ? "stays, as " GW_CKPT_KEPT_FILE " says"
                                 : "";
    gw_table_row(t, step, aside ? "replaced" : state_text(f->state), number, m ? m->meta.time : "",
                 tokens, bytes, files, why);
}

static gw_status run_ls(gw_cli *cli) {
    gw_ckpt_list list, aside;
    GW_TRY(want_args(cli, 1, "one run directory"));
    const char *home;
    GW_TRY(run_at(cli, cli->args[1], &home));
    GW_TRY(gw_checkpoint_list(home, cli->arena, &list, cli->diags));
    GW_TRY(gw_checkpoint_list_replaced(home, cli->arena, &list.kept, &aside, cli->diags));
    bool json = gw_cli_flag(cli, "json");
    gw_table *t = gw_table_new("rlrlrrrl");
    json_t *all = json_array();
    gw_table_row(t, "step", "state", "commit", "time", "tokens", "bytes", "files", "");
    for (int i = 0; i < list.n + aside.n; i++) {
        bool moved = i >= list.n;
        const gw_ckpt_found *f = moved ? &aside.items[i - list.n] : &list.items[i];
        json_array_append_new(all, found_json(f, f->manifest, moved));
        found_row(t, f, f->manifest, moved ? aside_text(f, cli->arena) : NULL);
    }
    if (json) {
        json_dumpf(all, cli->out, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
        fputc('\n', cli->out);
    } else if (list.n + aside.n == 0) {
        fprintf(cli->out, "%s has no checkpoints\n", cli->args[1]);
    } else {
        gw_table_print(t, cli->out, "");
    }
    json_decref(all);
    gw_table_free(t);
    return GW_OK;
}

// ------------------------------------------------------------------ show

static const char *shape_text(gw_cli *cli, const gw_ckpt_entry_tensor *t) {
    gw_str s = {0};
    for (int i = 0; i < t->ndim; i++) gw_str_printf(&s, "%s%" PRId64, i ? "x" : "", t->dims[i]);
    const char *text = gw_arena_strdup(cli->arena, t->ndim ? gw_str_c(&s) : "scalar");
    gw_str_release(&s);
    return text;
}

static int64_t tensor_bytes(const gw_ckpt_entry_tensor *t) {
    gw_box b = gw_box_whole(t->ndim, t->dims);
    return gw_box_elems(&b) * gw_dtype_bits(t->dtype) / 8;
}

static void show_json(gw_cli *cli, const gw_ckpt_manifest *m) {
    json_t *tensors = json_array(), *files = json_array();
    for (int i = 0; i < m->ntensors; i++) {
        const gw_ckpt_entry_tensor *t = &m->tensors[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->ndim; d++) json_array_append_new(shape, json_integer(t->dims[d]));
        json_array_append_new(tensors,
                              json_pack("{s:s, s:s, s:o, s:I, s:i}", "name", t->name, "dtype",
                                        gw_dtype_name(t->dtype), "shape", shape, "bytes",
                                        (json_int_t)tensor_bytes(t), "chunks", t->chunks->n));
    }
    for (int i = 0; i < m->nfiles; i++) {
        json_t *f = json_pack("{s:s, s:I}", "name", m->files[i].name, "bytes",
                              (json_int_t)m->files[i].bytes);
        if (m->files[i].folder) json_object_set_new(f, "folder", json_string(m->files[i].folder));
        json_array_append_new(files, f);
    }
    json_t *o = json_pack("{s:o, s:I, s:I, s:s, s:I, s:I, s:I, s:s, s:I, s:o, s:o}", "path",
                          gw_json_text(m->path), "step", (json_int_t)m->meta.step, "commit",
                          (json_int_t)m->meta.number, "time", m->meta.time, "batch",
                          (json_int_t)m->meta.batch, "next_sample", (json_int_t)m->meta.next_sample,
                          "tokens", (json_int_t)m->meta.tokens, "model", m->meta.model, "bytes",
                          (json_int_t)data_bytes(m), "files", files, "tensors", tensors);
    json_dumpf(o, cli->out, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    fputc('\n', cli->out);
    json_decref(o);
}

/* Files of other checkpoints: what has to be copied with this one. */
static void show_referred(gw_cli *cli, const gw_ckpt_manifest *m) {
    for (int i = 0; i < m->nfiles; i++) {
        const gw_ckpt_file *f = &m->files[i];
        char bytes[32];
        if (f->folder)
            fprintf(cli->out,
                    "  refers to %s/%s, %s: what has not changed since step %" PRId64 "\n",
                    f->folder, f->name, gw_fmt_bytes(bytes, f->bytes), f->step);
    }
}

static gw_status run_show(gw_cli *cli) {
    gw_ckpt_manifest *m = NULL;
    char tokens[32], bytes[32];
    GW_TRY(want_args(cli, 1, "one checkpoint, or a run"));
    GW_TRY(read_one(cli, cli->args[1], &m));
    if (gw_cli_flag(cli, "json")) {
        show_json(cli, m);
        return GW_OK;
    }
    fprintf(cli->out,
            "%s\n  step %" PRId64 ", commit %" PRId64 " of %s\n  %s tokens, next sample %" PRId64
            "\n  model %s\n  %d tensors in %d file%s, %s\n",
            m->path, m->meta.step, m->meta.number, m->meta.time,
            gw_fmt_count(tokens, m->meta.tokens), m->meta.next_sample, m->meta.model, m->ntensors,
            m->nfiles, m->nfiles == 1 ? "" : "s", gw_fmt_bytes(bytes, data_bytes(m)));
    show_referred(cli, m);
    gw_table *t = gw_table_new("lllrr");
    int most = gw_cli_flag(cli, "all") ? m->ntensors : GW_MIN(m->ntensors, 12);
    gw_table_row(t, "tensor", "dtype", "shape", "bytes", "chunks");
    for (int i = 0; i < most; i++) {
        char chunks[32];
        snprintf(chunks, sizeof chunks, "%d", m->tensors[i].chunks->n);
        gw_table_row(t, m->tensors[i].name, gw_dtype_name(m->tensors[i].dtype),
                     shape_text(cli, &m->tensors[i]),
                     gw_fmt_bytes(bytes, tensor_bytes(&m->tensors[i])), chunks);
    }
    gw_table_print(t, cli->out, "  ");
    gw_table_free(t);
    if (most < m->ntensors) fprintf(cli->out, "  and %d more (--all)\n", m->ntensors - most);
    return GW_OK;
}

// ------------------------------------------------------------------ verify

static gw_status run_verify(gw_cli *cli) {
    gw_ckpt_manifest *m = NULL;
    int64_t faults;
    char bytes[32];
    GW_TRY(want_args(cli, 1, "one checkpoint, or a run"));
    GW_TRY(read_one(cli, cli->args[1], &m));
    gw_status st = gw_checkpoint_verify(m, &faults, cli->diags);
    gw_fmt_bytes(bytes, data_bytes(m));
    if (gw_cli_flag(cli, "json")) {
        json_t *o = json_pack("{s:o, s:I, s:I}", "path", gw_json_text(m->path), "bytes",
                              (json_int_t)data_bytes(m), "faults", (json_int_t)faults);
        json_dumpf(o, cli->out, JSON_PRESERVE_ORDER);
        fputc('\n', cli->out);
        json_decref(o);
    }
    if (st == GW_OK && !cli->quiet && !gw_cli_flag(cli, "json"))
        fprintf(cli->out, "%s: whole, %s in %d file%s\n", m->path, bytes, m->nfiles,
                m->nfiles == 1 ? "" : "s");
    return st;
}

// ------------------------------------------------------------------ diff

static const char *how_text(const gw_ckpt_difference *d) {
    switch (d->how) {
    case GW_CKPT_SAME: return "same";
    case GW_CKPT_VALUES: return "values";
    case GW_CKPT_KIND: return "dtype or shape";
    case GW_CKPT_ROUNDED: return "dtype, rounded";
    case GW_CKPT_ONLY_A: return "only in the first";
    case GW_CKPT_ONLY_B: return "only in the second";
    }
    return "";
}

static void diff_json(gw_cli *cli, const gw_ckpt_difference *d, int n, int differing) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_t *o = json_pack("{s:s, s:s}", "name", d[i].name, "how", how_text(&d[i]));
        if (d[i].how == GW_CKPT_VALUES || d[i].how == GW_CKPT_ROUNDED) {
            json_object_set_new(o, "elements", json_integer(d[i].elems));
            json_object_set_new(o, "differing", json_integer(d[i].differing));
            json_object_set_new(o, "largest",
                                isfinite(d[i].largest) ? json_real(d[i].largest) : json_null());
            json_object_set_new(o, "at", json_integer(d[i].at));
        }
        json_array_append_new(list, o);
    }
    json_t *o = json_pack("{s:i, s:i, s:o}", "tensors", n, "differing", differing, "list", list);
    json_dumpf(o, cli->out, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    fputc('\n', cli->out);
    json_decref(o);
}

static void diff_text(gw_cli *cli, const gw_ckpt_difference *d, int n, int differing) {
    gw_table *t = gw_table_new("llrrrr");
    gw_table_row(t, "tensor", "differs in", "elements", "of", "largest |a-b|", "largest |a|");
    for (int i = 0; i < n; i++) {
        char some[32] = "", all[32] = "", gap[32] = "", scale[32] = "";
        if (d[i].how == GW_CKPT_SAME && !gw_cli_flag(cli, "all")) continue;
        bool values = d[i].how == GW_CKPT_VALUES || d[i].how == GW_CKPT_ROUNDED;
        if (values || d[i].how == GW_CKPT_SAME) {
            snprintf(some, sizeof some, "%" PRId64, d[i].differing);
            snprintf(all, sizeof all, "%" PRId64, d[i].elems);
            snprintf(gap, sizeof gap, "%.3g", d[i].largest);
            snprintf(scale, sizeof scale, "%.3g", d[i].scale);
        }
        gw_table_row(t, d[i].name, how_text(&d[i]), some, all, gap, scale);
    }
    if (differing > 0 || gw_cli_flag(cli, "all")) gw_table_print(t, cli->out, "");
    gw_table_free(t);
    if (differing == 0)
        fprintf(cli->out, "the same: %d tensors, every bit\n", n);
    else
        fprintf(cli->out, "%d of %d tensors differ\n", differing, n);
}

static gw_status run_diff(gw_cli *cli) {
    gw_ckpt_manifest *a = NULL, *b = NULL;
    gw_ckpt_difference *d;
    int n, differing = 0;
    GW_TRY(want_args(cli, 2, "two checkpoints, or runs"));
    GW_TRY(read_one(cli, cli->args[1], &a));
    GW_TRY(read_one(cli, cli->args[2], &b));
    GW_TRY(gw_checkpoint_diff(a, b, cli->arena, &d, &n, cli->diags));
    for (int i = 0; i < n; i++) differing += d[i].how != GW_CKPT_SAME;
    if (gw_cli_flag(cli, "json"))
        diff_json(cli, d, n, differing);
    else
        diff_text(cli, d, n, differing);
    cli->exit_code = differing ? 1 : 0; /* as diff(1) */
    return GW_OK;
}

// ------------------------------------------------------------------ prune

static int count_of(const gw_ckpt_list *l, gw_ckpt_state state) {
    int n = 0;
    for (int i = 0; i < l->n; i++) n += l->items[i].state == state;
    return n;
}

static void tell_pruned(gw_cli *cli, const gw_ckpt_list *before, const gw_ckpt_list *after) {
    int held = count_of(after, GW_CKPT_HELD), damaged = count_of(after, GW_CKPT_DAMAGED);
    int kept = 0;
    for (int i = 0; i < after->n; i++)
        kept += after->items[i].stays && after->items[i].state == GW_CKPT_COMPLETE;
    fprintf(cli->out, "%s: %d of %d checkpoints stay\n", cli->args[1],
            count_of(after, GW_CKPT_COMPLETE), count_of(before, GW_CKPT_COMPLETE));
    if (held > 0)
        fprintf(cli->out, "  and of %d older one%s the files that they refer to\n", held,
                held > 1 ? "s" : "");
    if (kept > 0)
        fprintf(cli->out,
                "  %d of them as checkpoints/%s says: --fresh began anew beside %s; without that "
                "file they go like any other\n",
                kept, GW_CKPT_KEPT_FILE, kept > 1 ? "them" : "it");
    if (damaged > 0)
        fprintf(cli->out, "  %d damaged one%s left alone (`checkpoint ls` says why)\n", damaged,
                damaged > 1 ? "s are" : " is");
}

static gw_status run_prune(gw_cli *cli) {
    gw_ckpt_list before, after;
    int64_t last = gw_cli_int(cli, "keep-last", 0), every = gw_cli_int(cli, "keep-every", 0);
    const char *run = cli->nargs > 1 ? cli->args[1] : "";
    GW_TRY(want_args(cli, 1, "one run directory"));
    if (last < 1 || every < 0)
        return gw_cli_usage_error(cli, "prune needs --keep-last N, at least 1: the newest always "
                                       "stays");
    const char *home;
    int lock = -1;
    gw_run_hold hold = {0};
    bool local = !gw_store_is_url(run);
    GW_TRY(run_at(cli, run, &home));
    if (local) GW_TRY(gw_run_lock(run, &lock, cli->diags)); /* a run that goes on prunes itself */
    gw_status st = gw_run_hold_checkpoints(&hold, run, home, cli->diags);
    if (st == GW_OK) st = gw_checkpoint_list(home, cli->arena, &before, cli->diags);
    if (st == GW_OK) st = gw_checkpoint_prune(home, last, every, -1, cli->diags);
    if (st == GW_OK) st = gw_checkpoint_list(home, cli->arena, &after, cli->diags);
    gw_run_release(&hold);
    if (local) gw_run_unlock(run, lock);
    GW_TRY(st);
    if (!cli->quiet) tell_pruned(cli, &before, &after);
    return GW_OK;
}

/* An option that the verb has no use for is a mistake, not a wish to be passed over. */
static gw_status check_options(gw_cli *cli, const char *takes) {
    static const char *const all[] = {"step", "keep-last", "keep-every", "all", "json"};
    for (size_t i = 0; i < GW_COUNT(all); i++)
        if (gw_cli_given(cli, all[i]) && !strstr(takes, all[i]))
            return gw_cli_usage_error(cli, "%s has no use for --%s", cli->args[0], all[i]);
    return GW_OK;
}

static gw_status run(gw_cli *cli) {
    static const struct {
        const char *verb, *takes;
        gw_status (*run)(gw_cli *cli);
    } verbs[] = {{"ls", "json", run_ls},
                 {"show", "step all json", run_show},
                 {"verify", "step json", run_verify},
                 {"diff", "step all json", run_diff},
                 {"prune", "keep-last keep-every", run_prune}};
    for (size_t i = 0; i < GW_COUNT(verbs); i++) {
        if (strcmp(cli->args[0], verbs[i].verb) != 0) continue;
        GW_TRY(check_options(cli, verbs[i].takes));
        return verbs[i].run(cli);
    }
    return gw_cli_usage_error(cli, "'%s' is none of ls, show, verify, diff, prune", cli->args[0]);
}

const gw_command gw_cmd_checkpoint = {
    .name = "checkpoint",
    .summary = "list, show, verify, compare, prune checkpoints",
    .usage = {"ls RUN_DIR [--json]", "show|verify CKPT|RUN_DIR [--step N]", "diff A B [--all]",
              "prune RUN_DIR --keep-last N [--keep-every N]"},
    .description = "CKPT is a checkpoint's own folder; of a run it is the newest complete one.\n"
                   "verify reads every byte. diff compares what two mean, whatever layouts wrote\n"
                   "them; it exits with 1 where they differ. prune removes only what was saved.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 3,
    .completes = GW_COMPLETE_WORDS,
    .words = "ls show verify diff prune",
    .example = "gradwright checkpoint verify runs/first",
    .run = run,
};
