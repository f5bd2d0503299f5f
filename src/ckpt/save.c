// SPDX-License-Identifier: Apache-2.0
// Writing a checkpoint.
//
// A save can be cut at any instruction, on any rank: by a kill, a full disk, a power failure. So
// the order is:
//
//   1. the folder; then each rank its file under a temporary name at its full size (a disk that is
//      too small is noticed here), block by block; synced, renamed
//   2. all ranks tell each other that theirs is complete, with its size and the hash of its index
//   3. rank 0 looks whether it sees all files, then writes manifest.json under a temporary name,
//      syncs it, renames it, syncs the folder: the commit; then the folder above
//
// Until 3 is done readers skip the folder. Who writes what is computed by every rank alone
// (plan.c); that all computed the same is seen from a hash in 2.
//
// Bytes go from the arena to the buffer before the state changes, and from there to the file while
// the next steps compute: the state is never half old and half new. A step changes parameters and
// moments only at its end, so a caller that says when (late) computes forward and backward while
// the writer's thread copies; what is left then is copied by the rank (stage.c).
//
// The same number of a step may be saved twice in a run's life (a damaged checkpoint was passed
// over on resume and its step is reached again): the older folder is moved aside, not overwritten.
// That is for commits that the run has found when it began, or made. One that is newer was made by
// another run in the same place: it is left as it is, and the save fails. So it is where the place
// can be locked and where it cannot.
//
// Of what several ranks hold one writes each share; copies of others are hashed in 1, before the
// state changes, and compared in 2 (replicas.c).
//
// What has not changed since the newest commit is not written (keep.c says how that is known). Each
// rank tells in 2 which of its entries, in the order of the plan, are referred to, and in which of
// a few files; rank 0 lists these files in the manifest. An entry is referred to where it was
// written, never through another reference.
#include "ckpt/save.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/io.h"    /* gw_path_join */
#include "base/log.h"   /* gw_log_info */
#include "base/map.h"   /* GW_VEC */
#include "base/panic.h" /* GW_ASSERT */
#include "ckpt/keep.h"
#include "ckpt/place.h"
#include "ckpt/plan.h"
#include "ckpt/replicas.h"
#include "ckpt/stage.h"
#include "run/exec_comm.h" /* gw_exec_agree */

/* What a rank tells the others of its file, and of those that it refers to. */
typedef struct told {
    int64_t bytes; /* 0: it has none */
    gw_hash128 index, plan;
    uint64_t vouched, compared; /* gw_ckpt_copies_sum_own and gw_ckpt_copies_sum */
    int64_t nown;               /* entries that it answers for */
    int64_t norigins;
    gw_ckpt_origin origins[GW_CKPT_ORIGINS];
} told;

struct gw_ckpt_save {
    gw_arena mem;
    gw_comm *comm;
    int64_t rank, ranks;
    gw_ckpt_meta meta;
    gw_place place;
    const char *all, *path, *file; /* RUN_DIR/checkpoints, the folder, this rank's file */
    bool existed;                  /* the folder was there, with something else in it */
    bool made;                     /* it is this save's to write into */
    const gw_ckpt_tensor *tensors; /* copies; their data is not looked at after begin */
    int n;
    gw_ckpt_plan *plan;
    gw_hash128 plan_hash;
    GW_VEC(gw_ckpt_own) own;    /* in the order of tensors and their shares */
    GW_VEC(gw_ckpt_copy) wrote; /* which shares these are; their hashes are set at the end */
    gw_ckpt_replicas replicas;
    const gw_mesh *mesh;     /* NULL: one rank */
    gw_ckpt_copies compared; /* what others write, as it is here */
    gw_ckpt_keep *keep;      /* the caller's, or of this save alone */
    bool own_keep;
    gw_ckpt_writer *writer; /* NULL: this rank writes nothing */
    gw_ckpt_stage *stage;
    bool taken; /* the state may change */
    gw_ckpt_stats stats;
};

/* ---- beginning ---- */

/* A complete checkpoint of the same step goes aside under a name that readers skip, and so does
 * what others refer to. */
static gw_status move_aside(const gw_ckpt_save *s, bool held, gw_arena *mem, gw_diags *dg) {
    gw_place_entry e;
    if (!held && !gw_place_has(&s->place, gw_path_join(mem, s->path, "manifest.json")))
        return GW_OK;
    for (int i = 1; i < 1000; i++) {
        const char *to = gw_arena_printf(mem, "%s.replaced-%d", s->path, i);
        GW_TRY(gw_place_look(&s->place, to, &e, dg));
        if (e.kind != GW_PLACE_ABSENT) continue;
        GW_TRY(gw_place_move(&s->place, s->path, to, dg));
        gw_log_info("%s was there already: moved to %s", s->path, to);
        return GW_OK;
    }
    return GW_FAIL(dg, GW_ERR_IO, "file-rename", "'%s' has been replaced too often", s->path);
}

static gw_status taken(const char *path, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "checkpoint-taken", (gw_where){0},
                             "'%s' is a commit of another run, made while this one went on", path);
    gw_diag_hint(dg, g, "two runs save into one place: give each its own checkpoint.dir");
    return GW_ERR_IO;
}

static gw_status lead_folder(gw_ckpt_save *s, const gw_ckpt_options *o, gw_diags *dg) {
    gw_place_entry e;
    gw_ckpt_list list;
    int64_t newest = 0;
    bool held = false;
    GW_TRY(gw_checkpoint_list(o->run_dir, &s->mem, &list, dg));
    for (int i = 0; i < list.n; i++) {
        if (o->commits > 0 && list.items[i].number >= o->commits)
            return taken(list.items[i].path, dg);
        newest = GW_MAX(newest, list.items[i].number);
        /* Files of a checkpoint that was removed, or of what must stay though it is no commit. */
        bool others = list.items[i].state == GW_CKPT_HELD || list.items[i].stays;
        held = held || (list.items[i].step == s->meta.step && others);
    }
    if (s->meta.number <= 0) s->meta.number = GW_MAX(newest + 1, o->commits);
    GW_TRY(move_aside(s, held, &s->mem, dg));
    GW_TRY(gw_place_look(&s->place, s->path, &e, dg));
    s->existed = e.kind != GW_PLACE_ABSENT;
    GW_TRY(gw_place_make(&s->place, s->path, dg));
    s->made = true;
    return gw_place_sync(&s->place, s->all, dg); /* nothing is written under an old name */
}

static gw_status make_folder(gw_ckpt_save *s, const gw_ckpt_options *o, gw_diags *dg) {
    gw_status st = gw_place_open(&s->place, s->all, dg);
    if (st == GW_OK) st = gw_checkpoint_check(&s->meta, dg);
    if (st == GW_OK && s->rank == 0) st = lead_folder(s, o, dg);
    GW_TRY(gw_exec_agree(s->comm, st, NULL, "a checkpoint's folder", dg));
    s->made = true;
    /* Of hosts that share no disk: said when it is committed. */
    return gw_place_make(&s->place, s->path, dg);
}

/* The type of a tensor that every rank has whole. */
static const gw_type *whole_type(const gw_ckpt_tensor *t, gw_arena *mem) {
    gw_type *type = gw_arena_new(mem, gw_type, 1);
    *type = gw_type_scalar(t->dtype);
    for (int i = 0; i < t->ndim; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%c", 'a' + i);
        gw_type_add(type, name, t->dims[i]);
    }
    return type;
}

static void make_plan(gw_ckpt_save *s, const gw_ckpt_tensor *tensors, int n) {
    const gw_mesh *mesh = NULL;
    gw_ckpt_item *items = gw_arena_new(&s->mem, gw_ckpt_item, n + 1);
    for (int i = 0; i < n; i++) {
        const gw_ckpt_tensor *t = &tensors[i];
        items[i] =
            (gw_ckpt_item){.type = t->type ? t->type : whole_type(t, &s->mem), .home = t->home};
        if (t->mesh) mesh = t->mesh;
    }
    s->mesh = s->ranks > 1 && mesh && mesh->naxes > 0 ? mesh : NULL;
    s->plan = gw_ckpt_plan_new(items, n, s->mesh);
    s->plan_hash = gw_ckpt_plan_hash(s->plan);
}

/* What this rank answers for. */
static void list_own(gw_ckpt_save *s, const gw_ckpt_options *o) {
    for (int i = 0; i < s->n; i++) {
        const gw_ckpt_tensor *t = &s->tensors[i];
        const gw_ckpt_shares *shares = gw_ckpt_plan_of(s->plan, i);
        for (int k = 0; k < shares->n; k++) {
            const gw_ckpt_share *one = &shares->items[k];
            if (one->rank != s->rank) continue;
            GW_ASSERT(!t->away && t->data);
            int64_t each = gw_dtype_bits(t->dtype) / 8;
            gw_ckpt_own own = {.tensor = t,
                               .piece = &one->piece,
                               .data = (const char *)t->data + one->local * each,
                               .bytes = one->piece.count * each,
                               .entry = -1};
            gw_ckpt_copy wrote = {.tensor = i, .share = k};
            gw_vec_push(&s->own, own);
            gw_vec_push(&s->wrote, wrote);
        }
    }
    gw_ckpt_keep_find(s->keep, &s->place, s->all, s->rank, s->plan_hash, o->references,
                      s->own.items, s->own.count);
}

static gw_status add_entries(gw_ckpt_save *s, gw_diags *dg) {
    int entries = 0;
    for (int64_t i = 0; i < s->own.count; i++) {
        gw_ckpt_own *o = &s->own.items[i];
        if (o->origin >= 0) s->stats.referred_bytes += o->bytes;
        if (o->origin >= 0) continue;
        if (!s->writer) s->writer = gw_ckpt_writer_new(&s->place, s->file, s->meta.step);
        o->entry = entries++;
        GW_TRY(gw_ckpt_writer_add(s->writer, o->tensor->name, o->tensor->dtype, o->tensor->ndim,
                                  o->tensor->dims, o->piece, dg));
    }
    return GW_OK;
}

static void hash_copies(void *save) {
    gw_ckpt_save *s = save;
    int64_t before = gw_clock_ns();
    gw_ckpt_copies_take(s->plan, s->tensors, s->n, s->mesh, s->rank, s->meta.step, s->replicas,
                        &s->mem, &s->compared);
    s->stats.compared_bytes = s->compared.bytes;
    s->stats.compare_s = (double)(gw_clock_ns() - before) * 1e-9;
}

/* Shows the writer's thread everything that this rank writes. */
static gw_status start_writer(gw_ckpt_save *s, const gw_ckpt_options *o, gw_diags *dg) {
    const gw_ckpt_block *blocks;
    int64_t n;
    bool hashes = s->replicas != GW_CKPT_REPLICAS_TRUST && s->mesh;
    gw_ckpt_stage_how how = {.keep = s->keep,
                             .capacity = o->buffer_bytes > 0 ? o->buffer_bytes : INT64_MAX,
                             .bytes_per_s = o->bytes_per_s,
                             .direct = o->direct,
                             .helps = o->late && !o->direct,
                             .also = hashes ? hash_copies : NULL,
                             .user = s};
    const char **data = gw_arena_new(&s->mem, const char *, s->own.count + 1);
    for (int64_t i = 0; i < s->own.count; i++)
        if (s->own.items[i].entry >= 0) data[s->own.items[i].entry] = s->own.items[i].data;
    GW_TRY(gw_ckpt_writer_begin(s->writer, &blocks, &n, dg));
    const char **from = gw_arena_new(&s->mem, const char *, n + 1);
    for (int64_t i = 0; i < n; i++) from[i] = data[blocks[i].entry] + blocks[i].offset;
    how.from = from;
    GW_TRY(gw_ckpt_stage_start(&s->stage, s->writer, blocks, n, &how, dg));
    s->stats.buffer_bytes = gw_ckpt_stage_capacity(s->stage);
    return GW_OK;
}

void gw_checkpoint_take(gw_ckpt_save *s) {
    int64_t before = gw_clock_ns();
    if (s->taken) return;
    s->taken = true;
    if (!s->stage) return;
    gw_ckpt_stage_take(s->stage);
    s->stats.waited_s = gw_ckpt_stage_waited(s->stage);
    s->stats.take_s = (double)(gw_clock_ns() - before) * 1e-9;
}

/* Everything that needs the state as it is, or (late) what the thread does not do meanwhile. */
static gw_status take_copy(gw_ckpt_save *s, const gw_ckpt_options *o, gw_diags *dg) {
    if (s->writer) GW_TRY(start_writer(s, o, dg));
    if (!s->writer || o->direct) hash_copies(s);
    if (!o->late) gw_checkpoint_take(s);
    return GW_OK;
}

static const char *copied(gw_ckpt_save *s, const char *text) {
    return text ? gw_arena_strdup(&s->mem, text) : "";
}

static void copy_meta(gw_ckpt_save *s, const gw_ckpt_meta *m) {
    s->meta = *m;
    s->meta.tokenizer = copied(s, m->tokenizer);
    s->meta.data = copied(s, m->data);
    s->meta.valid = copied(s, m->valid);
    s->meta.model = copied(s, m->model);
    s->meta.isa = copied(s, m->isa);
    s->meta.config = copied(s, m->config);
    s->meta.probe.bits = copied(s, m->probe.bits);
}

static void frame(const gw_ckpt_save *s, gw_diags *dg) {
    gw_diag_frame(dg, "saving the checkpoint of step %" PRId64 "; earlier ones are intact",
                  s->meta.step);
}

gw_status gw_checkpoint_begin(gw_ckpt_save **out, const gw_ckpt_options *o,
                              const gw_ckpt_meta *meta, const gw_ckpt_tensor *tensors, int n,
                              gw_diags *dg) {
    int64_t before = gw_clock_ns();
    gw_ckpt_save *s = gw_mem_zalloc(sizeof *s);
    *out = NULL;
    s->comm = o->comm;
    s->rank = o->comm ? gw_comm_rank(o->comm) : 0;
    s->ranks = o->comm ? gw_comm_size(o->comm) : 1;
    copy_meta(s, meta);
    s->replicas = o->replicas;
    s->keep = o->keep ? o->keep : gw_ckpt_keep_new();
    s->own_keep = !o->keep;
    s->all = gw_checkpoint_home(o->run_dir, &s->mem);
    s->path = gw_arena_printf(&s->mem, "%s/step-%08" PRId64, s->all, meta->step);
    s->file = gw_path_join(&s->mem, s->path, gw_ckpt_file_name(s->rank, &s->mem));
    s->n = n;
    s->tensors = gw_arena_dup(&s->mem, tensors, n * (int64_t)sizeof *tensors);
    make_plan(s, tensors, n);
    gw_status st = make_folder(s, o, dg);
    if (st == GW_OK) {
        list_own(s, o);
        st = add_entries(s, dg);
        if (st == GW_OK) st = take_copy(s, o, dg);
        st = gw_exec_agree(s->comm, st, NULL, "beginning a checkpoint", dg);
    }
    s->stats.begin_s = (double)(gw_clock_ns() - before) * 1e-9 - s->stats.take_s;
    if (st != GW_OK) {
        frame(s, dg);
        gw_checkpoint_drop(s);
        return st;
    }
    *out = s;
    return GW_OK;
}

bool gw_checkpoint_poll(const gw_ckpt_save *s) { return !s->stage || gw_ckpt_stage_done(s->stage); }
int64_t gw_checkpoint_step(const gw_ckpt_save *s) { return s->meta.step; }

static void release(gw_ckpt_save *s) {
    gw_ckpt_stage_free(s->stage);
    gw_ckpt_writer_free(s->writer);
    gw_ckpt_keep_rest(s->keep);
    if (s->own_keep) gw_ckpt_keep_free(s->keep);
    gw_ckpt_plan_free(s->plan);
    gw_vec_release(&s->own);
    gw_vec_release(&s->wrote);
    gw_place_close(&s->place);
    gw_arena_release(&s->mem);
    gw_mem_free(s);
}

void gw_checkpoint_drop(gw_ckpt_save *s) {
    if (!s) return;
    gw_ckpt_stage_free(s->stage);
    s->stage = NULL;
    gw_ckpt_writer_free(s->writer);
    s->writer = NULL;
    gw_ckpt_keep_forget(s->keep); /* what was committed, if anything, is not known */
    /* A folder that has been committed, by whomever, keeps what it has. */
    if (s->made && !gw_place_has(&s->place, gw_path_join(&s->mem, s->path, "manifest.json"))) {
        (void)!gw_place_remove(&s->place, s->file, NULL);
        /* Stays while others have files in it. */
        if (s->rank == 0 && !s->existed) (void)!gw_place_remove_folder(&s->place, s->path, NULL);
    }
    release(s);
}

/* ---- committing ---- */

static gw_ckpt_copies written(const gw_ckpt_save *s) {
    return (gw_ckpt_copies){.items = s->wrote.items, .n = s->wrote.count};
}

/* The file is whole: what of the replicas this rank has to tell. */
static void vouch(gw_ckpt_save *s, told *mine) {
    if (!s->mesh || s->replicas == GW_CKPT_REPLICAS_TRUST) return;
    for (int64_t i = 0; i < s->own.count; i++) {
        const gw_ckpt_own *o = &s->own.items[i];
        const gw_ckpt_row *rows =
            o->origin >= 0 ? o->rows : gw_ckpt_writer_rows(s->writer, o->entry);
        s->wrote.items[i].hash = gw_ckpt_rows_hash(rows, gw_ckpt_blocks(o->bytes));
    }
    gw_ckpt_copies own = written(s);
    mine->vouched = gw_ckpt_copies_sum_own(&own, s->tensors, s->mesh, s->replicas);
    mine->compared = gw_ckpt_copies_sum(&s->compared);
}

/* Do all ranks deal shares alike? */
static gw_status compare_plans(const gw_ckpt_save *s, const told *all, gw_diags *dg) {
    for (int64_t r = 0; r < s->ranks; r++) {
        if (all[r].plan.lo == all[0].plan.lo && all[r].plan.hi == all[0].plan.hi) continue;
        if (s->rank != 0) return GW_ERR_PEER;
        return GW_FAIL(dg, GW_ERR_PEER, "checkpoint-plan",
                       "rank %" PRId64 " and rank 0 disagree on who writes what", r);
    }
    return GW_OK;
}

/* Are all copies what their writers wrote? All ranks see the same, and look for it if not. */
static gw_status compare_copies(gw_ckpt_save *s, const told *all, gw_diags *dg) {
    uint64_t vouched = 0, compared = 0;
    for (int64_t r = 0; r < s->ranks; r++) {
        vouched += all[r].vouched;
        compared += all[r].compared;
    }
    if (vouched == compared) return GW_OK;
    gw_ckpt_copies own = written(s);
    return gw_ckpt_copies_name(s->comm, &s->compared, &own, s->plan, s->tensors, dg);
}

static gw_status finish_file(gw_ckpt_save *s, told *mine, gw_ckpt_file *f, gw_diags *dg) {
    gw_ckpt_stage_times times = {0};
    mine->plan = s->plan_hash;
    mine->nown = s->own.count;
    for (int64_t i = 0; i < s->own.count; i++) {
        int origin = s->own.items[i].origin;
        if (origin < 0) continue;
        mine->norigins = GW_MAX(mine->norigins, origin + 1);
        mine->origins[origin] = *gw_ckpt_keep_origin(s->keep, origin);
    }
    if (s->stage) gw_ckpt_stage_hurry(s->stage);
    gw_checkpoint_take(s);
    if (s->stage) GW_TRY(gw_ckpt_stage_join(s->stage, f, &times, dg));
    vouch(s, mine);
    if (!s->stage) return GW_OK;
    mine->bytes = f->bytes;
    mine->index = f->index;
    s->stats.bytes = f->bytes;
    s->stats.write_s = times.write_s;
    s->stats.cpu_s = times.cpu_s;
    s->stats.copy_s = times.copy_s;
    return GW_OK;
}

/* Which origin each entry of each rank is referred to in, 0 for one that is written, in rows of
 * *width; NULL where no rank refers to anything. All ranks call it. */
static gw_status share_origins(gw_ckpt_save *s, const told *all, uint8_t **out, int64_t *width,
                               gw_diags *dg) {
    bool any = false;
    *out = NULL;
    *width = 1;
    for (int64_t r = 0; r < s->ranks; r++) {
        any = any || all[r].norigins > 0;
        *width = GW_MAX(*width, all[r].nown);
    }
    if (!any) return GW_OK;
    uint8_t *mine = gw_arena_new(&s->mem, uint8_t, *width);
    for (int64_t i = 0; i < s->own.count; i++) mine[i] = (uint8_t)(s->own.items[i].origin + 1);
    *out = mine;
    if (!s->comm) return GW_OK;
    *out = gw_arena_new(&s->mem, uint8_t, s->ranks * *width);
    return gw_comm_all_gather(s->comm, mine, *width, *out, "what a checkpoint refers to", dg);
}

/* Does rank 0 see what rank r says that it wrote, or that it refers to? */
static gw_status look_at(const gw_ckpt_save *s, int64_t r, const char *path, int64_t bytes,
                         bool ours, gw_diags *dg) {
    gw_place_entry e;
    GW_TRY(gw_place_look(&s->place, path, &e, dg));
    if (e.kind == GW_PLACE_FILE && e.bytes == bytes) return GW_OK;
    if (!ours)
        return GW_FAIL(dg, GW_ERR_IO, "checkpoint-reference",
                       "'%s', which rank %" PRId64 " refers to, is not there as it was written",
                       path, r);
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "checkpoint-shared", (gw_where){0},
                    "rank %" PRId64 " wrote '%s', and rank 0 does not see it as written", r, path);
    gw_diag_hint(dg, g, "the run directory must be on a disk that all hosts share");
    return GW_ERR_IO;
}

/* Files of a manifest, by rank and by what it refers to. */
typedef struct places {
    int *own;                        /* [ranks] */
    int (*origins)[GW_CKPT_ORIGINS]; /* [ranks] */
    const uint8_t *of;               /* [ranks][width], or NULL */
    int64_t width;
    int64_t *next; /* [ranks]: entry that comes next, in the order of tensors and shares */
} places;

static gw_status list_files(gw_ckpt_save *s, const told *all, places *p, gw_ckpt_manifest *m,
                            gw_diags *dg) {
    int most = 0;
    for (int64_t r = 0; r < s->ranks; r++) most += 1 + (int)all[r].norigins;
    m->files = gw_arena_new(&s->mem, gw_ckpt_file, most + 1);
    for (int64_t r = 0; r < s->ranks; r++) {
        const char *name = gw_ckpt_file_name(r, &s->mem);
        if (all[r].bytes > 0) {
            GW_TRY(look_at(s, r, gw_path_join(&s->mem, s->path, name), all[r].bytes, true, dg));
            p->own[r] = m->nfiles;
            m->files[m->nfiles++] = (gw_ckpt_file){
                .name = name, .step = s->meta.step, .bytes = all[r].bytes, .index = all[r].index};
            s->stats.total_bytes += all[r].bytes;
        }
        for (int64_t o = 0; o < all[r].norigins; o++) {
            const gw_ckpt_origin *from = &all[r].origins[o];
            if (from->bytes == 0) continue; /* not used any more */
            const char *folder = gw_arena_printf(&s->mem, "step-%08" PRId64, from->step);
            const char *path = gw_arena_printf(&s->mem, "%s/%s/%s", s->all, folder, name);
            GW_TRY(look_at(s, r, path, from->bytes, false, dg));
            p->origins[r][o] = m->nfiles;
            m->files[m->nfiles++] = (gw_ckpt_file){.name = name,
                                                   .folder = folder,
                                                   .step = from->step,
                                                   .bytes = from->bytes,
                                                   .index = from->index};
        }
    }
    return GW_OK;
}

/* In which file a share is: asked in the order of tensors and shares. */
static int file_of(places *p, int64_t rank, bool *referred) {
    int64_t i = p->next[rank]++;
    int origin = p->of ? p->of[rank * p->width + i] : 0;
    *referred = origin > 0;
    return origin > 0 ? p->origins[rank][origin - 1] : p->own[rank];
}

/* The chunks of a tensor's shares; *referred: some stand in other files than the rank's own. */
static gw_ckpt_chunks *chunks_of(gw_ckpt_save *s, const gw_ckpt_shares *shares, places *p,
                                 bool *referred) {
    gw_ckpt_chunks *l = gw_arena_new(&s->mem, gw_ckpt_chunks, 1);
    *referred = false;
    l->n = shares->n;
    l->items = gw_arena_new(&s->mem, gw_ckpt_chunk, shares->n + 1);
    for (int k = 0; k < shares->n; k++) {
        bool one;
        l->items[k] = (gw_ckpt_chunk){.file = file_of(p, shares->items[k].rank, &one),
                                      .piece = shares->items[k].piece};
        *referred = *referred || one;
    }
    return l;
}

/* Chunks of all tensors; lists that name no other files are shared as the plan shares them. */
static void list_chunks(gw_ckpt_save *s, places *p, gw_ckpt_manifest *m) {
    m->tensors = gw_arena_new(&s->mem, gw_ckpt_entry_tensor, s->n + 1);
    m->ntensors = s->n;
    gw_ckpt_chunks **lists =
        gw_arena_new(&s->mem, gw_ckpt_chunks *, gw_ckpt_plan_lists(s->plan) + 1);
    for (int i = 0; i < s->n; i++) {
        bool referred = false;
        const gw_ckpt_shares *shares = gw_ckpt_plan_of(s->plan, i);
        gw_ckpt_chunks *l = lists[shares->id];
        if (!l || p->of) l = chunks_of(s, shares, p, &referred);
        if (!referred && lists[shares->id])
            l = lists[shares->id];
        else if (!referred)
            lists[shares->id] = l;
        gw_ckpt_entry_tensor *t = &m->tensors[i];
        *t = (gw_ckpt_entry_tensor){.name = s->tensors[i].name,
                                    .dtype = s->tensors[i].dtype,
                                    .ndim = s->tensors[i].ndim,
                                    .chunks = l};
        memcpy(t->dims, s->tensors[i].dims, sizeof t->dims[0] * (size_t)t->ndim);
    }
}

static gw_status commit(gw_ckpt_save *s, const told *all, places *p, gw_diags *dg) {
    char hex[33];
    gw_ckpt_manifest m = {.path = s->path, .meta = s->meta};
    m.plan = gw_arena_strdup(&s->mem, gw_hash128_hex(hex, all[0].plan));
    p->own = gw_arena_new(&s->mem, int, s->ranks);
    p->next = gw_arena_new(&s->mem, int64_t, s->ranks);
    p->origins = gw_arena_alloc(&s->mem, s->ranks * (int64_t)sizeof *p->origins);
    GW_TRY(list_files(s, all, p, &m, dg));
    list_chunks(s, p, &m);
    if (gw_place_has(&s->place, gw_path_join(&s->mem, s->path, "manifest.json")))
        return taken(s->path, dg);
    GW_TRY(gw_checkpoint_commit(&m, dg));
    return gw_place_sync(&s->place, s->all, dg);
}

static gw_status settle(gw_ckpt_save *s, told *mine, told *all, gw_diags *dg) {
    places p = {0};
    uint8_t *of = NULL;
    all[0] = *mine;
    if (s->comm)
        GW_TRY(gw_comm_all_gather(s->comm, mine, sizeof *mine, all, "a checkpoint's files", dg));
    GW_TRY(compare_plans(s, all, dg));
    GW_TRY(compare_copies(s, all, dg));
    GW_TRY(share_origins(s, all, &of, &p.width, dg));
    p.of = of;
    gw_status st = s->rank == 0 ? commit(s, all, &p, dg) : GW_OK;
    return gw_exec_agree(s->comm, st, NULL, "committing a checkpoint", dg);
}

gw_status gw_checkpoint_end(gw_ckpt_save *s, gw_ckpt_stats *stats, gw_diags *dg) {
    int64_t before = gw_clock_ns();
    gw_ckpt_file f = {0};
    told mine = {0}, *all = gw_mem_zalloc(sizeof *all * (size_t)s->ranks);
    gw_status st = finish_file(s, &mine, &f, dg);
    st = gw_exec_agree(s->comm, st, NULL, "writing a checkpoint", dg);
    if (st == GW_OK) st = settle(s, &mine, all, dg);
    gw_mem_free(all);
    s->stats.commit_s = (double)(gw_clock_ns() - before) * 1e-9;
    s->stats.number = s->meta.number;
    if (stats) *stats = s->stats;
    if (st != GW_OK) {
        frame(s, dg);
        gw_checkpoint_drop(s);
        return st;
    }
    gw_ckpt_keep_take(s->keep, s->all, s->plan_hash, s->own.items, s->own.count, &f, s->writer);
    release(s);
    return GW_OK;
}

gw_status gw_checkpoint_save(const char *run_dir, const gw_ckpt_meta *meta,
                             const gw_ckpt_tensor *tensors, int n, gw_diags *dg) {
    gw_ckpt_save *s;
    gw_ckpt_options o = {.run_dir = run_dir, .direct = true};
    GW_TRY(gw_checkpoint_begin(&s, &o, meta, tensors, n, dg));
    return gw_checkpoint_end(s, NULL, dg);
}
