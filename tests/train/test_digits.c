// SPDX-License-Identifier: Apache-2.0
// A residual net learns real images: the handwritten digits of scikit-learn's package.
//
// The data (UCI's "Optical recognition of handwritten digits", 1,797 images of 8 x 8 in 17 shades)
// comes with Debian's python3-sklearn; GW_DIGITS names the file where it lies elsewhere. Without it
// the test is skipped. Every fifth image is held out. Nothing of it is stored here.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "base/io.h"       /* gw_file_write_atomic, gw_path_exists */
#include "base/log.h"      /* gw_log_set_level */
#include "base/str.h"      /* gw_str */
#include "comm/launch.h"   /* gw_launch_threads */
#include "data/images.h"   /* gw_images */
#include "ops/ops.h"       /* gw_ops_table */
#include "pass/pass.h"     /* gw_compile */
#include "run/exec.h"      /* gw_exec */
#include "train/buffers.h" /* gw_buffers_init */
#include "train/loop.h"    /* gw_train_run */
#include "train/weights.h" /* gw_weights_init */

static const char *const usual =
    "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz";

static void begin_idx(gw_str *s, int ndim, int64_t n) {
    const int64_t dims[3] = {n, 8, 8};
    const char head[4] = {0, 0, 8, (char)ndim};
    gw_str_add_n(s, head, 4);
    for (int i = 0; i < ndim; i++) {
        const char d[4] = {0, 0, (char)(dims[i] >> 8), (char)(dims[i] & 0xff)};
        gw_str_add_n(s, d, 4);
    }
}

typedef struct digits {
    gw_str images[2], labels[2]; /* training, held out: without headers */
    int64_t n[2];
} digits;

static void add_line(digits *d, char *line, int64_t number) {
    int part = number % 5 == 4;
    char *at = line;
    for (int k = 0; k < 65; k++) {
        long v = strtol(at, &at, 10);
        CHECK(k == 64 ? v >= 0 && v < 10 : v >= 0 && v <= 16);
        char byte = (char)(k == 64 ? v : v * 255 / 16);
        gw_str_add_n(k == 64 ? &d->labels[part] : &d->images[part], &byte, 1);
        if (*at == ',') at++;
    }
    d->n[part]++;
}

/* Writes the data set as IDX files: train.images, train.labels, held.images, held.labels. */
static void write_digits(const char *path) {
    static const char *const names[2] = {"train", "held"};
    char command[700], line[1024], name[32];
    snprintf(command, sizeof command, "gzip -dc '%s'", path);
    FILE *f = popen(command, "r");
    CHECK(f != NULL);
    digits d = {0};
    for (int64_t i = 0; fgets(line, sizeof line, f); i++) add_line(&d, line, i);
    CHECK_EQ(pclose(f), 0);
    CHECK_EQ(d.n[0] + d.n[1], 1797);
    for (int p = 0; p < 2; p++)
        for (int is_label = 0; is_label < 2; is_label++) {
            gw_str *body = is_label ? &d.labels[p] : &d.images[p], file = {0};
            begin_idx(&file, is_label ? 1 : 3, d.n[p]);
            gw_str_add_n(&file, gw_str_c(body), body->len);
            snprintf(name, sizeof name, "%s.%s", names[p], is_label ? "labels" : "images");
            CHECK_OK(
                gw_file_write_atomic(test_tmp_path(name), gw_str_c(&file), (int64_t)file.len, NULL),
                NULL);
            gw_str_release(&file);
            gw_str_release(body);
        }
}

static gw_images *open_digits(const char *name, gw_diags *dg) {
    char images[40], labels[40];
    snprintf(images, sizeof images, "%s.images", name);
    snprintf(labels, sizeof labels, "%s.labels", name);
    gw_images *d = NULL;
    CHECK_OK(gw_images_open(test_tmp_path(images), test_tmp_path(labels), &d, dg), dg);
    return d;
}

enum { BATCH = 32, SIDE = 32 };

typedef struct learner {
    gw_diags dg;
    gw_arena mem;
    gw_model m;
    gw_param *params;
    gw_param_info *infos;
    int n;
    gw_exec *train, *held;
} learner;

static gw_exec *program(learner *l, bool train, gw_exec *from) {
    gw_machine machine = gw_machine_this(2);
    gw_compile_opts o = {.train = train,
                         .micro_batches = 1,
                         .compute = GW_F32,
                         .gradients = GW_F32,
                         .master = GW_F32,
                         .moments = GW_F32,
                         .params = l->infos,
                         .nparams = l->n,
                         .workspace = gw_exec_workspace,
                         .workspace_user = &machine,
                         .optim = {.kind = GW_OPTIM_SGD, .momentum = 0.9, .decay = 5e-4}};
    gw_build_opts b = {.mode = train ? GW_BUILD_LOSS : GW_BUILD_LOGITS,
                       .batch = BATCH,
                       .compute = GW_F32,
                       .training = train};
    gw_graph g;
    gw_exec *x = NULL;
    gw_graph_init(&g, gw_ops_table());
    CHECK_OK(gw_model_build(&g, &l->m, &b, &l->dg), &l->dg);
    CHECK_OK(gw_compile(&g, &o, NULL, NULL, &l->dg), &l->dg);
    CHECK_OK(gw_exec_new(&x, &g, &(gw_exec_opts){.machine = machine, .params_from = from}, &l->dg),
             &l->dg);
    gw_graph_release(&g);
    return x;
}

static void learner_init(learner *l) {
    memset(l, 0, sizeof *l);
    gw_diags_init(&l->dg);
    CHECK(gw_model_preset("resnet18", &l->m));
    l->m.resnet.width = 16; /* a sixteenth of the parameters */
    l->m.resnet.image = SIDE;
    l->m.resnet.channels = 1;
    l->m.resnet.classes = 10;
    gw_model_params(&l->m, &l->mem, &l->params, &l->n);
    l->infos = gw_arena_new(&l->mem, gw_param_info, l->n);
    for (int i = 0; i < l->n; i++)
        l->infos[i] = (gw_param_info){
            .name = l->params[i].name, .decay = l->params[i].decay, .hidden = false, .rows = 1};
    l->train = program(l, true, NULL);
    l->held = program(l, false, l->train);
    const gw_graph *g = gw_exec_graph(l->train);
    for (int64_t v = 0; v < g->values.count; v++) /* moments and counters begin at zero */
        if (g->values.items[v].role == GW_ROLE_STATE && g->values.items[v].def == GW_NONE) {
            gw_tensor t = gw_exec_tensor(l->train, (gw_vid)v);
            memset(t.data, 0, (size_t)(t.elems * gw_dtype_bits(t.dtype) / 8));
        }
    gw_weights_init(l->train, l->params, l->n, 1, 2);
    gw_buffers_init(l->train, &l->m);
}

static double step(learner *l, const gw_images *d, const gw_image_view *v, int64_t s, float lr) {
    float *x = gw_mem_alloc(sizeof(float) * BATCH * SIDE * SIDE);
    int32_t y[BATCH];
    float seed = 1.0f / BATCH, one = 1, loss = 0;
    CHECK_OK(gw_images_read(d, v, (s - 1) * BATCH, BATCH, x, y, &l->dg), &l->dg);
    gw_exec_write(l->train, "seed", &seed, sizeof seed);
    gw_exec_write(l->train, "inv_scale", &one, sizeof one);
    gw_exec_write(l->train, "lr", &lr, sizeof lr);
    gw_exec_write(l->train, "step", &s, sizeof s);
    CHECK_OK(gw_exec_run(l->train, GW_SEG_PRE, &l->dg), &l->dg);
    CHECK(gw_exec_write(l->train, "images", x, (int64_t)sizeof(float) * BATCH * SIDE * SIDE));
    CHECK(gw_exec_write(l->train, "labels", y, sizeof y));
    CHECK_OK(gw_exec_run(l->train, GW_SEG_LOOP, &l->dg), &l->dg);
    CHECK(gw_exec_read(l->train, "loss", &loss, sizeof loss));
    CHECK_OK(gw_exec_run(l->train, GW_SEG_POST, &l->dg), &l->dg);
    gw_mem_free(x);
    return (double)loss / BATCH;
}

/* Share of the held-out images whose largest logit is the label's, by running statistics. */
static double accuracy(learner *l, const gw_images *d, const gw_image_view *v) {
    float *x = gw_mem_alloc(sizeof(float) * BATCH * SIDE * SIDE);
    int32_t y[BATCH];
    int64_t right = 0, n = gw_images_count(d);
    CHECK_OK(gw_exec_run(l->held, GW_SEG_PRE, &l->dg), &l->dg);
    for (int64_t at = 0; at < n; at += BATCH) {
        CHECK_OK(gw_images_read(d, v, at, BATCH, x, y, &l->dg), &l->dg);
        CHECK(gw_exec_write(l->held, "images", x, (int64_t)sizeof(float) * BATCH * SIDE * SIDE));
        CHECK_OK(gw_exec_run(l->held, GW_SEG_LOOP, &l->dg), &l->dg);
        gw_tensor z = gw_exec_tensor(l->held, gw_exec_find(l->held, "logits"));
        for (int64_t i = 0; i < BATCH && at + i < n; i++) {
            const float *row = (const float *)z.data + i * 10;
            int best = 0;
            for (int c = 1; c < 10; c++) best = row[c] > row[best] ? c : best;
            right += best == y[i];
        }
    }
    gw_mem_free(x);
    return (double)right / (double)n;
}

/* ---- the same by a run file, on two ranks with synchronised norms ---- */

static gw_status rank_of_run(gw_comm *c, void *user, gw_diags *dg) {
    gw_runfile rf;
    const char *const *paths = user; /* of the set, of the run */
    char text[1600];
    snprintf(text, sizeof text,
             "model: {family: resnet18, width: 16, image: 32, channels: 1, classes: 10, "
             "batchnorm: sync}\n"
             "data: {train: %s/train, valid: %s/held}\n"
             "train: {steps: 90, micro_batch: 16, threads: 1}\n"
             "optimizer: {name: sgd, lr: 0.05, weight_decay: 5e-4, schedule: linear, "
             "warmup_steps: 10, min_lr_ratio: 0, clip_norm: 0}\n",
             paths[0], paths[0]);
    CHECK_OK(gw_runfile_parse(&rf, "digits.yaml", text, (int64_t)strlen(text), NULL, 0, dg), dg);
    CHECK_OK(gw_runfile_set_ranks(&rf, 2, dg), dg);
    gw_train_opts o = {.out_dir = paths[1], .comm = c};
    json_t *summary = NULL;
    gw_status st = gw_train_run(&rf, &o, &summary, dg);
    if (st == GW_OK && gw_comm_rank(c) == 0) {
        double share = json_real_value(json_object_get(summary, "valid_accuracy"));
        test_note("%.1f %% of the held-out images", 100 * share);
        CHECK_EQ(json_integer_value(json_object_get(summary, "images")), 90 * BATCH);
        CHECK_MSG(share > 0.85, "accuracy %.3g", share);
        CHECK(json_is_true(json_object_get(summary, "wire_as_planned")));
    }
    json_decref(summary);
    gw_runfile_release(&rf);
    return st;
}

static void name_as_mnist(const char *dir) {
    static const char *const parts[2] = {"train", "held"};
    static const char *const kinds[2][2] = {{"images", "idx3"}, {"labels", "idx1"}};
    for (int i = 0; i < 4; i++) {
        char from[600], to[600];
        const char *part = parts[i / 2], *const *kind = kinds[i % 2];
        snprintf(from, sizeof from, "%s/%s.%s", dir, part, kind[0]);
        snprintf(to, sizeof to, "%s/%s-%s-%s-ubyte", dir, part, kind[0], kind[1]);
        CHECK(rename(from, to) == 0);
    }
}

TEST_WITHIN(two_ranks_learn_digits_by_a_run_file, 240) {
    const char *path = getenv("GW_DIGITS") ? getenv("GW_DIGITS") : usual;
    static char dir[512], out[512];
    if (!gw_path_exists(path)) SKIP("%s is not there (Debian's python3-sklearn has it)", path);
    gw_log_set_level(GW_LOG_QUIET);
    write_digits(path);
    snprintf(dir, sizeof dir, "%s", test_tmp_path("x"));
    *strrchr(dir, '/') = 0;
    snprintf(out, sizeof out, "%s", test_tmp_path("run"));
    name_as_mnist(dir);
    const char *paths[2] = {dir, out};
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_launch_threads(2, 60, rank_of_run, paths, &dg), &dg);
    gw_diags_release(&dg);
}

TEST_WITHIN(resnet_learns_digits, 240) {
    const char *path = getenv("GW_DIGITS") ? getenv("GW_DIGITS") : usual;
    if (!gw_path_exists(path))
        SKIP("%s is not there (Debian's python3-sklearn has it; GW_DIGITS names another place)",
             path);
    write_digits(path);
    learner l;
    learner_init(&l);
    gw_images *train = open_digits("train", &l.dg), *held = open_digits("held", &l.dg);
    gw_image_view v = {.size = SIDE, .channels = 1, .seed = 1, .shuffle = true};
    v.scale = gw_images_scale(train);
    gw_image_view h = v;
    h.shuffle = false;
    enum { STEPS = 180 }; /* four epochs */
    double first = 0, last = 0;
    for (int64_t s = 1; s <= STEPS; s++) {
        double loss = step(&l, train, &v, s,
                           0.05f * GW_MIN(1.0f, (float)s / 10) * (1 - (float)s / (STEPS + 1)));
        if (s <= 5) first += loss / 5;
        if (s > STEPS - 5) last += loss / 5;
    }
    double share = accuracy(&l, held, &h);
    test_note("loss %.3f to %.3f, %.1f %% of %lld held-out images", first, last, 100 * share,
              (long long)gw_images_count(held));
    CHECK_MSG(last < first / 4, "loss %.3g, from %.3g", last, first);
    CHECK_MSG(share > 0.9, "accuracy %.3g", share);
    gw_exec_free(l.held);
    gw_exec_free(l.train);
    gw_images_free(train);
    gw_images_free(held);
    gw_arena_release(&l.mem);
    gw_diags_release(&l.dg);
}
