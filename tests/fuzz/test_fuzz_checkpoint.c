// SPDX-License-Identifier: Apache-2.0
// Manifests that refer to other folders and hold a probe, each damaged and then given the hash that
// belongs to it: so what lies behind that hash is met too.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"  /* gw_str */
#include "ckpt/save.h" /* gw_checkpoint_begin, gw_checkpoint_load */
#include "fuzz.h"
#include "harness.h"

static const char *const words[] = {"folder",
                                    "step-00000006",
                                    "step-00000007",
                                    "..",
                                    "name",
                                    "bytes",
                                    "xxh128",
                                    "probe",
                                    "logits",
                                    "spread",
                                    "weights",
                                    "states",
                                    "bits",
                                    "chunks",
                                    "shape",
                                    "1e999",
                                    "0123456789abcdef",
                                    "-1",
                                    "9007199254740993",
                                    NULL};

enum { FIXED = 40000, MOVING = 600 };

typedef struct state {
    float fixed[FIXED], moving[MOVING];
    gw_ckpt_tensor t[2];
} state;

static state *make(void) {
    state *s = calloc(1, sizeof *s);
    for (int i = 0; i < 2; i++)
        s->t[i] = (gw_ckpt_tensor){.name = i ? "moving" : "fixed",
                                   .dtype = GW_F32,
                                   .ndim = 1,
                                   .dims = {i ? MOVING : FIXED},
                                   .data = i ? s->moving : s->fixed};
    for (int i = 0; i < 2; i++) s->t[i].box = gw_box_whole(1, s->t[i].dims);
    return s;
}

static const char *in_seven(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/checkpoints/step-00000007%s%s", test_tmpdir(), name ? "/" : "",
             name ? name : "");
    return path;
}

static void put(const char *text, size_t n) {
    FILE *f = fopen(in_seven("manifest.json"), "we");
    CHECK(f && fwrite(text, 1, n, f) == n && fclose(f) == 0);
}

static gw_status read_sealed(const void *bytes, size_t n, gw_diags *dg) {
    json_t *o = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, NULL);
    char hash[33];
    if (json_is_object(o)) {
        json_object_set_new(o, "manifest_xxh128",
                            json_string(gw_hash128_hex(hash, gw_checkpoint_manifest_hash(o))));
        char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
        put(text, strlen(text));
        free(text);
    } else {
        put(bytes, n);
    }
    json_decref(o);
    gw_arena mem = {0};
    gw_ckpt_manifest *m = NULL;
    gw_status st = gw_checkpoint_read(in_seven(NULL), &mem, &m, dg);
    if (st == GW_OK) {
        state *s = make();
        int64_t faults;
        st = gw_checkpoint_load(m, s->t, 2, NULL, dg);
        (void)!gw_checkpoint_verify(m, &faults, dg);
        free(s);
    }
    gw_arena_release(&mem);
    return st;
}

static void run_manifest(int64_t rounds) {
    fuzz f = {.name = "manifest_of_references", .target = read_sealed, .words = words};
    gw_diags dg;
    gw_diags_init(&dg);
    state *s = make();
    gw_ckpt_keep *keep = gw_ckpt_keep_new();
    for (int step = 6; step <= 7; step++) {
        gw_ckpt_meta meta = {.step = step, .batch = step, .loss_scale = 1};
        meta.probe = (gw_ckpt_probe){.taken = true,
                                     .weights = 1,
                                     .states = 2,
                                     .sums = GW_CKPT_SUMS,
                                     .sum = {5.5, 6.25},
                                     .spread = 3,
                                     .bits = "x"};
        gw_ckpt_options o = {.run_dir = test_tmpdir(), .keep = keep, .references = true};
        gw_ckpt_save *save;
        s->moving[0] = (float)step;
        CHECK_OK(gw_checkpoint_begin(&save, &o, &meta, s->t, 2, &dg), &dg);
        CHECK_OK(gw_checkpoint_end(save, NULL, &dg), &dg);
    }
    gw_ckpt_keep_free(keep);
    free(s);
    gw_diags_release(&dg);
    gw_str text = {0};
    FILE *file = fopen(in_seven("manifest.json"), "re");
    char buf[4096];
    for (size_t k; file && (k = fread(buf, 1, sizeof buf, file)) > 0;) gw_str_add_n(&text, buf, k);
    CHECK(file && fclose(file) == 0 && strstr(gw_str_c(&text), "step-00000006"));
    fuzz_seed(&f, gw_str_c(&text), text.len);
    gw_str_release(&text);
    fuzz_run(&f, rounds);
}

TEST(fuzz_manifest_of_references) { run_manifest(600); }
TEST_LONG(fuzz_manifest_of_references_long) { run_manifest(30000); }
