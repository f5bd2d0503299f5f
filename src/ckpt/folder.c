// SPDX-License-Identifier: Apache-2.0
// The folders of a run's checkpoints: which there are, and which go.
//
// Listing looks only at names and manifests: it does not read data, so a damaged data file shows at
// load, and the caller goes on to the checkpoint before.
//
// Old checkpoints are removed only after a commit, the manifest first, so that one that is half
// removed is torn, not damaged. Which are old goes by the number of their commit, not by name. What
// is removed are files that the manifest names, in folders of our name pattern with a manifest of
// our format; a folder in which something else stands keeps that and stays. A save that was killed
// leaves a torn folder with up to the state's full size in it: once a newer checkpoint is complete
// it goes too, provided that every file in it has a name that only a save gives.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"  /* gw_path_join, gw_dir_sync */
#include "base/log.h" /* gw_log_info */
#include "base/map.h" /* GW_VEC */
#include "base/str.h" /* gw_str_starts, gw_parse_i64 */
#include "ckpt/checkpoint.h"

/* ---- listing ---- */

int64_t gw_checkpoint_step_of_name(const char *name) {
    int64_t step;
    if (!gw_str_starts(name, "step-") || strlen(name) < 13) return -1;
    for (const char *c = name + 5; *c; c++)
        if (*c < '0' || *c > '9') return -1;
    return gw_parse_i64(name + 5, &step) ? step : -1;
}

static int newest_first(const void *a, const void *b) {
    const gw_ckpt_found *x = a, *y = b;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    return 0;
}

static gw_ckpt_found look_at(const char *path, int64_t step, gw_arena *a) {
    gw_ckpt_found f = {.step = step, .path = path, .state = GW_CKPT_TORN};
    struct stat st;
    const char *manifest = gw_path_join(a, path, "manifest.json");
    if (lstat(manifest, &st) != 0 && errno == ENOENT) return f;
    gw_diags quiet;
    gw_diags_init(&quiet);
    gw_ckpt_manifest *m = NULL;
    f.state = GW_CKPT_COMPLETE;
    if (gw_checkpoint_read(path, a, &m, &quiet) == GW_OK) {
        f.number = m->meta.number;
    } else {
        f.state = GW_CKPT_DAMAGED;
        f.why = gw_arena_printf(a, "%s: %s", manifest, gw_diags_first_error(&quiet));
    }
    gw_diags_release(&quiet);
    return f;
}

gw_status gw_checkpoint_list(const char *run_dir, gw_arena *a, gw_ckpt_list *out, gw_diags *dg) {
    *out = (gw_ckpt_list){0};
    const char *all = gw_path_join(a, run_dir, "checkpoints");
    DIR *d = opendir(all);
    if (!d && errno == ENOENT) return GW_OK;
    if (!d)
        return GW_FAIL(dg, GW_ERR_IO, "file-open", "cannot read '%s': %s", all, strerror(errno));
    GW_VEC(gw_ckpt_found) found = {0};
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        int64_t step = gw_checkpoint_step_of_name(e->d_name);
        const char *path = gw_path_join(a, all, e->d_name);
        if (step >= 0 && gw_path_is_dir(path)) gw_vec_push(&found, look_at(path, step, a));
    }
    closedir(d);
    out->n = (int)found.count;
    if (out->n > 0) {
        qsort(found.items, (size_t)found.count, sizeof *found.items, newest_first);
        out->items = gw_arena_dup(a, found.items, found.count * (int64_t)sizeof *found.items);
    }
    gw_vec_release(&found);
    return GW_OK;
}

/* ---- removing ---- */

static gw_status remove_one(const char *path, gw_arena *mem, gw_diags *dg) {
    gw_ckpt_manifest *m = NULL;
    struct stat link;
    if (lstat(path, &link) == 0 && S_ISLNK(link.st_mode)) {
        gw_log_warn("%s is a link and stays: what it leads to was not put there by this run", path);
        return GW_OK;
    }
    GW_TRY(gw_checkpoint_read(path, mem, &m, dg));
    const char *manifest = gw_path_join(mem, path, "manifest.json");
    if (unlink(manifest) != 0)
        return GW_FAIL(dg, GW_ERR_IO, "file-remove", "cannot remove '%s': %s", manifest,
                       strerror(errno));
    GW_TRY(gw_dir_sync(path, dg));
    for (int i = 0; i < m->nfiles; i++) unlink(gw_path_join(mem, path, m->files[i].name));
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
    static const char end[] = ".safetensors";
    size_t digits = gw_str_starts(file, "rank-") ? strspn(file + 5, "0123456789") : 0;
    if (digits >= 5 && gw_str_starts(file + 5 + digits, end)) {
        const char *rest = file + 5 + digits + strlen(end);
        return *rest == 0 || is_temporary(rest, "");
    }
    return is_temporary(file, "manifest.json");
}

/* Removes a torn folder in which nothing but ours stands. A failure is no harm: it stays. */
static void remove_torn(const char *path, gw_arena *mem) {
    GW_VEC(const char *) files = {0};
    struct stat link;
    bool only_ours = lstat(path, &link) == 0 && S_ISDIR(link.st_mode);
    DIR *d = only_ours ? opendir(path) : NULL;
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

static int newest_commit_first(const void *a, const void *b) {
    const gw_ckpt_found *x = a, *y = b;
    if (x->number != y->number) return x->number > y->number ? -1 : 1;
    return newest_first(a, b);
}

gw_status gw_checkpoint_prune(const char *run_dir, int64_t keep_last, int64_t keep_every,
                              int64_t busy, gw_diags *dg) {
    gw_arena mem = {0};
    gw_ckpt_list list;
    int64_t seen = 0, oldest = 0, newest = -1;
    gw_status st = gw_checkpoint_list(run_dir, &mem, &list, dg);
    if (st == GW_OK && list.n > 1)
        qsort(list.items, (size_t)list.n, sizeof *list.items, newest_commit_first);
    for (int i = 0; st == GW_OK && i < list.n; i++) {
        const gw_ckpt_found *f = &list.items[i];
        if (f->state != GW_CKPT_COMPLETE) continue;
        newest = GW_MAX(newest, f->step);
        if (++seen == keep_last) oldest = f->step;
        bool kept = keep_last == 0 || seen <= keep_last ||
                    (keep_every > 0 && f->step % keep_every == 0) || f->step == busy;
        if (!kept) st = remove_one(f->path, &mem, dg);
    }
    for (int i = 0; st == GW_OK && i < list.n; i++) {
        const gw_ckpt_found *f = &list.items[i];
        if (f->state == GW_CKPT_TORN && f->step < newest && f->step != busy)
            remove_torn(f->path, &mem);
    }
    if (st == GW_OK && oldest > 0)
        remove_replaced(gw_path_join(&mem, run_dir, "checkpoints"), oldest, &mem);
    gw_arena_release(&mem);
    return st;
}
