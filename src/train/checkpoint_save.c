// SPDX-License-Identifier: Apache-2.0
// Writing a checkpoint, and removing old ones.
//
// A save can be cut at any instruction: by a kill, a full disk, a power failure. So the order is:
//
//   1. the folder, then rank-00000.safetensors under a temporary name at its full size (a disk that
//      is too small is noticed here), tensor by tensor, each hashed as it passes; synced, renamed
//   2. manifest.json under a temporary name, synced, renamed, folder synced: the commit
//   3. the folder above synced, so that the new name lasts
//
// Until 2 is done readers skip the folder. Old checkpoints are removed only after a commit, the
// manifest first, so that one that is half removed is torn, not damaged. What is removed are files
// that the manifest names, in folders of our name pattern with a manifest of our format; a folder
// in which something else stands keeps that and stays. A save that was killed leaves a torn folder
// with the state's full size in it: once a newer checkpoint is complete it goes too, provided that
// every file in it has a name that only a save gives.
//
// Bytes go from the arena to the file without a copy; a tensor that the ranks hold in parts, or
// that other stages of a pipeline hold, is put together first, one at a time. The same number of a
// step may be saved twice in a run's life (a damaged checkpoint was passed over on resume and its
// step is reached again): the older folder is moved aside, not overwritten.
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"       /* gw_clock_iso */
#include "base/io.h"          /* gw_path_join, gw_dir_make */
#include "base/log.h"         /* gw_log_info */
#include "base/map.h"         /* GW_VEC */
#include "base/panic.h"       /* gw_panic */
#include "base/str.h"         /* gw_str_starts */
#include "file/json.h"        /* gw_json_write_file */
#include "file/safetensors.h" /* gw_st_writer */
#include "train/checkpoint.h"
#include "version.h" /* GW_VERSION, GW_COMMIT */

static const char data_file[] = "rank-00000.safetensors";

static gw_st_dtype file_dtype(gw_dtype t) {
    switch (t) {
    case GW_F32: return GW_ST_F32;
    case GW_BF16: return GW_ST_BF16;
    case GW_F16: return GW_ST_F16;
    case GW_F64: return GW_ST_F64;
    case GW_I32: return GW_ST_I32;
    case GW_I64: return GW_ST_I64;
    case GW_U8: return GW_ST_U8;
    case GW_F8E4M3: return GW_ST_F8_E4M3;
    case GW_F8E5M2: return GW_ST_F8_E5M2;
    case GW_DTYPE_COUNT: break;
    }
    gw_panic("dtype %d cannot be stored", (int)t);
}

/* ---- data ---- */

static gw_status write_tensors(gw_st_writer *w, const gw_ckpt_meta *meta,
                               const gw_ckpt_tensor *tensors, int n, const gw_ckpt_source *source,
                               gw_diags *dg) {
    char step[32];
    snprintf(step, sizeof step, "%" PRId64, meta->step);
    gw_st_writer_metadata(w, "format", "pt");
    gw_st_writer_metadata(w, "gradwright.step", step);
    for (int i = 0; i < n; i++)
        GW_TRY(gw_st_writer_declare(w, tensors[i].name, file_dtype(tensors[i].dtype),
                                    tensors[i].ndim, tensors[i].box.size, dg));
    GW_TRY(gw_st_writer_begin(w, dg));
    for (int i = 0; i < n; i++) {
        int64_t bytes = gw_box_elems(&tensors[i].box) * gw_dtype_bits(tensors[i].dtype) / 8;
        const void *data = tensors[i].data;
        if (tensors[i].parts || tensors[i].home > 0)
            GW_TRY(source->whole(source->user, i, &data, dg));
        GW_TRY(gw_st_writer_put(w, tensors[i].name, data, bytes, dg));
    }
    return gw_st_writer_finish(w, dg);
}

/* ---- manifest ---- */

static json_t *ints(const int64_t *x, int n) {
    json_t *a = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(a, json_integer(x[i]));
    return a;
}

static json_t *tensor_json(const gw_st_writer *w, const gw_ckpt_tensor *t) {
    char hash[33];
    gw_hash128_hex(hash, gw_st_writer_hash(w, t->name));
    json_t *box = json_pack("{s:o, s:o}", "start", ints(t->box.start, t->ndim), "size",
                            ints(t->box.size, t->ndim));
    json_t *chunk = json_pack("{s:o, s:s, s:I, s:I, s:s}", "box", box, "file", data_file, "offset",
                              (json_int_t)gw_st_writer_offset(w, t->name), "bytes",
                              (json_int_t)(gw_box_elems(&t->box) * gw_dtype_bits(t->dtype) / 8),
                              "xxh128", hash);
    return json_pack("{s:s, s:s, s:o, s:[o]}", "name", t->name, "dtype", gw_dtype_name(t->dtype),
                     "shape", ints(t->dims, t->ndim), "chunks", chunk);
}

static json_t *manifest_json(const gw_st_writer *w, const gw_ckpt_meta *m, int64_t number,
                             const gw_ckpt_tensor *tensors, int n) {
    char time[32];
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, tensor_json(w, &tensors[i]));
    json_t *commit = json_pack("{s:I, s:s, s:s}", "number", (json_int_t)number, "time",
                               gw_clock_iso(time, gw_clock_wall()), "program",
                               "gradwright " GW_VERSION " (commit " GW_COMMIT ")");
    json_t *scale = json_pack("{s:f, s:I, s:I}", "scale", m->loss_scale, "good_steps",
                              (json_int_t)m->good_steps, "bad_steps", (json_int_t)m->bad_steps);
    json_t *rng = json_pack("{s:s, s:I, s:s, s:s, s:s}", "generator", "philox4x32-10", "seed",
                            (json_int_t)m->seed, "weights", "tensor name, element", "dropout",
                            "op name, sample, batch, element", "order", "epoch, document");
    json_t *bits = json_pack("{s:I, s:s}", "threads", (json_int_t)m->threads, "isa", m->isa);
    json_t *o = json_pack("{s:s, s:i, s:o, s:I, s:I, s:I, s:I}", "format", "gradwright-checkpoint",
                          "version", GW_CHECKPOINT_VERSION, "commit", commit, "step",
                          (json_int_t)m->step, "batch", (json_int_t)m->batch, "next_sample",
                          (json_int_t)m->next_sample, "tokens", (json_int_t)m->tokens);
    json_object_set_new(o, "loss_scale", scale);
    json_object_set_new(o, "rng", rng);
    json_object_set_new(o, "tokenizer", json_string(m->tokenizer));
    json_object_set_new(o, "data", json_string(m->data));
    json_object_set_new(o, "valid", json_string(m->valid ? m->valid : ""));
    json_object_set_new(o, "model", json_string(m->model));
    json_object_set_new(o, "bits", bits);
    json_object_set_new(o, "config", json_string(m->config));
    json_object_set_new(o, "files", json_pack("[s]", data_file));
    json_object_set_new(o, "tensors", list);
    char hash[33];
    gw_hash128_hex(hash, gw_checkpoint_manifest_hash(o));
    json_object_set_new(o, "manifest_xxh128", json_string(hash));
    return o;
}

/* ---- saving ---- */

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
    for (int i = 0; i < list.n; i++) {
        gw_ckpt_manifest *m = NULL;
        if (list.items[i].state == GW_CKPT_COMPLETE &&
            gw_checkpoint_read(list.items[i].path, mem, &m, NULL) == GW_OK)
            number = GW_MAX(number, m->meta.number);
    }
    return number + 1;
}

static gw_status write_folder(const char *path, const char *file, const gw_ckpt_meta *meta,
                              int64_t number, const gw_ckpt_tensor *tensors, int n,
                              const gw_ckpt_source *source, gw_arena *mem, gw_diags *dg) {
    gw_st_writer *w = gw_st_writer_new(file);
    gw_status st = write_tensors(w, meta, tensors, n, source, dg);
    if (st == GW_OK) {
        json_t *o = manifest_json(w, meta, number, tensors, n);
        /* What is not UTF-8 has no place in JSON: without it the manifest would not read back. */
        if (!json_object_get(o, "config") || !json_object_get(o, "model") ||
            json_array_size(json_object_get(o, "tensors")) != (size_t)n)
            st = GW_FAIL(dg, GW_ERR_FORMAT, "checkpoint-text",
                         "a name or the run file is not UTF-8 text and cannot be saved");
        else
            st = gw_json_write_file(gw_path_join(mem, path, "manifest.json"), o, 1, dg);
        json_decref(o);
    }
    gw_st_writer_free(w);
    return st;
}

gw_status gw_checkpoint_save(const char *run_dir, const gw_ckpt_meta *meta,
                             const gw_ckpt_tensor *tensors, int n, gw_diags *dg) {
    return gw_checkpoint_save_from(run_dir, meta, tensors, n, NULL, dg);
}

gw_status gw_checkpoint_save_from(const char *run_dir, const gw_ckpt_meta *meta,
                                  const gw_ckpt_tensor *tensors, int n,
                                  const gw_ckpt_source *source, gw_diags *dg) {
    gw_arena mem = {0};
    const char *all = gw_path_join(&mem, run_dir, "checkpoints");
    const char *path = gw_arena_printf(&mem, "%s/step-%08" PRId64, all, meta->step);
    const char *file = gw_path_join(&mem, path, data_file);
    int64_t number = meta->number > 0 ? meta->number : next_number(run_dir, &mem);
    gw_status st = move_aside(path, &mem, dg);
    bool existed = gw_path_exists(path);
    if (st == GW_OK) st = gw_dir_make(path, dg);
    if (st == GW_OK) {
        st = write_folder(path, file, meta, number, tensors, n, source, &mem, dg);
        if (st == GW_OK)
            st = gw_dir_sync(all, dg);
        else {
            unlink(file);
            if (!existed) rmdir(path);
        }
    }
    if (st != GW_OK)
        gw_diag_frame(dg, "saving the checkpoint of step %" PRId64 "; earlier ones are intact",
                      meta->step);
    gw_arena_release(&mem);
    return st;
}

/* ---- removing ---- */

static gw_status remove_one(const char *path, gw_arena *mem, gw_diags *dg) {
    gw_ckpt_manifest *m = NULL;
    GW_TRY(gw_checkpoint_read(path, mem, &m, dg));
    const char *manifest = gw_path_join(mem, path, "manifest.json");
    if (unlink(manifest) != 0)
        return GW_FAIL(dg, GW_ERR_IO, "file-remove", "cannot remove '%s': %s", manifest,
                       strerror(errno));
    GW_TRY(gw_dir_sync(path, dg));
    for (int i = 0; i < m->nfiles; i++) unlink(gw_path_join(mem, path, m->files[i]));
    rmdir(path); /* stays when something that is not ours stands in it */
    return GW_OK;
}

/* Does a name end in what our writers call their temporary files, after `name`? */
static bool is_temporary(const char *file, const char *name) {
    size_t n = strlen(name);
    return gw_str_starts(file, name) &&
           (gw_str_starts(file + n, ".tmp.") || gw_str_starts(file + n, ".tmp-"));
}

/* Has a file a name that only a save gives? */
static bool is_ours(const char *file) {
    return strcmp(file, data_file) == 0 || is_temporary(file, data_file) ||
           is_temporary(file, "manifest.json");
}

/* Removes a torn folder in which nothing but ours stands. A failure is no harm: it stays. */
static void remove_torn(const char *path, gw_arena *mem) {
    GW_VEC(const char *) files = {0};
    bool only_ours = true;
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        struct stat st;
        const char *file = gw_path_join(mem, path, e->d_name);
        only_ours = only_ours && is_ours(e->d_name) && lstat(file, &st) == 0 && S_ISREG(st.st_mode);
        gw_vec_push(&files, file);
    }
    closedir(d);
    for (int64_t i = 0; only_ours && i < files.count; i++) unlink(files.items[i]);
    gw_vec_release(&files);
    if (only_ours && rmdir(path) == 0)
        gw_log_info("removed %s, the leftover of a save that did not finish", path);
}

/* "step-00000100.replaced-2" -> 100; -1 for any other name. */
static int64_t replaced_step(const char *name, gw_arena *mem) {
    const char *dot = strstr(name, ".replaced-");
    int64_t n;
    if (!dot || !gw_parse_i64(dot + strlen(".replaced-"), &n)) return -1;
    return gw_checkpoint_step_of_name(gw_arena_strndup(mem, name, (size_t)(dot - name)));
}

/* Removes what was moved aside from steps before `oldest`, where it reads as a checkpoint of its
 * step. */
static void remove_replaced(const char *all, int64_t oldest, gw_arena *mem) {
    DIR *d = opendir(all);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        int64_t step = replaced_step(e->d_name, mem);
        gw_ckpt_manifest *m = NULL;
        const char *path = gw_path_join(mem, all, e->d_name);
        if (step < 0 || step >= oldest) continue;
        if (gw_checkpoint_read(path, mem, &m, NULL) == GW_OK && m->meta.step == step)
            (void)!remove_one(path, mem, NULL);
    }
    closedir(d);
}

gw_status gw_checkpoint_prune(const char *run_dir, int64_t keep, gw_diags *dg) {
    gw_arena mem = {0};
    gw_ckpt_list list;
    int64_t seen = 0, oldest = 0;
    gw_status st = gw_checkpoint_list(run_dir, &mem, &list, dg);
    for (int i = 0; st == GW_OK && i < list.n; i++) {
        const gw_ckpt_found *f = &list.items[i];
        if (f->state == GW_CKPT_TORN && seen > 0) remove_torn(f->path, &mem);
        if (f->state != GW_CKPT_COMPLETE) continue;
        if (++seen == keep) oldest = f->step;
        if (keep > 0 && seen > keep) st = remove_one(f->path, &mem, dg);
    }
    if (st == GW_OK && oldest > 0)
        remove_replaced(gw_path_join(&mem, run_dir, "checkpoints"), oldest, &mem);
    gw_arena_release(&mem);
    return st;
}
