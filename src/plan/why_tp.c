// SPDX-License-Identifier: Apache-2.0
// Why tensor parallelism stops.
//
// Two reasons, and both are in the program. A block's activations are summed or gathered over all
// t ranks four times (Shoeybi et al. 2019; as reduce-scatters and all-gathers under sequence
// parallelism, Korthikanti et al. 2022): 2(t-1)/t of them leave a rank each time, a figure that
// hardly depends on t, while the work between two exchanges is divided by t. And the products
// themselves shrink: k and v at last to one head, which then is kept by several ranks; columns
// and rows of the feed-forward to slivers whose operands take longer to read than to multiply.
//
// Everything is read from compiled blocks (plan/block.h), one for each t, with and without
// sequence parallelism. Nothing is hidden behind anything here: what is sent is exposed.
#include <string.h>

#include "base/str.h"  /* gw_fmt_bytes, gw_fmt_seconds */
#include "base/term.h" /* gw_table */
#include "plan/why.h"

#define BYTES(x)   gw_fmt_bytes((char[32]){0}, (x))
#define COUNT(x)   gw_fmt_count((char[40]){0}, (x))
#define SECONDS(x) gw_fmt_seconds((char[32]){0}, (x))
#define TEXT(...)  gw_arena_printf(&mem, __VA_ARGS__)

enum { MOST = 64 };

/* ---- figures ---- */

static int degrees(int64_t heads, int64_t also, int64_t out[GW_WHY_DEGREES]) {
    int n = 0;
    for (int64_t t = 1; t <= MOST; t *= 2) {
        int64_t d = heads % t ? t - 1 : 0;
        while (d > t / 2 && heads % d) d--;
        if (d > t / 2 && n < GW_WHY_DEGREES) out[n++] = d;
        if (n < GW_WHY_DEGREES) out[n++] = t;
    }
    int at = 0;
    while (at < n && out[at] < also) at++;
    if (n == GW_WHY_DEGREES || (at < n && out[at] == also)) return n;
    memmove(out + at + 1, out + at, sizeof *out * (size_t)(n - at));
    out[at] = also;
    return n + 1;
}

static int bytes_each(const gw_block_input *in) { return gw_dtype_bits(in->opts->compute) / 8; }

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t empty_ranks(int64_t size, int64_t t) {
    return t - ceil_div(size, ceil_div(size, t));
}

static gw_block_product head_of(const gw_block_input *in, int64_t t) {
    const gw_model *m = in->model;
    gw_block_product p = {
        .name = "head", .m = in->micro_batch * in->seq, .n = ceil_div(m->vocab, t), .k = m->hidden};
    double a = (double)p.m, b = (double)p.n, c = (double)p.k;
    p.flops = 2 * a * b * c;
    p.bytes = (a * b + b * c + a * c) * (double)bytes_each(in);
    return p;
}

gw_status gw_why_tp_init(gw_why_tp *w, const gw_block_input *in, const gw_machine_spec *hw,
                         int64_t also, gw_diags *dg) {
    int64_t t[GW_WHY_DEGREES];
    *w = (gw_why_tp){.in = *in, .stated = hw != NULL};
    if (hw) w->hw = *hw;
    w->n = degrees(in->model->heads, also, t);
    for (int i = 0; i < w->n; i++) {
        gw_why_tp_row *r = &w->rows[i];
        *r = (gw_why_tp_row){.t = t[i],
                             .head = head_of(in, t[i]),
                             .heads_empty = empty_ranks(in->model->heads, t[i])};
        gw_block_layout l = {.tp = t[i], .cp = 1};
        GW_TRY(gw_block_read(&r->plain, in, &l, hw, dg));
        l.sequence_parallel = t[i] > 1;
        GW_TRY(gw_block_read(&r->sequence, in, &l, hw, dg));
    }
    return GW_OK;
}

bool gw_why_links_stated(const gw_machine_spec *hw) {
    bool stated = false;
    for (int i = 0; i < hw->ntiers; i++) stated |= hw->tiers[i].bytes_per_s > 0;
    return stated;
}

double gw_why_tp_exposed(const gw_why_tp *w, const gw_block *b) {
    gw_block_wire sum = gw_block_over_tp(b);
    if (sum.payload_bytes == 0) return 0;
    if (!w->stated || !gw_why_links_stated(&w->hw)) return sum.seconds;
    double link = gw_machine_link(&w->hw, b->layout.tp);
    return link > 0 ? (double)sum.payload_bytes / link : -1;
}

double gw_why_tp_to_6n(const gw_why_tp *w, const gw_why_tp_row *r) {
    const gw_model *m = w->in.model;
    double sent = gw_why_tp_exposed(w, &r->plain) * (double)m->layers;
    double flops = 6 * (double)gw_model_count_active(m) * (double)r->plain.tokens / (double)r->t;
    if (sent < 0 || gw_machine_flops(&w->hw, GW_BF16) <= 0) return -1;
    return sent * gw_machine_flops(&w->hw, GW_BF16) / flops;
}

double gw_why_efficiency(const gw_machine_spec *hw, const gw_block_product *p) {
    double peak = hw->peak[GW_BF16], memory = hw->memory_bytes_per_s;
    if (peak <= 0 || memory <= 0 || p->bytes <= 0) return 0;
    double reached = p->flops / p->bytes * memory / peak;
    return reached < 1 ? reached : 1;
}

double gw_why_tp_copies(const gw_why_tp *w, const gw_why_tp_row *r) {
    int64_t kv = w->in.model->kv_heads, all = r->plain.kv_made * r->t;
    return all > kv ? (double)all / (double)kv : 1;
}

static double work(const gw_block *b) { return b->seconds[0] + b->seconds[1]; }

/* What t ranks reach of t times one rank's speed; negative: not known. */
static double of_ideal(const gw_why_tp *w, const gw_why_tp_row *r) {
    double one = work(&w->rows[0].plain), sent = gw_why_tp_exposed(w, &r->plain);
    if (one <= 0 || sent < 0) return -1;
    return one / ((double)r->t * (work(&r->plain) + sent));
}

/* ---- for people ---- */

void gw_why_print_machine(const gw_block_input *in, const gw_machine_spec *hw, bool stated,
                          FILE *out) {
    gw_str text = {0};
    if (stated) gw_machine_describe(hw, &text);
    if (text.len) fprintf(out, "  %s\n", gw_str_c(&text));
    if (!stated || !gw_why_links_stated(hw))
        fprintf(out, "  seconds of collectives: %s\n",
                in->comm->calibration
                    ? "as calibrated for this machine (layout.calibration)"
                    : "assumed of ranks on one host (--hardware or layout.calibration say)");
    gw_str_release(&text);
}

static void print_rows(const gw_why_tp *w, FILE *out) {
    gw_arena mem = {0};
    gw_table *t = gw_table_new("rrrrrrlrr");
    gw_table_row(t, "t", "sent", "exposed", "computing", "to 6N", "of t-fold", "kv heads", "kept",
                 "kept, sp");
    for (int i = 0; i < w->n; i++) {
        const gw_why_tp_row *r = &w->rows[i];
        double sent = gw_why_tp_exposed(w, &r->plain), ideal = of_ideal(w, r);
        double copies = gw_why_tp_copies(w, r), usual = gw_why_tp_to_6n(w, r);
        gw_table_row(
            t, TEXT("%lld", (long long)r->t), BYTES(gw_block_over_tp(&r->plain).payload_bytes),
            sent < 0 ? "-" : SECONDS(sent), work(&r->plain) > 0 ? SECONDS(work(&r->plain)) : "-",
            usual < 0 ? "-" : TEXT("%.1f %%", 100 * usual),
            ideal < 0 ? "-" : TEXT("%.0f %%", 100 * ideal),
            copies > 1 ? TEXT("%lld, each on %.3g", (long long)r->plain.kv_heads, copies)
                       : TEXT("%lld", (long long)r->plain.kv_heads),
            BYTES(r->plain.saved_bytes), BYTES(r->sequence.saved_bytes));
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
}

static const char *cell(const gw_why_tp *w, const gw_block_product *p, gw_arena *mem) {
    double e = gw_why_efficiency(&w->hw, p);
    if (p->flops <= 0) return "-";
    if (e > 0) return gw_arena_printf(mem, "%.0f%%", 100 * e);
    return gw_arena_printf(mem, "%.0f", p->flops / GW_MAX(p->bytes, 1.0));
}

static const char *shape(const gw_block_product *p, gw_arena *mem) {
    if (p->m == 0) return "by routing";
    return gw_arena_printf(mem, "%lldx%lld", (long long)p->k, (long long)p->n);
}

static const gw_block_product *product(const gw_why_tp_row *r, int i) {
    return i < r->plain.nproducts ? &r->plain.products[i] : &r->head;
}

/* A column for each power of two, and for no more than eight. */
static void print_products(const gw_why_tp *w, FILE *out) {
    gw_arena mem = {0};
    const gw_why_tp_row *cols[GW_WHY_DEGREES];
    int n = 0;
    for (int i = 0; i < w->n && n < 7; i++)
        if ((w->rows[i].t & (w->rows[i].t - 1)) == 0) cols[n++] = &w->rows[i];
    const char *cells[8] = {"", "", "", "", "", "", "", ""};
    for (int c = 0; c < n; c++) cells[c] = TEXT("%lld", (long long)cols[c]->t);
    gw_table *t = gw_table_new("llrrrrrrrr");
    gw_table_row(t, "product", "k x n at 1", cells[0], cells[1], cells[2], cells[3], cells[4],
                 cells[5], cells[6], TEXT("k x n at %lld", (long long)cols[n - 1]->t));
    for (int p = 0; p <= cols[0]->plain.nproducts; p++) {
        for (int c = 0; c < n; c++) cells[c] = cell(w, product(cols[c], p), &mem);
        gw_table_row(t, product(cols[0], p)->name, shape(product(cols[0], p), &mem), cells[0],
                     cells[1], cells[2], cells[3], cells[4], cells[5], cells[6],
                     shape(product(cols[n - 1], p), &mem));
    }
    bool known = w->hw.peak[GW_BF16] > 0 && w->hw.memory_bytes_per_s > 0;
    fprintf(out,
            known
                ? "\n  forward products of a rank, m = %s rows: %% of the peak that memory allows\n"
                : "\n  forward products of a rank, m = %s rows: FLOP for each byte of operands\n",
            COUNT(w->in.micro_batch * w->in.seq));
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
}

/* "2 all-reduces", "1 all-gather". */
static void list_kinds(const gw_block *b, int way, gw_str *out) {
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++) {
        int64_t n = b->tp[way][k].count;
        if (n > 0)
            gw_str_printf(out, "%s%lld %s%s", out->len ? ", " : "", (long long)n,
                          gw_coll_kind_name((gw_coll_kind)k), n == 1 ? "" : "s");
    }
}

static void print_kinds(const gw_block *b, const char *what, FILE *out) {
    gw_str way[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) list_kinds(b, i, &way[i]);
    fprintf(out, "  %s, at t %lld %s a micro-batch:\n    forward %s;\n    backward %s\n", what,
            (long long)b->layout.tp, BYTES(gw_block_over_tp(b).payload_bytes), gw_str_c(&way[0]),
            gw_str_c(&way[1]));
    for (int i = 0; i < 2; i++) gw_str_release(&way[i]);
}

static void print_sent(const gw_why_tp *w, FILE *out) {
    const gw_why_tp_row *r = &w->rows[1];
    const gw_model *m = w->in.model;
    int size = bytes_each(&w->in);
    int64_t each = w->in.micro_batch * w->in.seq * m->hidden * size;
    fprintf(out,
            "  an all-reduce sends 2(t-1)/t x tokens x hidden x bytes =\n"
            "    2(t-1)/t x %s x %s x %d = 2(t-1)/t x %s\n",
            COUNT(w->in.micro_batch * w->in.seq), COUNT(m->hidden), size, BYTES(each));
    print_kinds(&r->plain, "without sequence parallelism", out);
    print_kinds(&r->sequence, "with sequence parallelism", out);
}

/* Lists the degrees that do not divide `size`; the last of them, or 0. */
static int64_t print_indivisible(const gw_why_tp *w, int64_t size, const char *what, FILE *out) {
    int64_t last = 0;
    for (int i = 0; i < w->n; i++) {
        int64_t t = w->rows[i].t;
        if (size % t == 0) continue;
        if (!last) fprintf(out, "  %s %s, uneven at t", COUNT(size), what);
        fprintf(out, " %lld", (long long)t);
        last = t;
    }
    if (last)
        fprintf(out, ": at t %lld at most %s a rank where the mean is %.4g", (long long)last,
                COUNT(ceil_div(size, last)), (double)size / (double)last);
    return last;
}

static void print_uneven(const gw_why_tp *w, FILE *out) {
    int64_t t = print_indivisible(w, w->in.model->heads, "heads", out);
    if (t && empty_ranks(w->in.model->heads, t))
        fprintf(out, ",\n    none on %lld", (long long)empty_ranks(w->in.model->heads, t));
    if (t) fputc('\n', out);
    if (print_indivisible(w, w->in.model->vocab, "rows of vocabulary", out)) fputc('\n', out);
}

static void print_copies(const gw_why_tp *w, FILE *out) {
    bool any = false;
    for (int i = 0; i < w->n; i++) {
        const gw_why_tp_row *r = &w->rows[i];
        double copies = gw_why_tp_copies(w, r);
        if (copies <= 1) continue;
        if (!any)
            fprintf(out, "  kv heads, %lld, are copied at t", (long long)w->in.model->kv_heads);
        fprintf(out, "%s %lld (x %.3g)", any ? "," : "", (long long)r->t, copies);
        any = true;
    }
    if (any)
        fprintf(out, ": these ranks project\n    the same k and v, and sum their gradients\n");
    else
        fprintf(out, "  kv heads are not copied up to t %lld\n", (long long)w->rows[w->n - 1].t);
}

static void print_stops(const gw_why_tp *w, FILE *out) {
    int half = -1, best = 0, longer = -1;
    double least = 0;
    for (int i = 0; i < w->n; i++) {
        double ideal = of_ideal(w, &w->rows[i]), sent = gw_why_tp_exposed(w, &w->rows[i].plain);
        if (ideal < 0) continue;
        double s = work(&w->rows[i].plain) + sent;
        if (i == 0 || s < least) best = i, least = s;
        if (half < 0 && ideal < 0.5) half = i;
        if (longer < 0 && sent > work(&w->rows[i].plain)) longer = i;
    }
    if (work(&w->rows[0].plain) <= 0) {
        fprintf(out,
                "  how long the products take is not known: --hardware states a peak, and says "
                "where it stops\n");
        return;
    }
    if (half >= 0)
        fprintf(out, "  it stops paying at t %lld: %.0f %% of %lld ranks are left\n",
                (long long)w->rows[half].t, 100 * of_ideal(w, &w->rows[half]),
                (long long)w->rows[half].t);
    if (longer >= 0)
        fprintf(out, "  from t %lld on a block sends for longer than it computes: %s against %s\n",
                (long long)w->rows[longer].t, SECONDS(gw_why_tp_exposed(w, &w->rows[longer].plain)),
                SECONDS(work(&w->rows[longer].plain)));
    fprintf(out, "  a block is fastest at t %lld: %s%s\n", (long long)w->rows[best].t,
            SECONDS(least), best == w->n - 1 ? ", the most that was looked at" : "");
}

void gw_why_tp_print(const gw_why_tp *w, FILE *out) {
    fprintf(
        out,
        "\nwhy tensor parallelism stops: one block, forward and backward, on a rank of t; %lld x "
        "%s tokens\n",
        (long long)w->in.micro_batch, COUNT(w->in.seq));
    gw_why_print_machine(&w->in, &w->hw, w->stated, out);
    print_rows(w, out);
    fprintf(out, "  sent: bytes that leave a rank; to 6N: exposed, over 6N tokens / (t F) of all "
                 "layers; of t-fold:\n"
                 "  speed, of t times one rank's; kept: activations for backward; sp: sequence "
                 "parallelism\n");
    print_products(w, out);
    fputc('\n', out);
    print_sent(w, out);
    print_copies(w, out);
    print_uneven(w, out);
    print_stops(w, out);
}

/* ---- for scripts ---- */

static json_t *wire_json(const gw_block *b, bool cp) {
    json_t *a = json_array();
    for (int i = 0; i < 2 * GW_COLL_KIND_COUNT; i++) {
        int way = i / GW_COLL_KIND_COUNT, k = i % GW_COLL_KIND_COUNT;
        const gw_block_wire *w = cp ? &b->cp[way][k] : &b->tp[way][k];
        if (w->count == 0) continue;
        json_array_append_new(a, json_pack("{s:s, s:s, s:I, s:I, s:f}", "direction",
                                           way ? "backward" : "forward", "collective",
                                           gw_coll_kind_name((gw_coll_kind)k), "count",
                                           (json_int_t)w->count, "payload_bytes",
                                           (json_int_t)w->payload_bytes, "seconds", w->seconds));
    }
    return a;
}

json_t *gw_why_block_json(const gw_block *b) {
    json_t *flops = json_pack("{s:f, s:f, s:f, s:f}", "forward", b->flops[0], "backward",
                              b->flops[1], "attention_forward", b->attention_flops[0],
                              "attention_backward", b->attention_flops[1]);
    return json_pack("{s:I, s:o, s:o, s:o, s:f, s:I, s:I, s:I}", "tokens", (json_int_t)b->tokens,
                     "tp", wire_json(b, false), "cp", wire_json(b, true), "flops", flops,
                     "compute_seconds", b->seconds[0] + b->seconds[1], "saved_bytes",
                     (json_int_t)b->saved_bytes, "heads", (json_int_t)b->heads, "kv_heads",
                     (json_int_t)b->kv_heads);
}

static json_t *product_json(const gw_why_tp *w, const gw_block_product *p) {
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f}", "name", p->name, "m", (json_int_t)p->m,
                     "n", (json_int_t)p->n, "k", (json_int_t)p->k, "flops", p->flops,
                     "flops_per_byte", p->flops / GW_MAX(p->bytes, 1.0), "of_peak",
                     gw_why_efficiency(&w->hw, p));
}

json_t *gw_why_tp_json(const gw_why_tp *w) {
    json_t *a = json_array();
    for (int i = 0; i < w->n; i++) {
        const gw_why_tp_row *r = &w->rows[i];
        json_t *products = json_array();
        for (int p = 0; p <= r->plain.nproducts; p++)
            json_array_append_new(products, product_json(w, product(r, p)));
        json_array_append_new(a, json_pack("{s:I, s:f, s:f, s:f, s:I, s:o, s:o, s:o}", "t",
                                           (json_int_t)r->t, "exposed_seconds",
                                           gw_why_tp_exposed(w, &r->plain), "of_ideal",
                                           of_ideal(w, r), "kv_copies", gw_why_tp_copies(w, r),
                                           "empty_ranks", (json_int_t)r->heads_empty, "plain",
                                           gw_why_block_json(&r->plain), "sequence_parallel",
                                           gw_why_block_json(&r->sequence), "products", products));
    }
    return a;
}
