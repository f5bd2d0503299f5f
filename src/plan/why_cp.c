// SPDX-License-Identifier: Apache-2.0
// When context parallelism pays: what each way of bringing keys to queries sends, and what hides
// it.
//
// All four modes cut the sequence over C ranks and differ in how a query meets keys that lie
// elsewhere (ops/attention_shard.c). A ring sends k and v on while it works on a block, C - 1
// times; forward, a hop is 2 x tokens x kv heads x k elements of s/C tokens, and the work beside it
// is that of s/C queries on s/C keys, half of which a causal mask hides:
//
//     bytes 2 (s/C) g k e / B  <=  FLOPs 2 (s/C)^2 h k / F     where   s/C >= (g/h) e F / B
//
// with e bytes an element, so it hides from a length on that does not depend on C. All-gather and
// Ulysses (an all-to-all to heads and back) hide behind nothing; Ulysses sends least, as long as
// kv heads go around: where they do not, k and v are gathered whole on the rest.
//
// Everything but that condition is read from compiled blocks, one for each degree and mode.
#include <string.h>

#include "base/str.h"  /* gw_fmt_bytes, gw_fmt_seconds */
#include "base/term.h" /* gw_table */
#include "plan/why.h"

#define BYTES(x)   gw_fmt_bytes((char[32]){0}, (x))
#define COUNT(x)   gw_fmt_count((char[40]){0}, (x))
#define SECONDS(x) gw_fmt_seconds((char[32]){0}, (x))
#define TEXT(...)  gw_arena_printf(&mem, __VA_ARGS__)

enum { MOST = 64 };

static const char *const names[GW_WHY_MODES] = {"ring", "ulysses", "hybrid", "allgather"};

/* ---- figures ---- */

/* Ranks over which a hybrid exchanges heads: the run's own, or the most that kv heads go around,
 * and a ring of two at least. */
static int hybrid(const gw_block_input *in, const gw_block_layout *run, int64_t c) {
    if (run->cp == c && run->cp_mode == GW_CP_HYBRID) return run->cp_ulysses;
    for (int64_t u = c / 2; u > 1; u--)
        if (c % u == 0 && in->model->kv_heads % (u * run->tp) == 0) return (int)u;
    return 0;
}

static gw_status read_row(gw_why_cp *w, int64_t c, const gw_block_layout *run,
                          const gw_machine_spec *hw, gw_diags *dg) {
    gw_why_cp_row *r = &w->rows[w->n++];
    *r = (gw_why_cp_row){.c = c, .ulysses = hybrid(&w->in, run, c)};
    for (int mode = 0; mode < GW_WHY_MODES; mode++) {
        gw_block_layout l = {.tp = run->tp,
                             .cp = c,
                             .sequence_parallel = run->sequence_parallel,
                             .cp_mode = (gw_cp_mode)mode,
                             .cp_ulysses = mode == GW_CP_HYBRID ? r->ulysses : 0};
        if (mode == GW_CP_HYBRID && r->ulysses == 0) continue;
        if (mode == GW_CP_ULYSSES && w->in.model->heads % (run->tp * c) != 0) continue;
        GW_TRY(gw_block_read(&r->modes[mode], &w->in, &l, hw, dg));
    }
    return GW_OK;
}

gw_status gw_why_cp_init(gw_why_cp *w, const gw_block_input *in, const gw_machine_spec *hw,
                         const gw_block_layout *run, gw_diags *dg) {
    *w = (gw_why_cp){.in = *in, .stated = hw != NULL, .tp = run->tp};
    if (hw) w->hw = *hw;
    gw_block_layout one = {.tp = run->tp, .cp = 1, .sequence_parallel = run->sequence_parallel};
    GW_TRY(gw_block_read(&w->whole, in, &one, hw, dg));
    bool also = run->cp > 1 && (run->cp & (run->cp - 1)) != 0;
    for (int64_t c = 2; c <= MOST; c *= 2) {
        if (also && run->cp < c) {
            GW_TRY(read_row(w, run->cp, run, hw, dg));
            also = false;
        }
        GW_TRY(read_row(w, c, run, hw, dg));
    }
    return GW_OK;
}

double gw_why_cp_sending(const gw_why_cp *w, const gw_block *b, int way) {
    int64_t bytes = 0;
    double seconds = 0;
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++) {
        bytes += b->cp[way][k].payload_bytes;
        seconds += b->cp[way][k].seconds;
    }
    if (bytes == 0) return 0;
    if (!w->stated || !gw_why_links_stated(&w->hw)) return seconds;
    double link = gw_machine_link(&w->hw, b->layout.cp * b->layout.tp);
    return link > 0 ? (double)bytes / link : -1;
}

/* The ranks of the ring, 1 where there is none. */
static int64_t ring_of(const gw_block_layout *l) {
    if (l->cp_mode == GW_CP_RING) return l->cp;
    return l->cp_mode == GW_CP_HYBRID ? l->cp / GW_MAX(1, l->cp_ulysses) : 1;
}

double gw_why_cp_exposed(const gw_why_cp *w, const gw_block *b) {
    double sum = 0;
    for (int way = 0; way < 2; way++) {
        double all = gw_why_cp_sending(w, b, way);
        if (all < 0) return -1;
        gw_block only = *b;
        for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
            if (k != GW_COLL_SHIFT) only.cp[way][k] = (gw_block_wire){0};
        double hops = gw_why_cp_sending(w, &only, way), n = (double)ring_of(&b->layout);
        /* The last block in forward has nothing left to send beside it. */
        double beside = b->attention_seconds[way] * (way == GW_BLOCK_FORWARD ? (n - 1) / n : 1);
        sum += all - hops + (hops > beside ? hops - beside : 0);
    }
    return sum;
}

double gw_why_cp_hides_from(const gw_why_cp *w, const gw_why_cp_row *r) {
    const gw_block *b = &r->modes[GW_CP_RING];
    double link = gw_machine_link(&w->hw, r->c * w->tp), e = gw_dtype_bits(w->in.opts->compute) / 8;
    if (!w->stated || gw_machine_flops(&w->hw, GW_BF16) <= 0 || link <= 0 || b->heads == 0)
        return 0;
    return (double)b->kv_heads / (double)b->heads * e * gw_machine_flops(&w->hw, GW_BF16) / link;
}

/* ---- for people ---- */

/* A mode that the layout would be refused with was not compiled. */
static bool there(const gw_block *b) { return b->layout.cp > 0; }

static int64_t sent(const gw_block *b) { return gw_block_over_cp(b).payload_bytes; }

static void print_sent(const gw_why_cp *w, FILE *out) {
    gw_arena mem = {0};
    gw_table *t = gw_table_new("rrrrrrlr");
    gw_table_row(t, "cp", "tokens", "ring", "ulysses", "allgather", "hybrid", "", "kept");
    for (int i = 0; i < w->n; i++) {
        const gw_why_cp_row *r = &w->rows[i];
        const gw_block *m = r->modes;
        gw_table_row(t, TEXT("%lld", (long long)r->c), COUNT(m[GW_CP_RING].tokens),
                     BYTES(sent(&m[GW_CP_RING])),
                     there(&m[GW_CP_ULYSSES]) ? BYTES(sent(&m[GW_CP_ULYSSES])) : "-",
                     BYTES(sent(&m[GW_CP_ALLGATHER])),
                     r->ulysses ? BYTES(sent(&m[GW_CP_HYBRID])) : "-",
                     r->ulysses ? TEXT("%d of them ulysses", r->ulysses) : "",
                     BYTES(m[GW_CP_RING].saved_bytes));
    }
    fprintf(out, "  bytes that leave a rank over cp, and what the block keeps for backward\n");
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
}

static const char *seconds(double s, gw_arena *mem) {
    if (s < 0) return "-";
    return gw_arena_printf(mem, "%s", SECONDS(s));
}

static void print_times(const gw_why_cp *w, FILE *out) {
    gw_arena mem = {0};
    bool known = gw_machine_flops(&w->hw, GW_BF16) > 0;
    gw_table *t = gw_table_new("rrrrrrrr");
    gw_table_row(t, "cp", "attention", "block", "ring", "hides from", "ulysses", "allgather",
                 "hybrid");
    for (int i = 0; i < w->n; i++) {
        const gw_why_cp_row *r = &w->rows[i];
        const gw_block *m = r->modes, *g = &m[GW_CP_RING];
        double from = gw_why_cp_hides_from(w, r);
        gw_table_row(
            t, TEXT("%lld", (long long)r->c),
            known ? SECONDS(g->attention_seconds[0] + g->attention_seconds[1]) : "-",
            known ? SECONDS(g->seconds[0] + g->seconds[1]) : "-",
            seconds(gw_why_cp_exposed(w, g), &mem),
            from > 0 ? TEXT("%s%s", COUNT((int64_t)from),
                            from <= (double)g->tokens / (double)w->in.micro_batch ? "" : " no")
                     : "-",
            there(&m[GW_CP_ULYSSES]) ? seconds(gw_why_cp_exposed(w, &m[GW_CP_ULYSSES]), &mem) : "-",
            seconds(gw_why_cp_exposed(w, &m[GW_CP_ALLGATHER]), &mem),
            r->ulysses ? seconds(gw_why_cp_exposed(w, &m[GW_CP_HYBRID]), &mem) : "-");
    }
    fprintf(out, "\n  seconds: computing, and what of the sending nothing hides\n");
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
}

static void print_condition(const gw_why_cp *w, FILE *out) {
    const gw_block *b = &w->rows[0].modes[GW_CP_RING];
    int e = gw_dtype_bits(w->in.opts->compute) / 8;
    fprintf(
        out,
        "  a forward hop is 2 x tokens x kv heads x head size x bytes; it hides behind its block "
        "from\n  s/C = (kv heads / heads) x bytes x F / B tokens on: (%lld / %lld) x %d x F / B",
        (long long)b->kv_heads, (long long)b->heads, e);
    double link = gw_machine_link(&w->hw, 2 * w->tp);
    if (gw_machine_flops(&w->hw, GW_BF16) > 0 && link > 0)
        fprintf(out, " = %s at C 2", COUNT((int64_t)gw_why_cp_hides_from(w, &w->rows[0])));
    fputc('\n', out);
    int last = -1;
    for (int i = 0; i < w->n; i++) {
        double from = gw_why_cp_hides_from(w, &w->rows[i]);
        const gw_block *g = &w->rows[i].modes[GW_CP_RING];
        if (from > 0 && from <= (double)g->tokens / (double)w->in.micro_batch) last = i;
    }
    if (gw_why_cp_hides_from(w, &w->rows[0]) <= 0)
        fprintf(out,
                "  F and B are not known: --hardware states them, and says when the ring hides\n");
    else if (last < 0)
        fprintf(out, "  at this length the ring hides at no cp\n");
    else
        fprintf(out, "  at this length the ring hides up to cp %lld: %s tokens a rank\n",
                (long long)w->rows[last].c,
                COUNT(w->rows[last].modes[GW_CP_RING].tokens / w->in.micro_batch));
    for (int i = 0; i < w->n; i++)
        if (w->whole.kv_heads % w->rows[i].c != 0) {
            fprintf(
                out,
                "  from cp %lld on %lld kv heads do not go around: Ulysses gathers k and v whole "
                "on the rest\n",
                (long long)w->rows[i].c, (long long)w->whole.kv_heads);
            break;
        }
}

void gw_why_cp_print(const gw_why_cp *w, FILE *out) {
    fprintf(
        out,
        "\nwhen context parallelism pays: one block, forward and backward, on a rank of cp; %lld x "
        "%s tokens\n",
        (long long)w->in.micro_batch, COUNT(w->in.seq));
    gw_why_print_machine(&w->in, &w->hw, w->stated, out);
    print_sent(w, out);
    print_times(w, out);
    print_condition(w, out);
}

/* ---- for scripts ---- */

json_t *gw_why_cp_json(const gw_why_cp *w) {
    json_t *a = json_array();
    for (int i = 0; i < w->n; i++) {
        const gw_why_cp_row *r = &w->rows[i];
        json_t *o = json_pack("{s:I, s:f}", "cp", (json_int_t)r->c, "ring_hides_from_tokens",
                              gw_why_cp_hides_from(w, r));
        for (int m = 0; m < GW_WHY_MODES; m++) {
            if (!there(&r->modes[m])) continue;
            json_t *b = gw_why_block_json(&r->modes[m]);
            json_object_set_new(b, "exposed_seconds",
                                json_real(gw_why_cp_exposed(w, &r->modes[m])));
            if (m == GW_CP_HYBRID) json_object_set_new(b, "ulysses", json_integer(r->ulysses));
            json_object_set_new(o, names[m], b);
        }
        json_array_append_new(a, o);
    }
    return a;
}
