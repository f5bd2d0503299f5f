// SPDX-License-Identifier: Apache-2.0
// A checkpoint whose bytes are all whole and that is yet another state, or another model, than was
// saved: the probe refuses it.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"  /* gw_log_set_level */
#include "base/str.h"  /* gw_str */
#include "file/json.h" /* gw_json_read_file */
#include "harness.h"
#include "tiny.h"

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
    CHECK_EQ(json_array_size(json_object_get(probe, "losses")), GW_CKPT_LOSSES);
    double loss = json_number_value(json_array_get(json_object_get(probe, "losses"), 0));
    CHECK_MSG(loss > 3 && loss < 8, "%g", loss); /* near log of a vocabulary of bytes */
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
    CHECK_FAILS(resume(is, &dg), &dg, "the model has a loss of");
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
    CHECK_FAILS(resume(is, &dg), &dg, "the model has a loss of");
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
