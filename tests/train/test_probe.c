// SPDX-License-Identifier: Apache-2.0
// A checkpoint whose bytes are all whole and that is yet another state, or another model, than was
// saved: the probe refuses it.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"    /* gw_log_set_level */
#include "base/rng.h"    /* gw_rng_u64 */
#include "base/str.h"    /* gw_str */
#include "comm/launch.h" /* gw_launch_threads */
#include "file/json.h"   /* gw_json_read_file */
#include "harness.h"
#include "tiny.h"
#include "train/ranks.h" /* gw_ranks_count */

/* Saves after each of two steps, optimizer adamw. */
static void save_two(const char *const *sets) {
    gw_diags dg;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result r;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    tiny_runfile(&rf, false, sets);
    CHECK_OK(gw_session_open(&s, &rf, NULL, NULL, &dg), &dg);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(gw_session_step(&s, &r, &dg), &dg);
        CHECK_OK(gw_session_save(&s, test_tmpdir(), &dg), &dg);
    }
    gw_session_close(&s);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

static gw_status resume(const char *const *sets, gw_diags *dg) {
    gw_runfile rf;
    gw_session s;
    gw_log_set_level(GW_LOG_QUIET);
    tiny_runfile(&rf, false, sets);
    gw_status st = gw_session_open(&s, &rf, test_tmpdir(), NULL, dg);
    if (st == GW_OK) gw_session_close(&s);
    gw_runfile_release(&rf);
    return st;
}

static json_t *read_manifest(int step) {
    char name[80];
    json_t *o = NULL;
    gw_diags dg;
    gw_diags_init(&dg);
    snprintf(name, sizeof name, "checkpoints/step-%08d/manifest.json", step);
    CHECK_OK(gw_json_read_file(test_tmp_path(name), 0, &o, &dg), &dg);
    gw_diags_release(&dg);
    return o;
}

/* Writes it with the hash that belongs to it, as if nothing had happened. */
static void seal(int step, json_t *o) {
    char name[80], hash[33];
    gw_diags dg;
    gw_diags_init(&dg);
    snprintf(name, sizeof name, "checkpoints/step-%08d/manifest.json", step);
    json_object_set_new(o, "manifest_xxh128",
                        json_string(gw_hash128_hex(hash, gw_checkpoint_manifest_hash(o))));
    CHECK_OK(gw_json_write_file(test_tmp_path(name), o, 0, &dg), &dg);
    json_decref(o);
    gw_diags_release(&dg);
}

/* Tensors of step 2 that are (states) or are not the optimizer's are taken from step 1's file. */
static void mix(bool states) {
    json_t *now = read_manifest(2), *old = read_manifest(1);
    json_t *files = json_object_get(now, "files"), *chunks = json_object_get(now, "chunks");
    json_t *file = json_deep_copy(json_array_get(json_object_get(old, "files"), 0));
    json_object_set_new(file, "folder", json_string("step-00000001"));
    json_int_t index = (json_int_t)json_array_size(files);
    json_array_append_new(files, file);
    int moved = 0;
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(now, "tensors"), i, t) {
        const char *name = json_string_value(json_object_get(t, "name"));
        if (!strstr(name, ".weight")) continue; /* states are called after their parameters */
        if ((strcmp(name + strlen(name) - 7, ".weight") != 0) != states) continue;
        size_t list = (size_t)json_integer_value(json_object_get(t, "chunks"));
        json_t *rows = json_deep_copy(json_array_get(chunks, list)), *row;
        size_t k;
        json_array_foreach(rows, k, row) json_array_set_new(row, 0, json_integer(index));
        json_object_set_new(t, "chunks", json_integer((json_int_t)json_array_size(chunks)));
        json_array_append_new(chunks, rows);
        moved++;
    }
    CHECK(moved > 4);
    json_decref(old);
    seal(2, now);
}

TEST(a_checkpoint_holds_its_probe) {
    gw_diags dg;
    gw_diags_init(&dg);
    save_two(NULL);
    json_t *o = read_manifest(2), *probe = json_object_get(o, "probe");
    CHECK_EQ(json_array_size(json_object_get(probe, "logits")), GW_CKPT_SUMS);
    double spread = json_number_value(json_object_get(probe, "spread")), squares = 0;
    for (size_t i = 0; i < GW_CKPT_SUMS; i++) {
        double x = json_number_value(json_array_get(json_object_get(probe, "logits"), i));
        squares += x * x / GW_CKPT_SUMS;
    }
    /* Sums at random signs are as large as the root of the sum of squares; tokens of one model are
     * not independent, so within a factor. */
    CHECK_MSG(sqrt(squares) > spread / 8 && sqrt(squares) < spread * 8, "%g, %g", sqrt(squares),
              spread);
    json_decref(o);
    CHECK_OK(resume(NULL, &dg), &dg);
    gw_diags_release(&dg);
}

TEST(an_optimizer_of_the_step_before_is_refused) {
    gw_diags dg;
    gw_diags_init(&dg);
    save_two(NULL);
    mix(true);
    CHECK_FAILS(resume(NULL, &dg), &dg, "the optimizer's states have another digest");
    gw_diags_release(&dg);
}

TEST(weights_of_the_step_before_are_refused) {
    gw_diags dg;
    gw_diags_init(&dg);
    save_two(NULL);
    mix(false);
    CHECK_FAILS(resume(NULL, &dg), &dg, "the parameters have another digest");
    gw_diags_release(&dg);
}

/* Replaces a text of a member by another. */
static void swap(json_t *o, const char *key, const char *from, const char *to) {
    gw_str s = {0};
    const char *text = json_string_value(json_object_get(o, key)), *at = strstr(text, from);
    CHECK_MSG(at != NULL, "%s has no '%s': %s", key, from, text);
    gw_str_add_n(&s, text, (size_t)(at - text));
    gw_str_add(&s, to);
    gw_str_add(&s, at + strlen(from));
    json_object_set_new(o, key, json_string(gw_str_c(&s)));
    gw_str_release(&s);
}

TEST(another_base_of_the_rotary_frequencies_is_refused) {
    gw_diags dg;
    gw_diags_init(&dg);
    const char *was[] = {"model.rope_theta=10000", NULL}, *is[] = {"model.rope_theta=20000", NULL};
    save_two(was);
    CHECK_OK(resume(was, &dg), &dg);
    json_t *o = read_manifest(2);
    swap(o, "model", "rope_theta=10000", "rope_theta=20000");
    swap(o, "config", "10000", "20000");
    seal(2, o);
    CHECK_FAILS(resume(is, &dg), &dg, "the model has other logits");
    gw_diags_release(&dg);
}

TEST(another_epsilon_of_the_norms_is_refused) {
    gw_diags dg;
    gw_diags_init(&dg);
    const char *was[] = {"model.norm_eps=0.015625", NULL}, *is[] = {"model.norm_eps=0.03125", NULL};
    save_two(was);
    json_t *o = read_manifest(2);
    swap(o, "model", "norm_eps=0.015625", "norm_eps=0.03125");
    swap(o, "config", "0.015625", "0.03125");
    seal(2, o);
    CHECK_FAILS(resume(is, &dg), &dg, "the model has other logits");
    gw_diags_release(&dg);
}

TEST(without_a_probe_nothing_is_compared) {
    gw_diags dg;
    gw_diags_init(&dg);
    const char *off[] = {"checkpoint.probe=false", NULL};
    save_two(off);
    json_t *o = read_manifest(2);
    CHECK(!json_object_get(o, "probe"));
    json_decref(o);
    mix(true);
    CHECK_OK(resume(NULL, &dg), &dg); /* the checkpoint has none */
    gw_diags_release(&dg);
}

/* The digest of a state is that of any other way to hold it. */
TEST(digests_do_not_know_the_layout) {
    enum { ROWS = 37, COLS = 53 };
    float x[ROWS * COLS], part[ROWS * COLS];
    gw_mesh m = {0};
    for (int i = 0; i < ROWS * COLS; i++) x[i] = (float)i * 0.25f;
    gw_ckpt_tensor whole = {
        .name = "w", .dtype = GW_F32, .ndim = 2, .dims = {ROWS, COLS}, .data = x};
    uint64_t want = gw_ckpt_digest(&whole), got = 0, other;
    (void)gw_mesh_add(&m, "dp", 2);
    (void)gw_mesh_add(&m, "tp", 3);
    gw_type t = gw_type_make(GW_F32, "f37 d53");
    t.dims[1].naxes = 1;
    t.dims[1].axes[0] = 1;
    for (int64_t rank = 0; rank < 6; rank++) {
        gw_held w;
        int64_t global, local, count;
        gw_held_begin(&w, &t, &m, rank);
        while (gw_held_next(&w, &global, &local, &count))
            memcpy(part + local, x + global, (size_t)count * sizeof *x);
        gw_ckpt_tensor one = whole;
        one.data = part;
        one.type = &t;
        one.mesh = &m;
        one.rank = rank;
        got += gw_ckpt_digest(&one);
    }
    CHECK(got == want && want != 0);
    x[GW_CKPT_STRIDE * 3] += 1;
    other = gw_ckpt_digest(&whole);
    CHECK(other != want);
    whole.name = "v";
    CHECK(gw_ckpt_digest(&whole) != other);
}

/* ---- one number changed, and every hash made anew ---- */

/* Reads step 2 whole, adds `by` to element `at` of a tensor (or, with `exchange`, swaps the
 * elements [0, at) and [at, 2 at)), and saves it into `dir` as the same step with the same probe.
 */
static void tamper(const char *dir, const char *tensor, int64_t at, double by, bool exchange) {
    gw_arena mem = {0};
    gw_diags dg;
    gw_ckpt_manifest *m = NULL;
    bool found = false;
    gw_diags_init(&dg);
    CHECK_OK(gw_checkpoint_read(test_tmp_path("checkpoints/step-00000002"), &mem, &m, &dg), &dg);
    gw_ckpt_tensor *t = gw_arena_new(&mem, gw_ckpt_tensor, m->ntensors);
    for (int i = 0; i < m->ntensors; i++) {
        const gw_ckpt_entry_tensor *e = &m->tensors[i];
        t[i] = (gw_ckpt_tensor){.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
        memcpy(t[i].dims, e->dims, sizeof t[i].dims);
        t[i].box = gw_box_whole(e->ndim, e->dims);
        t[i].data = gw_arena_alloc(&mem, gw_box_elems(&t[i].box) * 8 + 8);
    }
    CHECK_OK(gw_checkpoint_load(m, t, m->ntensors, NULL, &dg), &dg);
    for (int i = 0; i < m->ntensors; i++) {
        float *x = t[i].data;
        if (strcmp(t[i].name, tensor) != 0) continue;
        found = true;
        CHECK(t[i].dtype == GW_F32 && (exchange ? 2 * at : at + 1) <= gw_box_elems(&t[i].box));
        if (!exchange) x[at] += (float)by;
        for (int64_t k = 0; exchange && k < at; k++) {
            float y = x[k];
            x[k] = x[at + k];
            x[at + k] = y;
        }
    }
    CHECK_MSG(found, "%s", tensor);
    m->meta.number = 0;
    CHECK_OK(gw_checkpoint_save(test_tmp_path(dir), &m->meta, t, m->ntensors, &dg), &dg);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

typedef struct place {
    const char *dir;
    const char *const *sets;
} place;

static gw_status open_rank(gw_comm *c, void *user, gw_diags *dg) {
    const place *p = user;
    gw_runfile rf;
    gw_session s;
    tiny_runfile(&rf, false, p->sets);
    gw_status st = gw_runfile_set_ranks(&rf, gw_ranks_count(c), dg);
    if (st == GW_OK) st = gw_session_open(&s, &rf, p->dir, c, dg);
    if (st == GW_OK) gw_session_close(&s);
    gw_runfile_release(&rf);
    return st;
}

static gw_status resume_in(const char *dir, int ranks, const char *const *sets, gw_diags *dg) {
    char path[1024];
    snprintf(path, sizeof path, "%s", test_tmp_path(dir));
    place p = {path, sets};
    if (ranks == 1) return open_rank(NULL, &p, dg);
    return gw_launch_threads(ranks, 30, open_rank, &p, dg);
}

static void refused(const char *dir, int ranks, const char *const *sets, const char *says) {
    gw_diags dg;
    gw_diags_init(&dg);
    test_note("%s", dir);
    CHECK_FAILS(resume_in(dir, ranks, sets, &dg), &dg, says);
    gw_diags_release(&dg);
}

static void taken(const char *dir, int ranks, const char *const *sets) {
    gw_diags dg;
    gw_diags_init(&dg);
    test_note("%s", dir);
    CHECK_OK(resume_in(dir, ranks, sets, &dg), &dg);
    gw_diags_release(&dg);
}

/* A token that the probe asks: its sequence 0 begins with it. */
static int64_t asked(int64_t vocab) {
    return (int64_t)(gw_rng_u64(gw_rng_key_named(0, "probe"), 0) % (uint64_t)vocab);
}

/* Elements that the digest of parameters does not sample: the logits alone can tell. */
static int64_t unsampled(int64_t at) { return at % GW_CKPT_STRIDE ? at : at + 1; }

enum { HIDDEN = 16, VOCAB = 257 };

/* A thousandth more of one weight. */
TEST(one_weight_of_any_kind_changes_the_logits) {
    static const char *const untied[] = {"model.tie_embeddings=false", NULL};
    const struct {
        const char *tensor;
        int64_t at;
    } parts[] = {
        {"head.weight", 200 * HIDDEN + 3},
        {"head.weight", 1},
        {"embed.weight", asked(VOCAB) * HIDDEN + 5},
        {"norm.weight", 7},
        {"layers.0.attn.norm.weight", 2},
        {"layers.1.mlp.norm.weight", 4},
        {"layers.0.attn.q.weight", 33},
        {"layers.1.attn.o.weight", 40},
        {"layers.1.mlp.down.weight", 100},
    };
    save_two(untied);
    for (size_t i = 0; i < GW_COUNT(parts); i++) {
        char dir[24];
        snprintf(dir, sizeof dir, "bad-%d", (int)i);
        tamper(dir, parts[i].tensor, unsampled(parts[i].at), 1e-3, false);
        refused(dir, 1, untied, "the model has other logits on fixed tokens");
    }
    tamper("good", "norm.weight", 0, 0, false);
    taken("good", 1, untied);
}

TEST(a_bias_changes_the_logits) {
    static const char *const biased[] = {"model.attention_bias=true", NULL};
    save_two(biased);
    tamper("bad", "layers.1.attn.v.bias", 3, 1e-3, false);
    refused("bad", 1, biased, "the model has other logits on fixed tokens");
}

static const char *const experts[] = {"model.family=mixtral", "model.moe.experts=4",
                                      "model.moe.top=2", "model.tie_embeddings=false", NULL};

TEST(a_router_and_experts_that_changed_places_change_the_logits) {
    save_two(experts);
    tamper("router", "layers.0.moe.router.weight", 17, 1e-3, false);
    refused("router", 1, experts, "the model has other logits on fixed tokens");
    tamper("swapped", "layers.1.moe.down.weight", HIDDEN * 32, 0, true);
    refused("swapped", 1, experts, "what was loaded is not what was saved");
    tamper("good", "norm.weight", 0, 0, false);
    taken("good", 1, experts);
}

/* States have no logits; of them a sample is looked at, one element in GW_CKPT_STRIDE. */
TEST(a_sampled_moment_is_told) {
    save_two(NULL);
    tamper("m", "layers.0.attn.q.weight.m", 3 * GW_CKPT_STRIDE, 1e-6, false);
    refused("m", 1, NULL, "the optimizer's states have another digest");
    tamper("v", "layers.1.mlp.up.weight.v", 0, 1e-9, false);
    refused("v", 1, NULL, "the optimizer's states have another digest");
}

/* In another layout and in other numbers sums come out otherwise, and a whole row is seen. */
TEST(another_layout_or_precision_has_a_bound) {
    static const char *const untied[] = {"model.tie_embeddings=false", NULL};
    static const char *const cut[] = {"model.tie_embeddings=false", "layout.tp=2", NULL};
    static const char *const staged[] = {"model.tie_embeddings=false", "layout.pp=2",
                                         "train.accumulate=2", "train.micro_batch=1", NULL};
    static const char *const low[] = {"model.tie_embeddings=false", "precision.compute=bf16",
                                      "layout.tp=2", NULL};
    save_two(untied);
    tamper("good", "norm.weight", 0, 0, false);
    taken("good", 2, cut);
    taken("good", 2, staged);
    taken("good", 2, low);
    tamper("row", "head.weight", unsampled(200 * HIDDEN + 3), 0.01, false);
    refused("row", 2, cut, "those of the ids 200 + 256 k");
    refused("row", 2, staged, "the model has other logits on fixed tokens");
    tamper("norm", "norm.weight", 7, 1, false);
    refused("norm", 2, low, "another layout or precision makes at most");
}
