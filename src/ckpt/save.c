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
// Bytes go from the arena to the buffer when the save begins, and from there to the file while the
// next steps compute: the state is never half old and half new. The same number of a step may be
// saved twice in a run's life (a damaged checkpoint was passed over on resume and its step is
// reached again): the older folder is moved aside, not overwritten.
#include "ckpt/save.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/io.h"    /* gw_path_join, gw_dir_make */
#include "base/log.h"   /* gw_log_info */
#include "base/map.h"   /* GW_VEC */
#include "base/panic.h" /* GW_ASSERT */
#include "ckpt/plan.h"
#include "ckpt/stage.h"
#include "run/exec_comm.h" /* gw_exec_agree */

/* What a rank tells the others of its file. */
typedef struct told {
    int64_t bytes; /* 0: it has none */
    gw_hash128 index, plan;
} told;

struct gw_ckpt_save {
    gw_arena mem;
    gw_comm *comm;
    int64_t rank, ranks;
    gw_ckpt_meta meta;
    const char *all, *path, *file; /* RUN_DIR/checkpoints, the folder, this rank's file */
    bool existed;                  /* the folder was there, with something else in it */
    const gw_ckpt_tensor *tensors; /* copies; their data is not looked at after begin */
    int n;
    gw_ckpt_plan *plan;
    gw_ckpt_writer *writer; /* NULL: this rank writes nothing */
    gw_ckpt_stage *stage;
    gw_ckpt_stats stats;
};

/* ---- beginning ---- */

/* A complete checkpoint of the same step goes aside under a name that readers skip. */
static gw_status move_aside(const char *path, gw_arena *mem, gw_diags *dg) {
    struct stat st;
    if (stat(gw_path_join(mem, path, "manifest.json"), &st) != 0 || !S_ISREG(st.st_mode))
        return GW_OK;
    for (int i = 1; i < 1000; i++) {
        const char *to = gw_arena_printf(mem, "%s.replaced-%d", path, i);
        if (gw_path_exists(to)) continue;
        if (rename(path, to) != 0)
            return GW_FAIL(dg, GW_ERR_IO, "file-rename", "cannot move '%s' aside: %s", path,
                           strerror(errno));
        gw_log_info("%s was there already: moved to %s", path, to);
        return GW_OK;
    }
    return GW_FAIL(dg, GW_ERR_IO, "file-rename", "'%s' has been replaced too often", path);
}

static int64_t next_number(const char *run_dir, gw_arena *mem) {
    gw_ckpt_list list;
    int64_t number = 0;
    if (gw_checkpoint_list(run_dir, mem, &list, NULL) != GW_OK) return 1;
    for (int i = 0; i < list.n; i++) number = GW_MAX(number, list.items[i].number);
    return number + 1;
}

static gw_status make_folder(gw_ckpt_save *s, const gw_ckpt_options *o, gw_diags *dg) {
    gw_status st = GW_OK;
    if (s->rank == 0) {
        if (s->meta.number <= 0) s->meta.number = next_number(o->run_dir, &s->mem);
        st = move_aside(s->path, &s->mem, dg);
        s->existed = gw_path_exists(s->path);
        if (st == GW_OK) st = gw_dir_make(s->path, dg);
        if (st == GW_OK) st = gw_dir_sync(s->all, dg); /* nothing is written under an old name */
    }
    GW_TRY(gw_exec_agree(s->comm, st, NULL, "a checkpoint's folder", dg));
    return gw_dir_make(s->path, dg); /* of hosts that share no disk: said when it is committed */
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
    s->plan = gw_ckpt_plan_new(items, n, s->ranks > 1 ? mesh : NULL);
}

/* Where each entry's bytes come from. */
typedef GW_VEC(const char *) origins;

static gw_status add_entries(gw_ckpt_save *s, const gw_ckpt_tensor *tensors, origins *from,
                             gw_diags *dg) {
    for (int i = 0; i < s->n; i++) {
        const gw_ckpt_tensor *t = &tensors[i];
        const gw_ckpt_shares *shares = gw_ckpt_plan_of(s->plan, i);
        for (int k = 0; k < shares->n; k++) {
            const gw_ckpt_share *one = &shares->items[k];
            if (one->rank != s->rank) continue;
            GW_ASSERT(!t->away && t->data);
            gw_vec_push(from, (const char *)t->data + one->local * gw_dtype_bits(t->dtype) / 8);
            if (!s->writer) s->writer = gw_ckpt_writer_new(s->file, s->meta.step);
            GW_TRY(gw_ckpt_writer_add(s->writer, t->name, t->dtype, t->ndim, t->dims, &one->piece,
                                      dg));
        }
    }
    return GW_OK;
}

/* Everything that this rank writes goes into the buffer. */
static gw_status take_copy(gw_ckpt_save *s, const gw_ckpt_options *o, const origins *from,
                           gw_diags *dg) {
    const gw_ckpt_block *blocks;
    int64_t n;
    if (!s->writer) return GW_OK;
    GW_TRY(gw_ckpt_writer_begin(s->writer, &blocks, &n, dg));
    GW_TRY(gw_ckpt_stage_start(&s->stage, s->writer, blocks, n,
                               o->buffer_bytes > 0 ? o->buffer_bytes : INT64_MAX, o->bytes_per_s,
                               dg));
    for (int64_t i = 0; i < n; i++)
        gw_ckpt_stage_put(s->stage, from->items[blocks[i].entry] + blocks[i].offset);
    s->stats.waited_s = gw_ckpt_stage_waited(s->stage);
    s->stats.buffer_bytes = gw_ckpt_stage_capacity(s->stage);
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
    origins from = {0};
    *out = NULL;
    s->comm = o->comm;
    s->rank = o->comm ? gw_comm_rank(o->comm) : 0;
    s->ranks = o->comm ? gw_comm_size(o->comm) : 1;
    copy_meta(s, meta);
    s->all = gw_path_join(&s->mem, o->run_dir, "checkpoints");
    s->path = gw_arena_printf(&s->mem, "%s/step-%08" PRId64, s->all, meta->step);
    s->file = gw_path_join(&s->mem, s->path, gw_ckpt_file_name(s->rank, &s->mem));
    s->n = n;
    s->tensors = gw_arena_dup(&s->mem, tensors, n * (int64_t)sizeof *tensors);
    make_plan(s, tensors, n);
    gw_status st = make_folder(s, o, dg);
    if (st == GW_OK) {
        st = add_entries(s, tensors, &from, dg);
        if (st == GW_OK) st = take_copy(s, o, &from, dg);
        st = gw_exec_agree(s->comm, st, NULL, "beginning a checkpoint", dg);
    }
    gw_vec_release(&from);
    s->stats.begin_s = (double)(gw_clock_ns() - before) * 1e-9;
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
    gw_ckpt_plan_free(s->plan);
    gw_arena_release(&s->mem);
    gw_mem_free(s);
}

void gw_checkpoint_drop(gw_ckpt_save *s) {
    if (!s) return;
    gw_ckpt_stage_free(s->stage);
    s->stage = NULL;
    gw_ckpt_writer_free(s->writer);
    s->writer = NULL;
    unlink(s->file);
    if (s->rank == 0 && !s->existed) rmdir(s->path); /* stays while others have files in it */
    release(s);
}

/* ---- committing ---- */

static gw_status finish_file(gw_ckpt_save *s, told *mine, gw_diags *dg) {
    gw_ckpt_file f = {0};
    mine->plan = gw_ckpt_plan_hash(s->plan);
    if (!s->stage) return GW_OK;
    GW_TRY(gw_ckpt_stage_join(s->stage, &f, &s->stats.write_s, dg));
    mine->bytes = f.bytes;
    mine->index = f.index;
    s->stats.bytes = f.bytes;
    return GW_OK;
}

/* Does rank 0 see what rank r says that it wrote? */
static gw_status look_at(const gw_ckpt_save *s, int64_t r, const told *t, gw_arena *mem,
                         gw_diags *dg) {
    struct stat st;
    const char *path = gw_path_join(mem, s->path, gw_ckpt_file_name(r, mem));
    if (t->bytes == 0) return GW_OK;
    if (stat(path, &st) == 0 && st.st_size == t->bytes) return GW_OK;
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "checkpoint-shared", (gw_where){0},
                    "rank %" PRId64 " wrote '%s', and rank 0 does not see it as written", r, path);
    gw_diag_hint(dg, g, "the run directory must be on a disk that all hosts share");
    return GW_ERR_IO;
}

/* Chunks of all tensors, lists shared as the plan shares them. */
static void list_chunks(gw_ckpt_save *s, const int *file_of, gw_ckpt_manifest *m) {
    m->tensors = gw_arena_new(&s->mem, gw_ckpt_entry_tensor, s->n + 1);
    m->ntensors = s->n;
    for (int i = 0; i < s->n; i++) (void)gw_ckpt_plan_of(s->plan, i);
    gw_ckpt_chunks **lists =
        gw_arena_new(&s->mem, gw_ckpt_chunks *, gw_ckpt_plan_lists(s->plan) + 1);
    for (int i = 0; i < s->n; i++) {
        const gw_ckpt_shares *shares = gw_ckpt_plan_of(s->plan, i);
        gw_ckpt_chunks **l = &lists[shares->id];
        if (!*l) {
            *l = gw_arena_new(&s->mem, gw_ckpt_chunks, 1);
            (*l)->n = shares->n;
            (*l)->items = gw_arena_new(&s->mem, gw_ckpt_chunk, shares->n + 1);
            for (int k = 0; k < shares->n; k++)
                (*l)->items[k] = (gw_ckpt_chunk){.file = file_of[shares->items[k].rank],
                                                 .piece = shares->items[k].piece};
        }
        gw_ckpt_entry_tensor *t = &m->tensors[i];
        *t = (gw_ckpt_entry_tensor){.name = s->tensors[i].name,
                                    .dtype = s->tensors[i].dtype,
                                    .ndim = s->tensors[i].ndim,
                                    .chunks = *l};
        memcpy(t->dims, s->tensors[i].dims, sizeof t->dims[0] * (size_t)t->ndim);
    }
}

static gw_status commit(gw_ckpt_save *s, const told *all, gw_diags *dg) {
    char hex[33];
    gw_ckpt_manifest m = {.path = s->path, .meta = s->meta};
    int *file_of = gw_arena_new(&s->mem, int, s->ranks);
    m.plan = gw_arena_strdup(&s->mem, gw_hash128_hex(hex, all[0].plan));
    m.files = gw_arena_new(&s->mem, gw_ckpt_file, s->ranks + 1);
    for (int64_t r = 0; r < s->ranks; r++) {
        if (all[r].plan.lo != all[0].plan.lo || all[r].plan.hi != all[0].plan.hi)
            return GW_FAIL(dg, GW_ERR_PEER, "checkpoint-plan",
                           "rank %" PRId64 " and rank 0 disagree on who writes what", r);
        GW_TRY(look_at(s, r, &all[r], &s->mem, dg));
        if (all[r].bytes == 0) continue;
        file_of[r] = m.nfiles;
        m.files[m.nfiles++] = (gw_ckpt_file){
            .name = gw_ckpt_file_name(r, &s->mem), .bytes = all[r].bytes, .index = all[r].index};
        s->stats.total_bytes += all[r].bytes;
    }
    list_chunks(s, file_of, &m);
    GW_TRY(gw_checkpoint_commit(&m, dg));
    return gw_dir_sync(s->all, dg);
}

gw_status gw_checkpoint_end(gw_ckpt_save *s, gw_ckpt_stats *stats, gw_diags *dg) {
    int64_t before = gw_clock_ns();
    told mine = {0}, *all = gw_mem_zalloc(sizeof *all * (size_t)s->ranks);
    gw_status st = finish_file(s, &mine, dg);
    st = gw_exec_agree(s->comm, st, NULL, "writing a checkpoint", dg);
    all[0] = mine;
    if (st == GW_OK && s->comm)
        st = gw_comm_all_gather(s->comm, &mine, sizeof mine, all, "a checkpoint's files", dg);
    if (st == GW_OK) {
        if (s->rank == 0) st = commit(s, all, dg);
        st = gw_exec_agree(s->comm, st, NULL, "committing a checkpoint", dg);
    }
    gw_mem_free(all);
    s->stats.commit_s = (double)(gw_clock_ns() - before) * 1e-9;
    if (stats) *stats = s->stats;
    if (st != GW_OK) {
        frame(s, dg);
        gw_checkpoint_drop(s);
        return st;
    }
    release(s);
    return GW_OK;
}

gw_status gw_checkpoint_save(const char *run_dir, const gw_ckpt_meta *meta,
                             const gw_ckpt_tensor *tensors, int n, gw_diags *dg) {
    gw_ckpt_save *s;
    gw_ckpt_options o = {.run_dir = run_dir};
    GW_TRY(gw_checkpoint_begin(&s, &o, meta, tensors, n, dg));
    return gw_checkpoint_end(s, NULL, dg);
}
