// SPDX-License-Identifier: Apache-2.0
// See staged.h.
#include "staged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "ir/text.h"   /* gw_graph_parse */
#include "ir/verify.h" /* gw_graph_verify */
#include "ops/ops.h"   /* gw_ops_table */
#include "pass/pass.h" /* gw_pass_place */

/* ---- lists ---- */

static void add(staged *p, int rank, gw_act act, int stage, int micro) {
    CHECK(p->n[rank] < (int)GW_COUNT(p->lists[0]));
    p->lists[rank][p->n[rank]++] = (gw_action){(uint8_t)act, (int16_t)stage, micro};
}

/* The action with what it receives before and sends after. */
static void compute(staged *p, gw_act act, int s, int m) {
    int r = p->rank_of[s], last = p->stages - 1;
    bool forward = act == GW_ACT_F, back = act == GW_ACT_B || act == GW_ACT_I;
    if (forward && s > 0 && p->rank_of[s - 1] != r) add(p, r, GW_ACT_RECV_F, s, m);
    if (back && s < last && p->rank_of[s + 1] != r) add(p, r, GW_ACT_RECV_B, s, m);
    add(p, r, act, s, m);
    if (forward && s < last && p->rank_of[s + 1] != r) add(p, r, GW_ACT_SEND_F, s, m);
    if (back && s > 0 && p->rank_of[s - 1] != r) add(p, r, GW_ACT_SEND_B, s, m);
}

static void finish(staged *p) {
    for (int s = p->stages - 1; s >= 0; s--) add(p, p->rank_of[s], GW_ACT_REDUCE, s, -1);
    for (int r = 0; r < p->ranks; r++) add(p, r, GW_ACT_STEP, -1, -1);
}

void staged_gpipe(staged *p) {
    for (int s = 0; s < p->stages; s++)
        for (int m = 0; m < p->micro; m++) compute(p, GW_ACT_F, s, m);
    for (int s = p->stages - 1; s >= 0; s--)
        for (int m = 0; m < p->micro; m++) compute(p, GW_ACT_B, s, m);
    finish(p);
}

void staged_1f1b(staged *p) {
    for (int s = 0; s < p->stages; s++) {
        int ahead = GW_MIN(p->micro, p->stages - 1 - s), back = 0;
        CHECK_EQ(p->rank_of[s], s);
        for (int m = 0; m < p->micro; m++) {
            compute(p, GW_ACT_F, s, m);
            if (m >= ahead) compute(p, GW_ACT_B, s, back++);
        }
        while (back < p->micro) compute(p, GW_ACT_B, s, back++);
    }
    finish(p);
}

void staged_random(staged *p, uint64_t seed, bool halves) {
    int f[STAGED_MAX] = {0}, b[STAGED_MAX] = {0}, w[STAGED_MAX] = {0}, last = p->stages - 1;
    int left = p->stages * p->micro * (halves ? 3 : 2);
    while (left > 0) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int s = (int)(seed >> 33) % p->stages, what = (int)(seed >> 50) % 3;
        int before = s > 0 ? f[s - 1] : p->micro, after = s < last ? b[s + 1] : f[s];
        if (what == 0 && f[s] < before) compute(p, GW_ACT_F, s, f[s]++), left--;
        if (what == 1 && b[s] < after)
            compute(p, halves ? GW_ACT_I : GW_ACT_B, s, b[s]), b[s]++, left--;
        if (what == 2 && halves && w[s] < b[s]) compute(p, GW_ACT_W, s, w[s]++), left--;
    }
    finish(p);
}

/* ---- the program ---- */

int staged_in(int s) { return s % 2 ? 24 : 16; }
int staged_out(int s) { return staged_in(s + 1); }

/* Values of stage s. */
enum { W, X, DY, ZERO, Y, DX, DW, SUM, SQ, OTHER, EACH = 24 };
static int id(int s, int what) { return s * EACH + what; }

static const char *dims(int s, char buf[16]) {
    snprintf(buf, 16, "%c%d", s % 2 ? 'e' : 'd', staged_in(s));
    return buf;
}

static bool here(const staged *p, int at, int s) {
    return s >= 0 && s < p->stages && p->rank_of[s] == at;
}

static void leaves(const staged *p, int s, const char *b, gw_str *o) {
    char i[16], e[16];
    dims(s, i), dims(s + 1, e);
    gw_str_printf(o, "let %%%d : f32[%s %s] param weights step \"w%d\"\n", id(s, W), i, e, s);
    if (s == 0) gw_str_printf(o, "let %%%d : f32[%s %s] input data mb \"x\"\n", id(s, X), b, i);
    if (s == p->stages - 1)
        gw_str_printf(o, "let %%%d : f32[%s %s] input data mb \"seed\"\n", id(s, DY), b, e);
}

/* What stage s reads: the value of its neighbour, or its own copy. */
static int x_of(const staged *p, int at, int s) {
    return here(p, at, s - 1) ? id(s - 1, Y) : id(s, X);
}
static int dy_of(const staged *p, int at, int s) {
    return here(p, at, s + 1) ? id(s + 1, DX) : id(s, DY);
}

static void send(const staged *p, int value, int to, int tag, const char *part, int s, gw_str *o) {
    gw_str_printf(o, "send %%%d {to=%d tag=%d places=%d} : %s mb \"to stage of rank %d\" on pp",
                  value, to, tag, p->places, part[1] == 'F' ? "F" : "B", to);
    gw_str_printf(o, " stage %d part %s\n", s, part);
}

static void recv(const staged *p, int value, const char *type, int from, int tag, const char *part,
                 int s, gw_str *o) {
    gw_str_printf(o, "%%%d = recv {from=%d tag=%d places=%d} : %s %s mb \"from rank %d\" on pp",
                  value, from, tag, p->places, type, part[1] == 'F' ? "F" : "B", from);
    gw_str_printf(o, " stage %d part %s\n", s, part);
}

static void forward(const staged *p, int at, int s, const char *b, gw_str *o) {
    char i[16], e[16], type[48];
    dims(s, i), dims(s + 1, e);
    snprintf(type, sizeof type, "f32[%s %s]", b, i);
    if (s > 0 && !here(p, at, s - 1)) recv(p, id(s, X), type, p->rank_of[s - 1], s, "rF", s, o);
    gw_str_printf(o,
                  "%%%d = matmul %%%d, %%%d, _ : f32[%s %s]%s F mb \"forward\" on compute stage %d "
                  "part F\n",
                  id(s, Y), x_of(p, at, s), id(s, W), b, e, s == p->stages - 1 ? " \"y\"" : "", s);
    if (s < p->stages - 1 && !here(p, at, s + 1))
        send(p, id(s, Y), p->rank_of[s + 1], s + 1, "sF", s, o);
}

static void backward(const staged *p, int at, int s, const char *b, gw_str *o) {
    char i[16], e[16], type[48];
    const char *partial = p->dp > 1 ? "+P(sum){dp}" : "";
    dims(s, i), dims(s + 1, e);
    snprintf(type, sizeof type, "f32[%s %s]", b, e);
    if (s < p->stages - 1 && !here(p, at, s + 1))
        recv(p, id(s, DY), type, p->rank_of[s + 1], 100 + s, "rB", s, o);
    if (s > 0)
        gw_str_printf(o,
                      "%%%d = matmul %%%d, %%%d, _ : f32[%s %s] B mb \"backward\" on compute stage "
                      "%d part I\n",
                      id(s, DX), dy_of(p, at, s), id(s, W), b, i, s);
    if (s > 0 && !here(p, at, s - 1))
        send(p, id(s, DX), p->rank_of[s - 1], 100 + s - 1, "sB", s, o);
    gw_str_printf(o, "%%%d = matmul_dw %%%d, %%%d, %%%d : f32[%s %s]%s=%%%d gradients%s", id(s, DW),
                  x_of(p, at, s), dy_of(p, at, s), id(s, ZERO), i, e, partial, id(s, ZERO), "");
    if (p->dp == 1) gw_str_printf(o, " \"dw%d\"", s);
    gw_str_printf(o, " W mb \"weights\" on compute stage %d part W\n", s);
    if (p->dp > 1)
        gw_str_printf(o,
                      "%%%d = all_reduce %%%d : f32[%s %s]=%%%d gradients \"dw%d\" O step "
                      "\"sum\" on dp stage %d part W\n",
                      id(s, SUM), id(s, DW), i, e, id(s, DW), s, s);
}

/* The squares of all gradients: each rank's to rank 0, the sum back. */
static void norm(const staged *p, int at, gw_str *o) {
    int next = p->stages * EACH, sum = -1;
    for (int s = 0; s < p->stages; s++) {
        if (!here(p, at, s)) continue;
        gw_str_printf(o, "%%%d = sqnorm %%%d : f32[] O step \"norm\" on compute\n", id(s, SQ),
                      id(s, p->dp > 1 ? SUM : DW));
        if (sum >= 0)
            gw_str_printf(o, "%%%d = add %%%d, %%%d : f32[] O step \"norm\" on compute\n", next,
                          sum, id(s, SQ));
        sum = sum < 0 ? id(s, SQ) : next++;
    }
    if (at > 0) {
        gw_str_printf(o, "send %%%d {to=0 tag=200 places=1} : O step \"norm\" on pp\n", sum);
        gw_str_printf(o,
                      "%%%d = recv {from=0 tag=300 places=1} : f32[] \"norm\" O step \"norm\" "
                      "on pp\n",
                      next);
        return;
    }
    for (int r = 1; r < p->ranks; r++) {
        gw_str_printf(o, "%%%d = recv {from=%d tag=200 places=1} : f32[] O step \"norm\" on pp\n",
                      next, r);
        gw_str_printf(o, "%%%d = add %%%d, %%%d : f32[] O step \"norm\" on compute\n", next + 1,
                      sum, next);
        sum = next + 1;
        next += 2;
    }
    for (int r = 1; r < p->ranks; r++)
        gw_str_printf(o, "send %%%d {to=%d tag=300 places=1} : O step \"norm\" on pp\n", sum, r);
    gw_str_printf(o, "%%%d = add %%%d, %%%d : f32[] \"norm\" O step \"norm\" on compute\n", next,
                  sum, sum); /* twice the sum, for a name of its own */
}

/* Copies the lines with values numbered from 0 in the order in which they come up; how many. */
static int renumber(const char *from, gw_str *to) {
    int number[STAGED_MAX * EACH + 64], n = 0;
    memset(number, -1, sizeof number);
    for (const char *c = from; *c; c++) {
        gw_str_add_char(to, *c);
        if (*c != '%') continue;
        char *end = NULL;
        int *at = &number[strtol(c + 1, &end, 10)];
        if (*at < 0) *at = n++;
        gw_str_printf(to, "%d", *at);
        c = end - 1;
    }
    return n;
}

static void body(const staged *p, int at, gw_str *o) {
    char b[16], i[16], e[16];
    snprintf(b, sizeof b, p->dp > 1 ? "b{dp}%d" : "b%d", STAGED_ROWS);
    for (int s = 0; s < p->stages; s++)
        if (here(p, at, s)) leaves(p, s, b, o);
    for (int s = 0; s < p->stages; s++)
        if (here(p, at, s))
            gw_str_printf(
                o, "%%%d = zeros %%%d : f32[%s %s]%s gradients O step \"zero\" on compute\n",
                id(s, ZERO), id(s, W), dims(s, i), dims(s + 1, e), p->dp > 1 ? "+P(sum){dp}" : "");
    for (int s = 0; s < p->stages; s++)
        if (here(p, at, s)) forward(p, at, s, b, o);
    for (int s = p->stages - 1; s >= 0; s--)
        if (here(p, at, s)) backward(p, at, s, b, o);
    norm(p, at, o);
}

void staged_text(const staged *p, int at, gw_str *o) {
    char buf[GW_ACTION_TEXT];
    gw_str lines = {0}, numbered = {0};
    body(p, at, &lines);
    gw_str_printf(o, "program mb %d values %d\n", p->micro, renumber(gw_str_c(&lines), &numbered));
    if (p->ranks * p->dp > 1) gw_str_add(o, "mesh");
    if (p->ranks > 1) gw_str_printf(o, " pp.0=%d", p->ranks);
    if (p->dp > 1) gw_str_printf(o, " dp.0=%d", p->dp);
    gw_str_add(o, p->ranks * p->dp > 1 ? "\nactions" : "actions");
    for (int i = 0; i < p->n[at]; i++)
        gw_str_printf(o, " %s", gw_action_print(p->lists[at][i], buf));
    gw_str_printf(o, "\n%s", gw_str_c(&numbered));
    gw_str_release(&lines);
    gw_str_release(&numbered);
}

/* ---- what it computes ---- */

static float small(uint64_t x, int n) {
    x = (x ^ x >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 29) * UINT64_C(0x94d049bb133111eb);
    return (float)((x ^ x >> 32) % (uint64_t)(2 * n + 1)) - (float)n;
}

float staged_x(int step, int micro, int64_t i) {
    return small((uint64_t)i + 1000 * (uint64_t)(micro + 20 * step) + 1, 2);
}
float staged_seed(int step, int micro, int64_t i) {
    return small((uint64_t)i + 1000 * (uint64_t)(micro + 20 * step) + 777777, 2);
}
float staged_w(int s, int64_t i) { return small((uint64_t)i + 10000 * (uint64_t)s + 5, 1); }

static void compute_one(const staged *p, int step, int m, staged_want *out) {
    double x[STAGED_MAX + 1][STAGED_ROWS * 32], g[STAGED_MAX + 1][STAGED_ROWS * 32];
    int last = p->stages - 1;
    for (int i = 0; i < STAGED_ROWS * staged_in(0); i++) x[0][i] = (double)staged_x(step, m, i);
    for (int s = 0; s <= last; s++)
        for (int r = 0; r < STAGED_ROWS; r++)
            for (int j = 0; j < staged_out(s); j++) {
                double sum = 0;
                for (int i = 0; i < staged_in(s); i++)
                    sum += x[s][r * staged_in(s) + i] * (double)staged_w(s, i * staged_out(s) + j);
                x[s + 1][r * staged_out(s) + j] = sum;
            }
    memcpy(out->y[m], x[last + 1], sizeof out->y[m]);
    for (int i = 0; i < STAGED_ROWS * staged_out(last); i++)
        g[last + 1][i] = (double)staged_seed(step, m, i);
    for (int s = last; s >= 0; s--)
        for (int r = 0; r < STAGED_ROWS; r++)
            for (int i = 0; i < staged_in(s); i++) {
                double sum = 0;
                for (int j = 0; j < staged_out(s); j++) {
                    double dy = g[s + 1][r * staged_out(s) + j];
                    sum += dy * (double)staged_w(s, i * staged_out(s) + j);
                    out->dw[s][i * staged_out(s) + j] += x[s][r * staged_in(s) + i] * dy;
                }
                g[s][r * staged_in(s) + i] = sum;
            }
}

void staged_compute(const staged *p, int step, staged_want *out) {
    memset(out, 0, sizeof *out);
    for (int m = 0; m < p->micro; m++) compute_one(p, step, m, out);
    for (int s = 0; s < p->stages; s++)
        for (int i = 0; i < staged_in(s) * staged_out(s); i++)
            out->norm += out->dw[s][i] * out->dw[s][i];
}

/* ---- running it ---- */

void staged_make(const staged *p, int at, const gw_exec_facts *f, gw_graph *out, gw_diags *dg) {
    gw_graph g;
    gw_str text = {0};
    gw_compile_report report = {0};
    gw_compile_opts o = {.train = true,
                         .micro_batches = p->micro,
                         .workspace = gw_exec_workspace,
                         .workspace_user = f};
    staged_text(p, at, &text);
    CHECK_OK(gw_graph_parse(&g, gw_ops_table(), gw_str_c(&text), (int64_t)text.len, "test", dg),
             dg);
    CHECK_OK(gw_graph_verify(&g, dg), dg);
    CHECK_OK(gw_pass_place(out, &g, &o, &report, dg), dg);
    CHECK_OK(gw_graph_verify(out, dg), dg);
    gw_graph_release(&g);
    gw_str_release(&text);
}

static void put(gw_exec *x, const char *name, const staged_feeding *f, int micro, int each,
                float (*at)(int step, int micro, int64_t i)) {
    float rows[STAGED_ROWS * 32];
    for (int i = 0; i < f->rows * each; i++) rows[i] = at(f->step, micro, f->row * each + i);
    (void)gw_exec_write(x, name, rows, f->rows * each * (int64_t)sizeof *rows);
}

gw_status staged_feed(void *user, gw_exec *x, int64_t micro, gw_diags *dg) {
    staged_feeding *f = user;
    (void)dg;
    f->calls++;
    put(x, "x", f, (int)micro, staged_in(0), staged_x);
    put(x, "seed", f, (int)micro, staged_out(f->p->stages - 1), staged_seed);
    return GW_OK;
}

int staged_place_of(const gw_exec *x) {
    const gw_mesh *m = &gw_exec_graph(x)->mesh;
    return (int)gw_exec_group_rank(m, gw_mesh_group(m, "pp"), gw_exec_rank(x));
}

void staged_write_weights(const staged *p, gw_exec *x) {
    for (int s = 0; s < p->stages; s++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", s);
        if (!here(p, staged_place_of(x), s)) continue;
        gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, name));
        CHECK_EQ(t.elems, staged_in(s) * staged_out(s));
        for (int64_t i = 0; i < t.elems; i++) ((float *)t.data)[i] = staged_w(s, i);
    }
}

staged_feeding staged_feeding_of(const staged *p, const gw_exec *x, int step) {
    const gw_mesh *m = &gw_exec_graph(x)->mesh;
    int rows = STAGED_ROWS / p->dp;
    int at = (int)gw_exec_group_rank(m, gw_mesh_group(m, "dp"), gw_exec_rank(x));
    return (staged_feeding){.p = p, .step = step, .row = at * rows, .rows = rows};
}
