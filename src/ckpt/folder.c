// SPDX-License-Identifier: Apache-2.0
// The folders of a run's checkpoints: which there are, and which go.
//
// Listing looks at names, manifests and the sizes of files: a checkpoint is complete when each file
// that its manifest names, its own or an older one's, is there with its size. It does not read
// data, so a flipped bit shows at load, and the caller goes on to the checkpoint before. There is
// one order, that of commits: a run that fell back to an older checkpoint and went on from there
// has its newest state in the newest commit, whatever steps lie beside it.
//
// Only complete ones count for what stays: one that has lost a file takes nobody's place, and is
// left alone with what it refers to, since the file may come back. Old checkpoints are removed only
// after a commit, the manifest first, so that one that is half removed is torn, not damaged. Which
// are old goes by the number of their commit, not by name. What is removed are files that the
// manifest names, in folders of our name pattern with a manifest of our format; a folder in which
// something else stands keeps that and stays. A save that was killed leaves a torn folder with up
// to the state's full size in it: once a newer checkpoint is complete it goes too, provided that
// every file in it has a name that only a save gives.
//
// A file that a manifest which stays refers to is kept whatever becomes of its own checkpoint; that
// folder then has no manifest and is held for others, and what is left of it goes when nobody
// refers to it any more. What a manifest of a newer format refers to is not known: where there is
// one nothing is removed. Nor is what kept.json says stays (kept.c), which is counted for nobody.
#include <stdlib.h>
#include <string.h>

#include "base/io.h"  /* gw_path_join */
#include "base/log.h" /* gw_log_info */
#include "base/map.h" /* GW_VEC, gw_smap */
#include "base/str.h" /* gw_str_starts, gw_parse_i64 */
#include "ckpt/checkpoint.h"
#include "ckpt/place.h"

const char *gw_checkpoint_home(const char *run_dir, gw_arena *a) {
    return gw_path_join(a, run_dir, "checkpoints");
}

int64_t gw_checkpoint_step_of_name(const char *name) {
    int64_t step;
    if (!gw_str_starts(name, "step-") || strlen(name) < 13) return -1;
    if (strlen(name) > 13 && name[5] == '0') return -1; /* nothing that we would write */
    for (const char *c = name + 5; *c; c++)
        if (*c < '0' || *c > '9') return -1;
    return gw_parse_i64(name + 5, &step) ? step : -1;
}

/* Has a name what our writers append to temporary files, behind `name`? */
static bool is_temporary(const char *file, const char *name) {
    size_t n = strlen(name);
    return gw_str_starts(file, name) &&
           (gw_str_starts(file + n, ".tmp.") || gw_str_starts(file + n, ".tmp-"));
}

/* "rank-00012.safetensors", or the temporary of one. */
static bool is_data(const char *file, bool *finished) {
    static const char end[] = ".safetensors";
    size_t digits = gw_str_starts(file, "rank-") ? strspn(file + 5, "0123456789") : 0;
    if (digits < 5 || !gw_str_starts(file + 5 + digits, end)) return false;
    const char *rest = file + 5 + digits + strlen(end);
    *finished = *rest == 0;
    return *finished || is_temporary(rest, "");
}

/* Has a file a name that only a save gives? */
static bool is_ours(const char *file) {
    bool finished;
    return is_data(file, &finished) || is_temporary(file, "manifest.json");
}

// ------------------------------------------------------------------ what refers to what

/* Folders by name, files by "FOLDER/NAME", with the place in a list of who refers to them. */
typedef struct refs {
    gw_smap folders, files;
} refs;

static void refer(refs *r, const gw_ckpt_manifest *m, int by, gw_arena *a) {
    for (int i = 0; i < m->nfiles; i++) {
        const gw_ckpt_file *f = &m->files[i];
        if (!f->folder) continue;
        gw_smap_put_c(&r->folders, f->folder, (uint32_t)by);
        gw_smap_put_c(&r->files, gw_arena_printf(a, "%s/%s", f->folder, f->name), (uint32_t)by);
    }
}

static void forget(refs *r) {
    gw_smap_release(&r->folders);
    gw_smap_release(&r->files);
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_needed(const refs *r, const char *path, const char *file, gw_arena *a) {
    uint32_t by;
    return gw_smap_find_c(&r->files, gw_arena_printf(a, "%s/%s", name_of(path), file), &by);
}

// ------------------------------------------------------------------ listing

/* Those whose manifest reads by commit, then the rest by step; the newest first. */
static int newest_first(const void *a, const void *b) {
    const gw_ckpt_found *x = a, *y = b;
    bool p = x->manifest != NULL, q = y->manifest != NULL;
    if (p != q) return p ? -1 : 1;
    if (p && x->number != y->number) return x->number > y->number ? -1 : 1;
    return x->step != y->step ? (x->step > y->step ? -1 : 1) : 0;
}

/* Each whose manifest does not read goes before the first of a lower step whose does. */
static void merge(const gw_ckpt_found *sorted, int n, gw_ckpt_found *out) {
    int known = 0, at = 0;
    while (known < n && sorted[known].manifest) known++;
    int other = known;
    for (int i = 0; i < known; i++) {
        while (other < n && sorted[other].step > sorted[i].step) out[at++] = sorted[other++];
        out[at++] = sorted[i];
    }
    while (other < n) out[at++] = sorted[other++];
}

/* Sizes of the files that were seen, by "FOLDER/NAME". */
typedef struct sizes {
    gw_smap at;
    GW_VEC(int64_t) bytes;
} sizes;

static void take_sizes(sizes *s, const char *path, const gw_place_list *in, gw_arena *a) {
    for (int64_t i = 0; i < in->n; i++) {
        if (in->items[i].kind != GW_PLACE_FILE) continue;
        const char *name = gw_arena_printf(a, "%s/%s", name_of(path), in->items[i].name);
        gw_smap_put_c(&s->at, name, (uint32_t)s->bytes.count);
        gw_vec_push(&s->bytes, in->items[i].bytes);
    }
}

/* Of a folder without a manifest: are all data files finished, and are there any? */
static bool is_bare(const gw_place_list *in) {
    bool finished, all = true;
    int64_t n = 0;
    for (int64_t i = 0; i < in->n; i++) {
        if (is_temporary(in->items[i].name, "manifest.json")) all = false;
        if (!is_data(in->items[i].name, &finished)) continue;
        all = all && finished;
        n++;
    }
    return all && n > 0;
}

/* Files before the manifest: what it names and is missing then is looked at again (find_lost). */
static gw_ckpt_found look_at(const gw_place *p, const char *path, int64_t step, sizes *s,
                             gw_arena *a) {
    gw_ckpt_found f = {.step = step, .path = path, .state = GW_CKPT_TORN};
    gw_place_entry e;
    gw_place_list in = {0};
    gw_diags quiet;
    gw_ckpt_manifest *m = NULL;
    const char *manifest = gw_path_join(a, path, "manifest.json");
    bool seen = gw_place_list_of(p, path, a, &in, NULL) == GW_OK;
    if (seen) take_sizes(s, path, &in, a);
    if (gw_place_look(p, manifest, &e, NULL) == GW_OK && e.kind == GW_PLACE_ABSENT) {
        f.bare = seen && is_bare(&in);
        return f;
    }
    gw_diags_init(&quiet);
    gw_status st = gw_checkpoint_read(path, a, &m, &quiet);
    if (st == GW_OK) {
        f.state = GW_CKPT_COMPLETE;
        f.number = m->meta.number;
        f.manifest = m;
    } else {
        f.state = GW_CKPT_DAMAGED;
        f.newer = st == GW_ERR_UNSUPPORTED;
        f.why = gw_arena_printf(a, "%s: %s", manifest, gw_diags_first_error(&quiet));
    }
    gw_diags_release(&quiet);
    return f;
}

/* Is a file of m there with its size? Says in *why what is wrong. What the listing has not seen is
 * looked for. */
static bool is_there(const gw_place *p, const sizes *s, const gw_ckpt_manifest *m, int file,
                     const char **why, gw_arena *a) {
    const gw_ckpt_file *f = &m->files[file];
    uint32_t at;
    gw_place_entry e;
    const char *folder = f->folder ? f->folder : name_of(m->path);
    if (gw_smap_find_c(&s->at, gw_arena_printf(a, "%s/%s", folder, f->name), &at) &&
        s->bytes.items[at] == f->bytes)
        return true;
    const char *path = gw_checkpoint_file_path(m, file, a);
    /* What cannot be told (a place that does not answer) is no fault of the checkpoint. */
    if (gw_place_look(p, path, &e, NULL) != GW_OK) return true;
    if (e.kind == GW_PLACE_FILE && e.bytes == f->bytes) return true;
    if (e.kind == GW_PLACE_FILE)
        *why = gw_arena_printf(a, "%s has %lld bytes, and was written with %lld", path,
                               (long long)e.bytes, (long long)f->bytes);
    else
        *why = gw_arena_printf(a, "%s %s", path,
                               e.kind == GW_PLACE_ABSENT ? "is missing" : "is no file");
    return false;
}

/* A checkpoint that has lost a file, its own or one that it refers to, is damaged. */
static void find_lost(const gw_place *p, const sizes *s, gw_ckpt_found *f, gw_arena *a) {
    gw_place_entry e;
    const char *why = NULL, *manifest = gw_path_join(a, f->path, "manifest.json");
    for (int i = 0; !why && f->manifest && i < f->manifest->nfiles; i++)
        (void)!is_there(p, s, f->manifest, i, &why, a);
    if (!why) return;
    f->state = GW_CKPT_DAMAGED;
    f->why = why;
    if (gw_place_look(p, manifest, &e, NULL) != GW_OK || e.kind != GW_PLACE_ABSENT) return;
    f->state = GW_CKPT_TORN; /* it was removed meanwhile */
    f->manifest = NULL;
    f->number = 0;
    f->why = NULL;
}

/* Folders without a manifest that others need are no leftovers. */
static void find_held(gw_ckpt_found *f, int n, gw_arena *a) {
    refs r = {0};
    uint32_t by;
    for (int i = n; i-- > 0;)
        if (f[i].manifest) refer(&r, f[i].manifest, i, a);
    for (int i = 0; i < n; i++) {
        if (f[i].state != GW_CKPT_TORN) continue;
        if (!gw_smap_find_c(&r.folders, name_of(f[i].path), &by)) continue;
        f[i].state = GW_CKPT_HELD;
        f[i].why = gw_arena_printf(a, "removed but for files that step %lld refers to",
                                   (long long)f[by].step);
    }
    forget(&r);
}

/* Was a folder of this name moved aside? */
static bool was_moved(const gw_place_list *in, const char *name, gw_arena *a) {
    const char *aside = gw_arena_printf(a, "%s.replaced-", name);
    for (int64_t i = 0; i < in->n; i++)
        if (gw_str_starts(in->items[i].name, aside)) return true;
    return false;
}

/* What is kept whatever is saved, where a file tells. */
static void find_kept(const gw_place *p, const char *home, const gw_place_list *in, gw_arena *a,
                      gw_ckpt_list *out) {
    gw_diags faults;
    bool there = false;
    for (int64_t i = 0; i < in->n; i++)
        there = there || strcmp(in->items[i].name, GW_CKPT_KEPT_FILE) == 0;
    if (!there) return;
    gw_diags_init(&faults);
    if (gw_ckpt_kept_read(p, home, a, &out->kept, &faults) != GW_OK)
        out->kept_fault =
            gw_arena_printf(a, "%s/%s: %s", home, GW_CKPT_KEPT_FILE, gw_diags_first_error(&faults));
    gw_diags_release(&faults);
    for (int i = 0; i < out->n; i++) {
        gw_ckpt_found *f = &out->items[i];
        const char *name = name_of(f->path);
        /* What had the name was moved aside: this is a later commit of the same step. */
        bool another = f->number > out->kept.commits && was_moved(in, name, a);
        f->stays = !another && gw_ckpt_is_kept(&out->kept, f->number, name);
    }
}

static gw_status list_in(const gw_place *p, const char *home, gw_arena *a, gw_ckpt_list *out,
                         gw_diags *dg) {
    gw_place_list in;
    GW_TRY(gw_place_list_of(p, home, a, &in, dg));
    GW_VEC(gw_ckpt_found) found = {0};
    sizes s = {0};
    for (int64_t i = 0; i < in.n; i++) {
        int64_t step = gw_checkpoint_step_of_name(in.items[i].name);
        if (step < 0 || in.items[i].kind != GW_PLACE_FOLDER) continue;
        gw_ckpt_found one = look_at(p, gw_path_join(a, home, in.items[i].name), step, &s, a);
        gw_vec_push(&found, one);
    }
    for (int64_t i = 0; i < found.count; i++) find_lost(p, &s, &found.items[i], a);
    gw_smap_release(&s.at);
    gw_vec_release(&s.bytes);
    out->n = (int)found.count;
    if (out->n > 0) {
        find_held(found.items, out->n, a);
        qsort(found.items, (size_t)found.count, sizeof *found.items, newest_first);
        out->items = gw_arena_new(a, gw_ckpt_found, found.count);
        merge(found.items, out->n, out->items);
    }
    find_kept(p, home, &in, a, out);
    gw_vec_release(&found);
    return GW_OK;
}

gw_status gw_checkpoint_list(const char *run_dir, gw_arena *a, gw_ckpt_list *out, gw_diags *dg) {
    gw_place p;
    const char *home = gw_checkpoint_home(run_dir, a);
    *out = (gw_ckpt_list){0};
    gw_status st = gw_place_open(&p, home, dg);
    if (st == GW_OK) st = list_in(&p, home, a, out, dg);
    gw_place_close(&p);
    return st;
}

// ------------------------------------------------------------------ what was moved aside

/* "step-00000100.replaced-2" -> 100, and the name before the dot; -1 for any other name. */
static int64_t replaced_step(const char *name, const char **base, gw_arena *mem) {
    const char *dot = strstr(name, ".replaced-");
    int64_t n;
    if (!dot || !gw_parse_i64(dot + strlen(".replaced-"), &n)) return -1;
    *base = gw_arena_strndup(mem, name, (size_t)(dot - name));
    return gw_checkpoint_step_of_name(*base);
}

static gw_status list_replaced(const gw_place *p, const char *home, gw_arena *a,
                               const gw_ckpt_kept *kept, gw_ckpt_list *out, gw_diags *dg) {
    gw_place_list in;
    const char *base;
    GW_TRY(gw_place_list_of(p, home, a, &in, dg));
    sizes s = {0};
    out->items = gw_arena_new(a, gw_ckpt_found, in.n + 1);
    for (int64_t i = 0; i < in.n; i++) {
        const char *name = in.items[i].name;
        int64_t step = replaced_step(name, &base, a);
        if (step < 0 || in.items[i].kind != GW_PLACE_FOLDER) continue;
        gw_ckpt_found *f = &out->items[out->n++];
        *f = look_at(p, gw_path_join(a, home, name), step, &s, a);
        find_lost(p, &s, f, a);
        f->stays = gw_ckpt_is_kept(kept, f->number, name);
    }
    gw_smap_release(&s.at);
    gw_vec_release(&s.bytes);
    qsort(out->items, (size_t)out->n, sizeof *out->items, newest_first);
    return GW_OK;
}

gw_status gw_checkpoint_list_replaced(const char *run_dir, gw_arena *a, const gw_ckpt_kept *kept,
                                      gw_ckpt_list *out, gw_diags *dg) {
    gw_place p;
    const char *home = gw_checkpoint_home(run_dir, a);
    *out = (gw_ckpt_list){0};
    gw_status st = gw_place_open(&p, home, dg);
    if (st == GW_OK) st = list_replaced(&p, home, a, kept, out, dg);
    gw_place_close(&p);
    return st;
}

// ------------------------------------------------------------------ removing

typedef struct pruning {
    gw_place place;
    const char *home;
    refs needed;
    gw_arena mem;
    gw_diags *dg;
} pruning;

/* A complete one: the manifest first. */
static gw_status remove_one(pruning *x, const char *path, const gw_ckpt_manifest *m) {
    gw_place_entry e;
    GW_TRY(gw_place_look(&x->place, path, &e, x->dg));
    if (e.link) {
        gw_log_warn("%s is a link and stays: what it leads to was not put there by this run", path);
        return GW_OK;
    }
    GW_TRY(gw_place_remove(&x->place, gw_path_join(&x->mem, path, "manifest.json"), x->dg));
    GW_TRY(gw_place_sync(&x->place, path, x->dg));
    for (int i = 0; i < m->nfiles; i++)
        if (!m->files[i].folder && !is_needed(&x->needed, path, m->files[i].name, &x->mem))
            (void)!gw_place_remove(&x->place, gw_path_join(&x->mem, path, m->files[i].name), NULL);
    /* Stays when something that is not ours, or is needed, stands in it. */
    (void)!gw_place_remove_folder(&x->place, path, NULL);
    return GW_OK;
}

/* A folder without a manifest in which nothing but ours stands. A failure is no harm: it stays. */
static void remove_torn(pruning *x, const char *path, bool held) {
    gw_place_list in;
    gw_place_entry e;
    bool only_ours =
        gw_place_look(&x->place, path, &e, NULL) == GW_OK && e.kind == GW_PLACE_FOLDER && !e.link;
    if (!only_ours || gw_place_list_of(&x->place, path, &x->mem, &in, NULL) != GW_OK) return;
    for (int64_t i = 0; i < in.n; i++)
        only_ours = only_ours && is_ours(in.items[i].name) && in.items[i].kind == GW_PLACE_FILE &&
                    !in.items[i].link;
    int64_t left = 0;
    for (int64_t i = 0; only_ours && i < in.n; i++) {
        bool needed = is_needed(&x->needed, path, in.items[i].name, &x->mem);
        left += needed;
        if (needed) continue;
        (void)!gw_place_remove(&x->place, gw_path_join(&x->mem, path, in.items[i].name), NULL);
    }
    if (!only_ours || left > 0) return;
    (void)!gw_place_remove_folder(&x->place, path, NULL);
    gw_log_info("removed %s, %s", path,
                held ? "of which nothing is referred to any more"
                     : "the leftover of a save that did not finish");
}

/* Removes what was moved aside from steps before `oldest`, where it reads as a checkpoint of its
 * step or has no manifest, and nobody refers to a folder that had its name. */
static void remove_replaced(pruning *x, const gw_ckpt_kept *kept, int64_t oldest) {
    gw_place_list in;
    if (gw_place_list_of(&x->place, x->home, &x->mem, &in, NULL) != GW_OK) return;
    for (int64_t i = 0; i < in.n; i++) {
        gw_ckpt_manifest *m = NULL;
        gw_place_entry e;
        uint32_t by;
        const char *base = NULL, *path = gw_path_join(&x->mem, x->home, in.items[i].name);
        int64_t step = replaced_step(in.items[i].name, &base, &x->mem);
        if (step < 0 || step >= oldest || gw_smap_find_c(&x->needed.folders, base, &by)) continue;
        if (gw_checkpoint_read(path, &x->mem, &m, NULL) == GW_OK) {
            bool stays = gw_ckpt_is_kept(kept, m->meta.number, in.items[i].name);
            if (m->meta.step == step && !stays) (void)!remove_one(x, path, m);
        } else if (!gw_ckpt_is_kept(kept, 0, in.items[i].name) &&
                   gw_place_look(&x->place, gw_path_join(&x->mem, path, "manifest.json"), &e,
                                 NULL) == GW_OK &&
                   e.kind == GW_PLACE_ABSENT) {
            gw_place_list files;
            bool any =
                gw_place_list_of(&x->place, path, &x->mem, &files, NULL) == GW_OK && files.n > 0;
            if (any) remove_torn(x, path, true);
        }
    }
}

static bool reads_all(const gw_ckpt_list *list) {
    if (list->kept_fault) {
        gw_log_warn("no checkpoint is removed: which must stay is not known (%s)",
                    list->kept_fault);
        return false;
    }
    for (int i = 0; i < list->n; i++) {
        if (!list->items[i].newer) continue;
        gw_log_warn("no checkpoint is removed: what %s refers to is not known (%s)",
                    list->items[i].path, list->items[i].why);
        return false;
    }
    return true;
}

static gw_status prune(pruning *x, const gw_ckpt_list *list, int64_t keep_last, int64_t keep_every,
                       int64_t busy) {
    int64_t seen = 0, oldest = 0, newest = -1;
    bool *kept = gw_arena_new(&x->mem, bool, list->n + 1);
    for (int i = 0; i < list->n; i++) {
        const gw_ckpt_found *f = &list->items[i];
        if (f->state == GW_CKPT_DAMAGED && f->manifest) refer(&x->needed, f->manifest, i, &x->mem);
        if (f->state != GW_CKPT_COMPLETE) continue;
        kept[i] = f->stays;
        if (!f->stays) {
            newest = GW_MAX(newest, f->step);
            if (++seen == keep_last) oldest = f->step;
            kept[i] = keep_last == 0 || seen <= keep_last ||
                      (keep_every > 0 && f->step % keep_every == 0) || f->step == busy;
        }
        if (kept[i]) refer(&x->needed, f->manifest, i, &x->mem);
    }
    for (int i = 0; i < list->n; i++)
        if (list->items[i].state == GW_CKPT_COMPLETE && !kept[i])
            GW_TRY(remove_one(x, list->items[i].path, list->items[i].manifest));
    for (int i = 0; i < list->n; i++) {
        const gw_ckpt_found *f = &list->items[i];
        bool held = f->state == GW_CKPT_HELD;
        bool old = f->step < newest && f->step != busy && !f->stays;
        if ((held || f->state == GW_CKPT_TORN) && old) remove_torn(x, f->path, held);
    }
    if (oldest > 0) remove_replaced(x, &list->kept, oldest);
    return GW_OK;
}

gw_status gw_checkpoint_prune(const char *run_dir, int64_t keep_last, int64_t keep_every,
                              int64_t busy, gw_diags *dg) {
    pruning x = {.dg = dg};
    gw_ckpt_list list;
    x.home = gw_checkpoint_home(run_dir, &x.mem);
    gw_status st = gw_checkpoint_list(run_dir, &x.mem, &list, dg);
    if (st == GW_OK) st = gw_place_open(&x.place, x.home, dg);
    if (st == GW_OK && reads_all(&list)) st = prune(&x, &list, keep_last, keep_every, busy);
    gw_place_close(&x.place);
    forget(&x.needed);
    gw_arena_release(&x.mem);
    return st;
}
