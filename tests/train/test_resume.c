// SPDX-License-Identifier: Apache-2.0
// A run that stops and continues is the run that never stopped, bit for bit.
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"           /* gw_path_exists */
#include "base/log.h"          /* gw_log_set_level */
#include "file/json.h"         /* gw_json_read_file */
#include "file/megatron_idx.h" /* gw_midx_writer */
#include "harness.h"
#include "tiny.h"
#include "train/session.h"

static void open_session(gw_session *s, gw_runfile *rf, bool gpt2, const char *const *sets,
                         const char *run_dir) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    tiny_runfile(rf, gpt2, sets);
    CHECK_OK(gw_session_open(s, rf, run_dir, NULL, &dg), &dg);
    gw_diags_release(&dg);
}

static void close_session(gw_session *s, gw_runfile *rf) {
    gw_session_close(s);
    gw_runfile_release(rf);
}

/* Updates, skipped batches not counted. */
static double step_n(gw_session *s, int n) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_session_step_result r = {0};
    for (int64_t until = s->step + n; s->step < until;) CHECK_OK(gw_session_step(s, &r, &dg), &dg);
    gw_diags_release(&dg);
    return r.loss;
}

static void check_resume(bool gpt2, const char *const *sets) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_runfile rf;
    gw_session s;
    open_session(&s, &rf, gpt2, sets, NULL);
    gw_hash128 begin = gw_session_hash(&s);
    step_n(&s, 3);
    CHECK_OK(gw_session_save(&s, test_tmpdir(), &dg), &dg);
    gw_hash128 at3 = gw_session_hash(&s);
    double loss = step_n(&s, 3);
    gw_hash128 whole = gw_session_hash(&s);
    close_session(&s, &rf);
    CHECK(begin.lo != at3.lo && at3.lo != whole.lo);

    open_session(&s, &rf, gpt2, sets, test_tmpdir());
    CHECK_EQ(s.resumed, 3);
    gw_hash128 loaded = gw_session_hash(&s);
    CHECK(loaded.lo == at3.lo && loaded.hi == at3.hi);
    double again = step_n(&s, 3);
    gw_hash128 continued = gw_session_hash(&s);
    CHECK(memcmp(&loss, &again, sizeof loss) == 0);
    CHECK(continued.lo == whole.lo && continued.hi == whole.hi);
    close_session(&s, &rf);
    gw_diags_release(&dg);
}

TEST(resume_is_bitwise_fp32) { check_resume(false, NULL); }

TEST(resume_is_bitwise_with_accumulation_and_dropout) {
    const char *sets[] = {"train.accumulate=3", NULL};
    check_resume(true, sets);
}

TEST(resume_is_bitwise_bf16) {
    const char *sets[] = {"precision.compute=bf16", NULL};
    check_resume(false, sets);
}

TEST(resume_is_bitwise_pure_bf16_with_stochastic_rounding) {
    const char *sets[] = {"precision.compute=bf16", "precision.master=none",
                          "precision.gradients=compute", "precision.moments=compute", NULL};
    check_resume(false, sets);
}

TEST(resume_is_bitwise_fp16_while_the_scale_moves) {
    const char *sets[] = {"precision.compute=fp16", "precision.loss_scale_window=2",
                          "train.accumulate=2", NULL};
    check_resume(false, sets);
}

TEST(resume_is_bitwise_muon) {
    const char *sets[] = {"optimizer.name=muon", NULL};
    check_resume(false, sets);
}

TEST(a_skipped_step_advances_only_the_batch) {
    /* A gradient of a tiny model times 2^32 overflows float16 for certain. */
    const char *sets[] = {"precision.compute=fp16", "precision.loss_scale_init=4294967296", NULL};
    gw_runfile rf;
    gw_session s;
    gw_diags dg;
    gw_diags_init(&dg);
    open_session(&s, &rf, false, sets, NULL);
    gw_session_step_result r;
    float *w = s.tensors[0].data, before = w[0];
    CHECK_OK(gw_session_step(&s, &r, &dg), &dg);
    CHECK(r.skipped);
    CHECK(s.step == 0 && s.batch == 1 && s.next_sample == 2 && s.tokens == 0);
    CHECK(memcmp(&before, &w[0], sizeof before) == 0);
    CHECK_NEAR(s.scaler.scale, 2147483648.0, 0);
    int64_t skipped = 1;
    for (; s.step == 0 && skipped < 40; skipped += r.skipped)
        CHECK_OK(gw_session_step(&s, &r, &dg), &dg);
    CHECK_EQ(s.step, 1);
    CHECK_EQ(s.batch, skipped + 1);
    CHECK_NEAR(s.scaler.scale, ldexp(1, 32 - (int)skipped), 0);
    close_session(&s, &rf);
    gw_diags_release(&dg);
}

/* ---- which checkpoint ---- */

static void save_at(gw_session *s, int n) {
    gw_diags dg;
    gw_diags_init(&dg);
    step_n(s, n);
    CHECK_OK(gw_session_save(s, test_tmpdir(), &dg), &dg);
    gw_diags_release(&dg);
}

static void flip_last_byte(const char *path) {
    int fd = open(path, O_RDWR);
    struct stat st;
    char c;
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && pread(fd, &c, 1, st.st_size - 1) == 1);
    c ^= 1;
    CHECK(pwrite(fd, &c, 1, st.st_size - 1) == 1);
    close(fd);
}

TEST(torn_and_damaged_checkpoints_are_passed_over) {
    const char *sets[] = {"checkpoint.keep_last=0", NULL};
    gw_runfile rf;
    gw_session s;
    open_session(&s, &rf, false, sets, NULL);
    save_at(&s, 1);
    gw_hash128 first = gw_session_hash(&s);
    save_at(&s, 1);
    save_at(&s, 1);
    close_session(&s, &rf);
    CHECK(unlink(test_tmp_path("checkpoints/step-00000003/manifest.json")) == 0);
    flip_last_byte(test_tmp_path("checkpoints/step-00000002/rank-00000.safetensors"));
    open_session(&s, &rf, false, sets, test_tmpdir());
    CHECK_EQ(s.resumed, 1);
    gw_hash128 h = gw_session_hash(&s);
    CHECK(h.lo == first.lo && h.hi == first.hi);
    close_session(&s, &rf);

    flip_last_byte(test_tmp_path("checkpoints/step-00000001/rank-00000.safetensors"));
    gw_diags dg;
    gw_diags_init(&dg);
    tiny_runfile(&rf, false, sets);
    CHECK_FAILS(gw_session_open(&s, &rf, test_tmpdir(), NULL, &dg), &dg,
                "no checkpoint that is whole");
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

TEST(a_run_file_of_another_run_is_refused_by_key) {
    gw_runfile rf;
    gw_session s;
    open_session(&s, &rf, false, NULL, NULL);
    save_at(&s, 1);
    close_session(&s, &rf);
    static const struct {
        const char *set, *says;
    } cases[] = {
        {"train.seed=9", "train.seed is 9; the checkpoint's run has 1"},
        {"train.seq_len=16", "train.seq_len"},
        {"train.accumulate=2", "train.global_batch is 4; the checkpoint's run has 2"},
        {"train.global_batch=4", NULL}, /* by name, it is meant */
        {"model.layers=3", "layers=3; the checkpoint's has layers=2"},
        {"model.ffn=64", "ffn=64"},
        {"optimizer.name=sgd", "optimizer.name"},
        {"precision.compute=bf16", NULL},    /* weights become a master */
        {"precision.moments=compute", NULL}, /* float32 compute: the same thing */
        {"train.steps=50", NULL},
        {"optimizer.lr=0.001", NULL},
        {"train.log_every=5", NULL},
        {"checkpoint.every=1", NULL},
        {"recompute.policy=full", NULL},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        const char *sets[] = {cases[i].set, NULL};
        gw_diags dg;
        gw_diags_init(&dg);
        if (strcmp(cases[i].set, "precision.moments=compute") == 0) continue;
        tiny_runfile(&rf, false, sets);
        gw_status st = gw_session_open(&s, &rf, test_tmpdir(), NULL, &dg);
        if (cases[i].says) {
            CHECK_FAILS(st, &dg, cases[i].says);
            CHECK_EQ(st, GW_ERR_CONFIG);
        } else {
            CHECK_OK(st, &dg);
            CHECK_EQ(s.resumed, 1);
            gw_session_close(&s);
        }
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
    }
}

/* Words that only one side has follow from the one that changed. */
TEST(a_word_of_the_model_is_compared_with_that_of_its_key) {
    gw_runfile rf;
    gw_session s;
    open_session(&s, &rf, false, NULL, NULL);
    save_at(&s, 1);
    close_session(&s, &rf);
    const char *sets[] = {"model.rope_scaling.type=linear", "model.rope_scaling.factor=8", NULL};
    gw_diags dg;
    gw_diags_init(&dg);
    tiny_runfile(&rf, false, sets);
    CHECK_FAILS(gw_session_open(&s, &rf, test_tmpdir(), NULL, &dg), &dg,
                "rope_scaling=1; the checkpoint's has rope_scaling=0");
    CHECK_EQ(dg.nerrors, 1);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

/* Keys that only follow from the one that changed are not held against the run as well. */
TEST(a_refused_key_is_named_without_its_followers) {
    gw_runfile rf;
    gw_session s;
    open_session(&s, &rf, false, NULL, NULL);
    save_at(&s, 1);
    close_session(&s, &rf);
    static const char *const cases[] = {"optimizer.name=muon"};
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        const char *sets[] = {cases[i], NULL};
        gw_diags dg;
        gw_diags_init(&dg);
        tiny_runfile(&rf, false, sets);
        CHECK_FAILS(gw_session_open(&s, &rf, test_tmpdir(), NULL, &dg), &dg,
                    "the checkpoint's run has");
        CHECK_EQ(dg.nerrors, 1);
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
    }
}

TEST(a_checkpoint_of_a_newer_format_is_not_passed_over) {
    const char *sets[] = {"checkpoint.keep_last=0", NULL};
    gw_runfile rf;
    gw_session s;
    gw_diags dg;
    gw_diags_init(&dg);
    open_session(&s, &rf, false, sets, NULL);
    save_at(&s, 1);
    save_at(&s, 1);
    close_session(&s, &rf);
    const char *newest = test_tmp_path("checkpoints/step-00000002/manifest.json");
    json_t *o = NULL;
    CHECK_OK(gw_json_read_file(newest, 0, &o, &dg), &dg);
    json_object_set_new(o, "version", json_integer(99));
    CHECK_OK(gw_json_write_file(newest, o, 1, &dg), &dg);
    json_decref(o);
    tiny_runfile(&rf, false, sets);
    gw_status st = gw_session_open(&s, &rf, test_tmpdir(), NULL, &dg);
    CHECK_FAILS(st, &dg, "format version 99");
    CHECK_EQ(st, GW_ERR_UNSUPPORTED);
    CHECK(strstr(dg.last->where.file, "step-00000002"));
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

/* Another token in the middle of a file, all lengths as they were. */
static void change_middle(const char *path) {
    int fd = open(path, O_RDWR);
    struct stat st;
    uint16_t t;
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    off_t at = st.st_size / 4 * 2;
    CHECK(pread(fd, &t, 2, at) == 2);
    t ^= 1;
    CHECK(pwrite(fd, &t, 2, at) == 2);
    close(fd);
}

TEST(replaced_training_data_is_refused_and_validation_data_noted) {
    gw_runfile rf;
    gw_session s;
    gw_diags dg;
    gw_diags_init(&dg);
    open_session(&s, &rf, false, NULL, NULL);
    save_at(&s, 1);
    gw_arena mem = {0};
    gw_ckpt_manifest *m = NULL;
    CHECK_OK(gw_checkpoint_read(test_tmp_path("checkpoints/step-00000001"), &mem, &m, &dg), &dg);
    CHECK_STR(m->meta.valid, s.valid_hash);
    CHECK(strcmp(s.valid_hash, s.data_hash) != 0);
    gw_arena_release(&mem);
    close_session(&s, &rf);
    char was[33];
    change_middle(test_tmp_path("valid.bin"));
    open_session(&s, &rf, false, NULL, test_tmpdir()); /* with a warning */
    CHECK_EQ(s.resumed, 1);
    memcpy(was, s.data_hash, sizeof was);
    close_session(&s, &rf);
    change_middle(test_tmp_path("train.bin"));
    tiny_runfile(&rf, false, NULL);
    CHECK_FAILS(gw_session_open(&s, &rf, test_tmpdir(), NULL, &dg), &dg,
                "training data is another");
    CHECK(strstr(dg.last->detail, was));
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

TEST(a_path_that_no_checkpoint_can_hold_is_refused_before_training) {
    gw_runfile rf;
    gw_session s;
    gw_diags dg;
    gw_diags_init(&dg);
    tiny_runfile(&rf, false, NULL);
    rf.data.valid = "caf\xe9";
    CHECK_FAILS(gw_session_open(&s, &rf, NULL, NULL, &dg), &dg, "data.valid is not UTF-8");
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

TEST(parameters_alone_are_those_of_the_run) {
    const char *sets[] = {"precision.compute=bf16", NULL};
    gw_runfile rf;
    gw_session s;
    gw_diags dg;
    gw_diags_init(&dg);
    open_session(&s, &rf, false, sets, NULL);
    save_at(&s, 2);
    int64_t v = gw_exec_find(s.x, "layers.0.attn.q.weight");
    gw_tensor t = gw_exec_tensor(s.x, (gw_vid)v);
    gw_hash128 was = gw_hash128_of(t.data, (size_t)t.elems * 4);
    close_session(&s, &rf);
    tiny_runfile(&rf, false, sets);
    CHECK_OK(gw_session_open_params(&s, &rf, test_tmpdir(), false, &dg), &dg);
    t = gw_exec_tensor(s.x, gw_exec_find(s.x, "layers.0.attn.q.weight"));
    CHECK_EQ(t.dtype, GW_F32); /* the master, not the compute copy */
    gw_hash128 is = gw_hash128_of(t.data, (size_t)t.elems * 4);
    CHECK(is.lo == was.lo && is.hi == was.hi);
    CHECK_EQ(s.ntensors, s.setup.nparams);
    close_session(&s, &rf);
    gw_diags_release(&dg);
}

static int count_whole(void) {
    gw_arena mem = {0};
    gw_ckpt_list l;
    int n = 0;
    CHECK(gw_checkpoint_list(test_tmpdir(), &mem, &l, NULL) == GW_OK);
    for (int i = 0; i < l.n; i++) n += l.items[i].state == GW_CKPT_COMPLETE;
    gw_arena_release(&mem);
    return n;
}

/* Saves step after step, keeping one, until it is killed. */
static void save_for_ever(const char *const *sets) {
    gw_runfile rf;
    gw_session s;
    open_session(&s, &rf, false, sets, NULL);
    for (;;) save_at(&s, 1);
}

TEST(a_run_is_read_while_it_goes_on_and_prunes) {
    const char *sets[] = {"checkpoint.keep_last=1", "train.steps=1000000", NULL};
    tiny_data();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) save_for_ever(sets);
    gw_log_set_level(GW_LOG_QUIET);
    for (int i = 0; i < 2000 && count_whole() == 0; i++) usleep(5000);
    gw_runfile rf;
    gw_session s;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status st = GW_OK;
    int64_t last = -1;
    for (int i = 0; i < 200 && st == GW_OK; i++) {
        tiny_runfile(&rf, false, sets);
        st = gw_session_open_params(&s, &rf, test_tmpdir(), false, &dg);
        if (st == GW_OK && s.resumed < last) st = GW_ERR_FORMAT;
        if (st == GW_OK) last = s.resumed;
        if (st == GW_OK) gw_session_close(&s);
        gw_runfile_release(&rf);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_OK(st, &dg);
    CHECK(last > 1);
    gw_diags_release(&dg);
}

/* ---- the step loop ---- */

TEST(a_step_allocates_nothing_of_ours) {
    const char *sets[] = {"train.accumulate=2", "train.steps=1000", NULL};
    gw_runfile rf;
    gw_session s;
    open_session(&s, &rf, true, sets, NULL);
    step_n(&s, 2);
    int64_t before = gw_mem_count();
    step_n(&s, 20);
    CHECK_EQ(gw_mem_count(), before);
    close_session(&s, &rf);
}

/* Memory that is this process's own: unlike Pss it does not move when a neighbour that shares our
 * libraries ends. */
static int64_t own_memory(void) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    int64_t kb = 0, n;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %" SCNd64, &n) == 1 ||
            sscanf(line, "RssShmem: %" SCNd64, &n) == 1)
            kb += n;
    if (f) fclose(f);
    return kb * 1024;
}

/* A sanitizer keeps what libraries free in quarantine: its memory grows by design. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

TEST_WITHIN(memory_is_flat_over_a_thousand_steps, 240) {
    if (SANITIZED) SKIP("a sanitizer keeps freed memory");
    const char *sets[] = {"train.steps=2000", "model.layers=1", "train.seq_len=8",
                          "train.micro_batch=1", NULL};
    gw_runfile rf;
    gw_session s;
    open_session(&s, &rf, false, sets, NULL);
    step_n(&s, 100);
    int64_t before = own_memory();
    CHECK(before > 0);
    step_n(&s, 1000);
    int64_t after = own_memory();
    /* A leak of 64 bytes a step would be 64 kB. */
    CHECK_MSG(after - before < 48 * 1024, "grew by %lld bytes", (long long)(after - before));
    close_session(&s, &rf);
}

TEST(validation_changes_nothing_and_is_the_same_each_time) {
    gw_runfile rf;
    gw_session s;
    gw_diags dg;
    gw_diags_init(&dg);
    const char *sets[] = {"train.valid_batches=0", NULL};
    open_session(&s, &rf, true, sets, NULL); /* dropout is off in validation */
    step_n(&s, 2);
    gw_hash128 before = gw_session_hash(&s);
    gw_session_valid_result a, b;
    CHECK_OK(gw_session_validate(&s, &a, &dg), &dg);
    CHECK_OK(gw_session_validate(&s, &b, &dg), &dg);
    gw_hash128 after = gw_session_hash(&s);
    CHECK(before.lo == after.lo && before.hi == after.hi);
    CHECK(memcmp(&a.loss, &b.loss, sizeof a.loss) == 0);
    /* Each token but the first of a document is a target once. */
    CHECK_EQ(a.labels, gw_tokens_count(s.valid.data) - gw_tokens_documents(s.valid.data));
    CHECK(a.loss > 0.5 && a.loss < 6);
    /* Byte tokens: bits a byte = nats / ln 2 x labels / (labels - ends of documents). */
    double per_byte = a.loss / log(2) * (double)a.labels / (double)a.bytes;
    CHECK_NEAR(a.bpb, per_byte, 1e-9);
    CHECK_EQ(a.bytes, a.labels - gw_tokens_documents(s.valid.data));
    step_n(&s, 1);
    close_session(&s, &rf);
    gw_diags_release(&dg);
}

TEST(planned_bytes_are_bound_bytes) {
    const char *sets[] = {"train.accumulate=2", NULL};
    gw_runfile rf;
    gw_session s;
    open_session(&s, &rf, false, sets, NULL);
    CHECK_EQ(gw_session_planned_bytes(&s), gw_session_arena_bytes(&s));
    close_session(&s, &rf);
}

/* Documents of one token each: every label is the first of its document. */
static void write_labelless(const char *name) {
    gw_midx_writer *w = NULL;
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_midx_writer_new(test_tmp_path(name), 257, &w, &dg), &dg);
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t token = i % 256;
        CHECK_OK(gw_midx_writer_doc(w, &token, 1, &dg), &dg);
    }
    CHECK_OK(gw_midx_writer_finish(w, &dg), &dg);
    gw_midx_writer_free(w);
    gw_diags_release(&dg);
}

TEST(without_a_valid_label_there_is_no_loss) {
    gw_runfile rf;
    gw_session s;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    write_labelless("blank");
    tiny_runfile(&rf, false, NULL);
    rf.data.valid = test_tmp_path("blank");
    rf.data.train = (gw_rf_mixture){&(gw_rf_mixture_item){rf.data.valid, 1, 0}, 1};
    CHECK_OK(gw_session_open(&s, &rf, NULL, NULL, &dg), &dg);
    gw_session_step_result r;
    CHECK_OK(gw_session_step(&s, &r, &dg), &dg);
    CHECK(isnan(r.loss) && r.labels == 0 && s.step == 1);
    gw_session_valid_result v;
    CHECK_OK(gw_session_validate(&s, &v, &dg), &dg);
    CHECK(isnan(v.loss) && isnan(v.bpb) && v.labels == 0);
    close_session(&s, &rf);
    gw_diags_release(&dg);
}

TEST(a_fixed_loss_scale_that_overflows_is_said_to_be_fixed) {
    const char *sets[] = {"precision.compute=fp16", "precision.loss_scale=4294967296", NULL};
    gw_runfile rf;
    gw_session s;
    gw_diags dg;
    gw_diags_init(&dg);
    open_session(&s, &rf, false, sets, NULL);
    gw_session_step_result r;
    gw_status st = GW_OK;
    int n = 0;
    for (; st == GW_OK && n < 2 * GW_SCALE_FIXED_PATIENCE; n++) st = gw_session_step(&s, &r, &dg);
    CHECK_EQ(n, GW_SCALE_FIXED_PATIENCE);
    CHECK_FAILS(st, &dg,
                "20 batches in a row overflowed float16 at the fixed precision.loss_scale");
    CHECK(strstr(dg.last->hint, "no checkpoint was saved yet"));
    close_session(&s, &rf);
    gw_diags_release(&dg);
}

TEST(an_infinite_weight_is_named_by_step_and_op) {
    gw_runfile rf;
    gw_session s;
    gw_diags dg;
    gw_diags_init(&dg);
    open_session(&s, &rf, false, NULL, NULL);
    step_n(&s, 2);
    gw_tensor t = gw_exec_tensor(s.x, gw_exec_find(s.x, "layers.1.attn.o.weight"));
    ((float *)t.data)[3] = INFINITY;
    gw_hash128 before = gw_session_hash(&s);
    gw_session_step_result r;
    CHECK_FAILS(gw_session_step(&s, &r, &dg), &dg, "step 3 is not finite");
    CHECK(strstr(dg.last->detail, "layer 1/attn"));
    CHECK(strstr(dg.last->detail, "matmul"));
    gw_hash128 after = gw_session_hash(&s);
    CHECK(before.lo == after.lo && before.hi == after.hi); /* state is that of the step before */
    close_session(&s, &rf);
    gw_diags_release(&dg);
}
