// SPDX-License-Identifier: Apache-2.0
// Machines by name, by file, by keys; and the few figures that are read straight off one.
//
// A plan measures nothing and invents nothing. Figures that need a speed are given where a machine
// is stated: by the name of a hardware file that is built in (or of a file given by path), by keys,
// or by a name and keys that change it. Keys alone make a machine without a cost model: an op then
// takes the longer of FLOPs over peak and bytes over bandwidth (the roofline of Williams, Waterman
// and Patterson 2009), over `mfu` where somebody says how much of it is reached.
#include "plan/machine.h"

#include <math.h>
#include <stdlib.h> /* strtod */
#include <string.h>

#include "base/compiler.h"  /* GW_COUNT */
#include "base/io.h"        /* gw_file_read */
#include "plan/calibrate.h" /* gw_machine_measured */
#include "plan/machine_impl.h"

const char *gw_machine_name(int i) {
    const gw_machine_file *f = gw_machine_builtin_at(i);
    return f ? f->name : NULL;
}

static gw_status wrong(gw_diags *dg, const char *word, size_t n, const char *what) {
    gw_str known = {0};
    for (int i = 0; gw_machine_name(i); i++)
        gw_str_printf(&known, "%s%s", i ? " " : "", gw_machine_name(i));
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_USAGE, "usage", (gw_where){0},
                             "--hardware: '%.*s' %s", (int)GW_MIN(n, (size_t)80), word, what);
    gw_diag_hint(dg, d,
                 "one of %s, this, or a file, or keys, or both: h100,mfu=0.4 or "
                 "flops=312e12,memory=2TB/s,link=300GB/s,reach=8,beyond=25GB/s",
                 gw_str_c(&known));
    gw_str_release(&known);
    return GW_ERR_USAGE;
}

/* ---- keys ---- */

/* "450GB/s", "0.4", "989e12", "989TFLOP/s": a number, alone or with one of `units`. */
static bool number(const char *text, size_t n, const char *const *units, double *out) {
    static const char prefixes[] = "kMGTP";
    char buf[48];
    if (n == 0 || n >= sizeof buf) return false;
    memcpy(buf, text, n);
    buf[n] = 0;
    char *end;
    double x = strtod(buf, &end);
    if (end == buf || !isfinite(x) || x <= 0) return false;
    const char *p = *end ? strchr(prefixes, *end) : NULL;
    if (p) {
        x *= pow(1000, (double)(p - prefixes + 1));
        end++;
    }
    *out = x;
    for (; *units; units++)
        if (strcmp(end, *units) == 0) return true;
    return *end == 0;
}

static void set_flops(gw_machine_spec *m, double x) {
    for (int t = 0; t < GW_DTYPE_COUNT; t++)
        if (m->peak[t] > 0 || !m->model) m->peak[t] = x;
}

/* The tier past the nearest is one, as wide as is needed. */
static void set_beyond(gw_machine_spec *m, double x) {
    gw_tier *t = &m->tiers[1];
    if (m->ntiers < 2) *t = (gw_tier){.name = "beyond"};
    m->ntiers = 2;
    t->ranks = 0;
    t->oversubscription = 0;
    t->bytes_per_s = x;
}

/* A chip that is held to fewer watts than it may draw lowers its clock. What switches takes C V^2
 * f, and the voltage that a frequency needs is about in proportion to it, so the clock follows the
 * cube root of the watts; memory and links have clocks of their own. (Measured of an H100 from 200
 * to 700 W: arXiv 2604.11391.) False: the file does not say what the chip draws otherwise. */
static bool set_power(gw_machine_spec *m, double watts) {
    if (m->watts <= 0) return false;
    for (int t = 0; t < GW_DTYPE_COUNT; t++) m->peak[t] *= cbrt(fmin(1, watts / m->watts));
    return true;
}

typedef enum key { FLOPS, MFU, MEMORY, LINK, BEYOND, REACH, POWER, KEYS } key;

/* `seen`: the keys set so far, as bits. */
static gw_status set(gw_machine_spec *m, const char *word, size_t n, unsigned *seen, gw_diags *dg) {
    static const char *const names[KEYS] = {"flops",  "mfu",   "memory", "link",
                                            "beyond", "reach", "power"};
    static const char *const none[] = {NULL}, *const rates[] = {"B/s", NULL};
    static const char *const flops[] = {"FLOP/s", "FLOPs", "FLOPS", "F", NULL};
    static const char *const watts[] = {"W", NULL};
    static const char *const *const units[KEYS] = {flops, none, rates, rates, rates, none, watts};
    const char *eq = memchr(word, '=', n);
    if (!eq) return wrong(dg, word, n, "is no machine known here");
    size_t length = (size_t)(eq - word);
    double x;
    int k = 0;
    while (k < KEYS && (strlen(names[k]) != length || memcmp(names[k], word, length) != 0)) k++;
    if (k == KEYS) return wrong(dg, word, n, "has no such key");
    if (*seen & 1u << k) return wrong(dg, word, n, "says a second time what stands before it");
    *seen |= 1u << k;
    if (!number(eq + 1, n - length - 1, units[k], &x))
        return wrong(dg, word, n,
                     units[k] == rates ? "has no number above 0 of bytes a second, as 300GB/s"
                                       : "has no number above 0");
    if (m->ntiers == 0 && k >= LINK && k <= REACH) {
        m->tiers[0] = (gw_tier){.name = "link"};
        m->ntiers = 1;
    }
    switch ((key)k) {
    case FLOPS: set_flops(m, x); return GW_OK;
    case MFU:
        m->mfu = x;
        return x > 1 ? wrong(dg, word, n, "is at most 1: a part of the peak") : GW_OK;
    case MEMORY: m->memory_bytes_per_s = x; return GW_OK;
    case LINK: m->tiers[0].bytes_per_s = x; return GW_OK;
    case BEYOND: set_beyond(m, x); return GW_OK;
    case REACH:
        if (x > 1e6 || x < 1 || floor(x) < x) return wrong(dg, word, n, "is no number of ranks");
        m->tiers[0].ranks = (int64_t)x;
        return GW_OK;
    case POWER:
        return set_power(m, x)
                   ? GW_OK
                   : wrong(dg, word, n, "needs a machine whose file says what it may draw");
    case KEYS: break;
    }
    return GW_OK;
}

/* ---- names and files ---- */

static gw_status read_path(const char *path, gw_arena *a, gw_machine_spec *out, gw_diags *dg) {
    enum { MOST = 1 << 20 };
    gw_str text = {0};
    gw_status st = gw_file_read(path, MOST, &text, dg);
    if (st == GW_OK) st = gw_machine_parse(path, gw_str_c(&text), (int64_t)text.len, a, out, dg);
    gw_str_release(&text);
    return st;
}

static const gw_machine_file *by_name(const char *name, gw_arena *a) {
    const gw_machine_file *f = gw_machine_builtin(name);
    for (int i = 0; !f && gw_machine_builtin_at(i); i++)
        if (gw_machine_has_alias(gw_machine_builtin_at(i), name, a)) f = gw_machine_builtin_at(i);
    return f;
}

/* The first word, if it is a machine. *used: it is. */
static gw_status first_word(const char *word, size_t n, gw_arena *a, gw_machine_spec *out,
                            bool *used, gw_diags *dg) {
    char *name = gw_arena_printf(a, "%.*s", (int)GW_MIN(n, (size_t)4096), word);
    *used = true;
    if (strchr(name, '=') == NULL) {
        if (strcmp(name, "this") == 0)
            return gw_machine_measured(GW_CALIBRATION_FILE, true, a, out, dg);
        if (gw_str_ends(name, ".json")) return gw_machine_measured(name, false, a, out, dg);
        if (strchr(name, '/') || gw_str_ends(name, ".yaml") || gw_str_ends(name, ".yml"))
            return read_path(name, a, out, dg);
        const gw_machine_file *f = by_name(name, a);
        if (f) return gw_machine_parse(f->name, (const char *)f->text, f->len, a, out, dg);
    }
    *used = false;
    return GW_OK;
}

gw_status gw_machine_read(const char *text, gw_arena *a, gw_machine_spec *out, gw_diags *dg) {
    *out = (gw_machine_spec){.name = "", .sources = ""};
    gw_status st = GW_OK;
    unsigned seen = 0;
    for (const char *word = text; word;) {
        const char *comma = strchr(word, ',');
        size_t n = comma ? (size_t)(comma - word) : strlen(word);
        bool used = false;
        if (word == text) GW_TRY(first_word(word, n, a, out, &used, dg));
        if (!used && set(out, word, n, &seen, dg) != GW_OK) st = GW_ERR_USAGE;
        word = comma ? comma + 1 : NULL;
    }
    out->asked = gw_arena_strdup(a, text);
    return st;
}

/* ---- figures ---- */

gw_dtype gw_machine_runs_as(const gw_machine_spec *m, gw_dtype t) {
    bool eight = t == GW_F8E4M3 || t == GW_F8E5M2;
    if (m->peak[t] <= 0 && eight) t = GW_BF16;
    if (m->peak[t] <= 0 && t == GW_F16) return GW_BF16;
    if (m->peak[t] <= 0 && t != GW_F32 && t != GW_F64) return GW_F16;
    return t;
}

double gw_machine_flops(const gw_machine_spec *m, gw_dtype t) {
    return m->peak[gw_machine_runs_as(m, t)] * (m->mfu > 0 ? m->mfu : 1);
}

double gw_machine_link(const gw_machine_spec *m, int64_t n) {
    for (int i = 0; i < m->ntiers; i++) {
        const gw_tier *t = &m->tiers[i];
        if (t->ranks == 0 || t->ranks >= n)
            return t->bytes_per_s / (t->oversubscription > 1 ? t->oversubscription : 1);
    }
    return 0;
}

int64_t gw_machine_reach(const gw_machine_spec *m) {
    return m->ntiers > 0 ? m->tiers[m->ntiers - 1].ranks : 1;
}

static void rate(gw_str *out, const char *name, double x, const char *unit) {
    char buf[32];
    if (x > 0) gw_str_printf(out, "%s%s %s%s", out->len ? ", " : "", name, gw_fmt_si(buf, x), unit);
}

void gw_machine_describe(const gw_machine_spec *m, gw_str *out) {
    gw_str text = {0};
    double flops = m->peak[GW_BF16] > 0 ? m->peak[GW_BF16] : m->peak[GW_F16];
    rate(&text, "peak", flops, "FLOP/s");
    if (flops > 0 && m->mfu > 0) gw_str_printf(&text, " × %g", m->mfu);
    rate(&text, "memory", m->memory_bytes_per_s, "B/s");
    for (int i = 0; i < m->ntiers; i++) {
        const gw_tier *t = &m->tiers[i];
        rate(&text, t->name, t->bytes_per_s, "B/s");
        if (t->ranks > 0 && t->bytes_per_s > 0)
            gw_str_printf(&text, " to %lld ranks", (long long)t->ranks);
    }
    size_t n = strcspn(m->asked, ",");
    bool alias = strlen(m->name) != n || strncmp(m->name, m->asked, n) != 0;
    if (*m->name)
        gw_str_printf(out, "%s%s%.*s%s: ", m->name, alias ? " (" : "", alias ? (int)n : 0, m->asked,
                      alias ? ")" : "");
    gw_str_add(out, gw_str_c(&text));
    gw_str_release(&text);
}
