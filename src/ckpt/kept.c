// SPDX-License-Identifier: Apache-2.0
// What stood there before a run began anew, written down where it stands.
//
// --fresh is for the case that checkpoints are there and none of them reads. Somebody may still
// mend one (a manifest comes back from a copy), so what the run does from then on must not cost
// them: neither its own retention, which counts commits, nor that of the run that goes on from it
// later, which knows nothing of how it began. So it is told by a file beside the folders, and
// everything that removes reads it.
//
// Commits are told by their number: numbers only grow, so all up to the newest one of that day are
// meant, whatever their folders are called by now. A folder without a manifest that reads has no
// number and is told by its name, also once its manifest is back.
#include "ckpt/kept.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h" /* gw_clock_iso */
#include "base/io.h"    /* gw_path_join */
#include "base/str.h"   /* gw_str */
#include "ckpt/checkpoint.h"
#include "file/json.h" /* gw_json_parse */

enum { MOST_FOLDERS = 1 << 20 };

gw_status gw_ckpt_kept_parse(const char *text, size_t n, const char *name, gw_arena *a,
                             gw_ckpt_kept *out, gw_diags *dg) {
    json_t *o = NULL;
    *out = (gw_ckpt_kept){0};
    GW_TRY(gw_json_parse(text, n, name, &o, dg));
    const json_t *list = json_object_get(o, "folders");
    size_t count = json_array_size(list);
    bool fits = json_is_object(o) &&
                gw_json_as_i64(json_object_get(o, "commits_up_to"), &out->commits) &&
                out->commits >= 0 && (!list || json_is_array(list)) && count <= MOST_FOLDERS;
    if (fits) out->folders = gw_arena_new(a, const char *, (int64_t)count + 1);
    for (size_t i = 0; fits && i < count; i++) {
        const char *s = json_string_value(json_array_get(list, i));
        fits = s && gw_checkpoint_step_of_name(s) >= 0;
        if (fits) out->folders[out->nfolders++] = gw_arena_strdup(a, s);
    }
    json_decref(o);
    if (fits) return GW_OK;
    *out = (gw_ckpt_kept){0};
    return gw_fail_at(dg, GW_ERR_FORMAT, "checkpoint-kept", (gw_where){.file = name},
                      "it does not say which commits stay: \"commits_up_to\" is a number, "
                      "\"folders\" a list of names such as step-00000100");
}

gw_status gw_ckpt_kept_read(const gw_place *p, const char *home, gw_arena *a, gw_ckpt_kept *out,
                            gw_diags *dg) {
    gw_str text = {0};
    const char *path = gw_path_join(a, home, GW_CKPT_KEPT_FILE);
    *out = (gw_ckpt_kept){0};
    gw_status st = gw_place_read_file(p, path, GW_CKPT_KEPT_BYTES, &text, dg);
    if (st == GW_OK) st = gw_ckpt_kept_parse(gw_str_c(&text), text.len, path, a, out, dg);
    gw_str_release(&text);
    return st;
}

bool gw_ckpt_is_kept(const gw_ckpt_kept *k, int64_t number, const char *folder) {
    if (number > 0 && number <= k->commits) return true;
    const char *aside = strstr(folder, ".replaced-");
    size_t n = aside ? (size_t)(aside - folder) : strlen(folder);
    for (int i = 0; i < k->nfolders; i++)
        if (strlen(k->folders[i]) == n && memcmp(k->folders[i], folder, n) == 0) return true;
    return false;
}

/* ---- writing ---- */

static gw_status write_file(const gw_place *p, const char *path, const json_t *o, gw_diags *dg) {
    gw_place_out f = {0};
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    int64_t n = (int64_t)strlen(text);
    gw_status st = gw_place_create(p, path, n, &f, dg);
    if (st == GW_OK) st = gw_place_append(&f, text, n, dg);
    if (st == GW_OK) st = gw_place_finish(&f, dg);
    gw_place_drop(&f);
    free(text);
    return st;
}

static gw_status add_all(const gw_place *p, const char *home, const gw_ckpt_list *list,
                         gw_arena *mem, gw_diags *dg) {
    gw_ckpt_kept was = list->kept;
    json_t *folders = json_array();
    char now[32];
    for (int i = 0; i < was.nfolders; i++)
        json_array_append_new(folders, json_string(was.folders[i]));
    for (int i = 0; i < list->n; i++) {
        const gw_ckpt_found *f = &list->items[i];
        const char *name = strrchr(f->path, '/') + 1;
        was.commits = GW_MAX(was.commits, f->number);
        if (f->number == 0 && !gw_ckpt_is_kept(&was, 0, name))
            json_array_append_new(folders, json_string(name));
    }
    json_t *o = json_pack(
        "{s:s, s:s, s:I, s:o}", "why",
        "train --fresh began anew beside these; nothing removes them while this file is here",
        "time", gw_clock_iso(now, gw_clock_wall()), "commits_up_to", (json_int_t)was.commits,
        "folders", folders);
    gw_status st = write_file(p, gw_path_join(mem, home, GW_CKPT_KEPT_FILE), o, dg);
    json_decref(o);
    return st;
}

gw_status gw_checkpoint_keep_all(const char *run_dir, gw_diags *dg) {
    gw_arena mem = {0};
    gw_place p = {0};
    gw_ckpt_list list = {0};
    const char *home = gw_checkpoint_home(run_dir, &mem);
    gw_status st = gw_checkpoint_list(run_dir, &mem, &list, dg);
    if (list.n > 0) {
        if (list.kept_fault)
            st = GW_FAIL(dg, GW_ERR_FORMAT, "checkpoint-kept", "%s", list.kept_fault);
        if (st == GW_OK) st = gw_place_open(&p, home, dg);
        if (st == GW_OK) st = add_all(&p, home, &list, &mem, dg);
    }
    gw_place_close(&p);
    gw_arena_release(&mem);
    return st;
}
