// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl and tb/.
//
// A line is formatted on the stack and leaves in one write(2) on a descriptor opened for appending:
// a crash costs at most the line being written, a reader that follows the file sees whole lines,
// and the step loop allocates nothing. Numbers carry nine significant digits, enough to tell two
// floats apart.
//
// A run that stops between checkpoints has lines of steps that the resumed run takes again. They
// are removed on resume, line by line by their "step", into a new file that replaces the old one.
// TensorBoard's event files are left: a resumed run begins a new one, as that tool expects.
#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"    /* gw_clock_wall */
#include "base/io.h"       /* gw_file_read, gw_fd_write_all */
#include "base/map.h"      /* GW_VEC */
#include "base/str.h"      /* gw_str */
#include "file/json.h"     /* gw_json_parse */
#include "file/tfevents.h" /* gw_tfevents */

enum { LINE = 1024 };

struct gw_metrics {
    gw_arena mem;
    const char *path;
    int fd;
    gw_tfevents *tb;
    gw_str whole; /* a line with more fields than the stack has room for */
};

/* ---- lines ---- */

typedef struct line {
    char text[LINE];
    int n;
} line;

static void put(line *l, const char *fmt, ...) GW_PRINTF(2, 3);
static void put(line *l, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(l->text + l->n, (size_t)(LINE - l->n), fmt, ap);
    va_end(ap);
    if (k > 0) l->n = GW_MIN(l->n + k, LINE - 1);
}

static void put_number(line *l, const char *key, double x) {
    if (isfinite(x))
        put(l, ", \"%s\": %.9g", key, x);
    else
        put(l, ", \"%s\": null", key);
}

static gw_status write_line(gw_metrics *m, line *l, gw_diags *dg) {
    put(l, "}\n");
    return gw_fd_write_all(m->fd, l->text, l->n, m->path, dg);
}

/* The same with further fields. */
static gw_status write_with(gw_metrics *m, line *l, const char *more, gw_diags *dg) {
    if (!more || !more[0]) return write_line(m, l, dg);
    gw_str_clear(&m->whole);
    gw_str_add(&m->whole, l->text);
    gw_str_add(&m->whole, more);
    gw_str_add(&m->whole, "}\n");
    return gw_fd_write_all(m->fd, gw_str_c(&m->whole), (int64_t)m->whole.len, m->path, dg);
}

static gw_status write_scalars(gw_metrics *m, const gw_metrics_step *s, gw_diags *dg) {
    double wall = gw_clock_wall();
    if (isfinite(s->loss))
        GW_TRY(gw_tfevents_scalar(m->tb, "train/loss", s->step, s->loss, wall, dg));
    GW_TRY(gw_tfevents_scalar(m->tb, "train/lr", s->step, s->lr, wall, dg));
    GW_TRY(gw_tfevents_scalar(m->tb, "train/grad_norm", s->step, s->grad_norm, wall, dg));
    const char *speed = s->images ? "speed/images_per_s" : "speed/tokens_per_s";
    GW_TRY(gw_tfevents_scalar(m->tb, speed, s->step, s->tokens_per_s, wall, dg));
    GW_TRY(gw_tfevents_scalar(m->tb, "speed/mfu", s->step, s->mfu, wall, dg));
    if (s->comm_s >= 0)
        GW_TRY(gw_tfevents_scalar(m->tb, "speed/comm_s", s->step, s->comm_s, wall, dg));
    if (s->stages && isfinite(s->bubble))
        GW_TRY(gw_tfevents_scalar(m->tb, "speed/bubble", s->step, s->bubble, wall, dg));
    if (s->loss_scale > 0)
        GW_TRY(gw_tfevents_scalar(m->tb, "train/loss_scale", s->step, s->loss_scale, wall, dg));
    return GW_OK;
}

gw_status gw_metrics_add(gw_metrics *m, const gw_metrics_step *s, gw_diags *dg) {
    line l = {.n = 0};
    put(&l, "{\"step\": %" PRId64, s->step);
    put_number(&l, "loss", s->loss);
    put_number(&l, "lr", s->lr);
    put_number(&l, "grad_norm", s->grad_norm);
    put(&l, ", \"%s\": %" PRId64, s->images ? "images" : "tokens", s->tokens);
    put_number(&l, s->images ? "images_per_s" : "tokens_per_s", s->tokens_per_s);
    put_number(&l, "step_s", s->step_s);
    put_number(&l, "mfu", s->mfu);
    put_number(&l, "data_wait_s", s->data_wait_s);
    if (s->data_parts) {
        put_number(&l, "data_source_s", s->data_source_s);
        put_number(&l, "data_decompress_s", s->data_decompress_s);
        put_number(&l, "data_decode_s", s->data_decode_s);
        put_number(&l, "data_queue_s", s->data_queue_s);
    }
    if (s->quarantined > 0) put(&l, ", \"quarantined\": %" PRId64, s->quarantined);
    if (s->comm_s >= 0) {
        put_number(&l, "comm_s", s->comm_s);
        put_number(&l, "comm_exposed_s", s->comm_exposed_s);
        put_number(&l, "comm_wait_s", s->comm_wait_s);
    }
    if (s->stages) {
        put_number(&l, "bubble", s->bubble);
        put_number(&l, "pp_wait_s", s->pp_wait_s);
    }
    if (s->loss_scale > 0) put_number(&l, "loss_scale", s->loss_scale);
    if (s->skipped > 0) put(&l, ", \"skipped\": %" PRId64, s->skipped);
    GW_TRY(write_with(m, &l, s->more, dg));
    return write_scalars(m, s, dg);
}

gw_status gw_metrics_valid(gw_metrics *m, int64_t step, double loss, double bpb, double accuracy,
                           gw_diags *dg) {
    line l = {.n = 0};
    put(&l, "{\"step\": %" PRId64, step);
    put_number(&l, "valid_loss", loss);
    if (!isnan(bpb)) put_number(&l, "valid_bpb", bpb);
    if (!isnan(accuracy)) put_number(&l, "valid_accuracy", accuracy);
    GW_TRY(write_line(m, &l, dg));
    double wall = gw_clock_wall();
    if (isfinite(loss)) GW_TRY(gw_tfevents_scalar(m->tb, "valid/loss", step, loss, wall, dg));
    if (!isnan(bpb)) GW_TRY(gw_tfevents_scalar(m->tb, "valid/bits_per_byte", step, bpb, wall, dg));
    if (!isnan(accuracy))
        GW_TRY(gw_tfevents_scalar(m->tb, "valid/accuracy", step, accuracy, wall, dg));
    return gw_tfevents_flush(m->tb, dg);
}

/* ---- opening ---- */

gw_status gw_metrics_open(const char *dir, int64_t resumed, gw_metrics **out, gw_diags *dg) {
    gw_metrics *m = gw_mem_zalloc(sizeof *m);
    m->fd = -1;
    m->path = gw_path_join(&m->mem, dir, "metrics.jsonl");
    gw_status st = resumed >= 0 ? gw_metrics_truncate(m->path, resumed, dg) : GW_OK;
    if (st == GW_OK) {
        m->fd = open(m->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (m->fd < 0)
            st = GW_FAIL(dg, GW_ERR_IO, "file-open", "cannot open '%s': %s", m->path,
                         strerror(errno));
    }
    if (st == GW_OK)
        st = gw_tfevents_open(gw_path_join(&m->mem, dir, "tb"), gw_clock_wall(), &m->tb, dg);
    if (st != GW_OK) {
        (void)!gw_metrics_close(m, NULL);
        return st;
    }
    *out = m;
    return GW_OK;
}

gw_status gw_metrics_close(gw_metrics *m, gw_diags *dg) {
    if (!m) return GW_OK;
    gw_status st = gw_tfevents_close(m->tb, dg);
    if (m->fd >= 0 && close(m->fd) != 0 && st == GW_OK)
        st =
            GW_FAIL(dg, GW_ERR_IO, "file-write", "cannot write '%s': %s", m->path, strerror(errno));
    gw_str_release(&m->whole);
    gw_arena_release(&m->mem);
    gw_mem_free(m);
    return st;
}

/* ---- reading ---- */

/* The object of one line, or NULL when it is none of ours. */
static json_t *parse_line(const char *text, size_t n) {
    gw_diags quiet;
    gw_diags_init(&quiet);
    json_t *o = NULL;
    if (gw_json_parse(text, n, "metrics.jsonl", &o, &quiet) != GW_OK) o = NULL;
    gw_diags_release(&quiet);
    if (o && !json_is_integer(json_object_get(o, "step"))) {
        json_decref(o);
        o = NULL;
    }
    return o;
}

static int64_t step_of(const json_t *o) { return json_integer_value(json_object_get(o, "step")); }

gw_status gw_metrics_truncate(const char *path, int64_t last, gw_diags *dg) {
    if (!gw_path_exists(path)) return GW_OK;
    gw_str text = {0}, kept = {0};
    gw_status st = gw_file_read(path, 0, &text, dg);
    const char *at = gw_str_c(&text), *end = at + text.len;
    while (st == GW_OK && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline) break;
        json_t *o = parse_line(at, (size_t)(newline - at));
        if (o && step_of(o) <= last) gw_str_add_n(&kept, at, (size_t)(newline - at) + 1);
        json_decref(o);
        at = newline + 1;
    }
    if (st == GW_OK && kept.len != text.len)
        st = gw_file_write_atomic(path, gw_str_c(&kept), (int64_t)kept.len, dg);
    gw_str_release(&text);
    gw_str_release(&kept);
    return st;
}

static double number(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static gw_metrics_step step_from(const json_t *o) {
    bool images = json_object_get(o, "images") != NULL;
    return (gw_metrics_step){
        .step = step_of(o),
        .loss = number(o, "loss"),
        .lr = number(o, "lr"),
        .grad_norm = number(o, "grad_norm"),
        .images = images,
        .tokens = json_integer_value(json_object_get(o, images ? "images" : "tokens")),
        .tokens_per_s = number(o, images ? "images_per_s" : "tokens_per_s"),
        .step_s = number(o, "step_s"),
        .mfu = number(o, "mfu"),
        .data_wait_s = number(o, "data_wait_s"),
        .data_parts = json_object_get(o, "data_source_s") != NULL,
        .data_source_s = number(o, "data_source_s"),
        .data_decompress_s = number(o, "data_decompress_s"),
        .data_decode_s = number(o, "data_decode_s"),
        .data_queue_s = number(o, "data_queue_s"),
        .quarantined = json_integer_value(json_object_get(o, "quarantined")),
        .comm_s = number(o, "comm_s"),
        .comm_exposed_s = number(o, "comm_exposed_s"),
        .comm_wait_s = number(o, "comm_wait_s"),
        .stages = json_object_get(o, "bubble") != NULL,
        .bubble = number(o, "bubble"),
        .pp_wait_s = number(o, "pp_wait_s")};
}

gw_status gw_metrics_read(const char *path, gw_arena *a, gw_history *out, gw_diags *dg) {
    *out = (gw_history){0};
    if (!gw_path_exists(path)) return GW_OK;
    gw_str text = {0};
    gw_status st = gw_file_read(path, 0, &text, dg);
    int64_t lines = 0;
    for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
    out->steps = gw_arena_new(a, gw_metrics_step, lines + 1);
    out->valid = gw_arena_new(a, struct gw_history_valid, lines + 1);
    const char *at = gw_str_c(&text), *end = at + text.len;
    while (st == GW_OK && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline) break;
        json_t *o = parse_line(at, (size_t)(newline - at));
        if (o && json_object_get(o, "valid_loss"))
            out->valid[out->nvalid++] =
                (struct gw_history_valid){step_of(o), number(o, "valid_loss"),
                                          number(o, "valid_bpb"), number(o, "valid_accuracy")};
        else if (o)
            out->steps[out->nsteps++] = step_from(o);
        json_decref(o);
        at = newline + 1;
    }
    gw_str_release(&text);
    return st;
}
