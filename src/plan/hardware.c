// SPDX-License-Identifier: Apache-2.0
// Stated machines: parsing them, and the two divisions that are made with them.
//
// A plan measures nothing and invents nothing. Figures that need a speed are given where a machine
// is stated: by a preset, whose numbers are the makers' (dense bf16 peak, memory and links in one
// direction, eight devices behind the fast link), or by keys. The time of work is a roofline
// (Williams, Waterman and Patterson 2009): the longer of FLOPs over peak and bytes over bandwidth.
// A real product stays below its roofline; `mfu` says by how much, if somebody knows.
#include "plan/hardware.h"

#include <math.h>
#include <stdlib.h> /* strtod */
#include <string.h>

#include "base/compiler.h" /* GW_COUNT */

/* NVLink 3, 4 and 5 and InfiniBand NDR (400 GB/s a host of eight), in one direction. */
static const gw_hardware presets[] = {
    {"a100", 312e12, 1, 2.00e12, 300e9, 8, 0},
    {"h100", 989e12, 1, 3.35e12, 450e9, 8, 50e9},
    {"h200", 989e12, 1, 4.80e12, 450e9, 8, 50e9},
    {"b200", 2250e12, 1, 8.00e12, 900e9, 8, 0},
};

static gw_status wrong(gw_diags *dg, const char *word, size_t n, const char *what) {
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_USAGE, "usage", (gw_where){0},
                             "--hardware: '%.*s' %s", (int)GW_MIN(n, (size_t)80), word, what);
    gw_diag_hint(dg, d,
                 "one of a100, h100, h200, b200, or keys, or both: "
                 "h100,mfu=0.4 or flops=312e12,memory=2TB/s,link=300GB/s,reach=8,beyond=25GB/s");
    return GW_ERR_USAGE;
}

/* "450GB/s", "0.4", "989e12", "989TFLOP/s". */
static bool number(const char *text, size_t n, double *out) {
    static const char *const units[] = {"", "B", "B/s", "FLOP/s", "FLOPs", "FLOPS", "F"};
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
    for (size_t i = 0; i < GW_COUNT(units); i++)
        if (strcmp(end, units[i]) == 0) return true;
    return false;
}

static gw_status set(gw_hardware *h, const char *word, size_t n, gw_diags *dg) {
    const char *eq = memchr(word, '=', n);
    if (!eq) return wrong(dg, word, n, "is no machine known here");
    size_t key = (size_t)(eq - word);
    double x;
    if (!number(eq + 1, n - key - 1, &x)) return wrong(dg, word, n, "has no number above 0");
    struct {
        const char *name;
        double *at;
    } keys[] = {{"flops", &h->flops},
                {"mfu", &h->mfu},
                {"memory", &h->memory_bytes},
                {"link", &h->link_bytes},
                {"beyond", &h->beyond_bytes}};
    for (size_t i = 0; i < GW_COUNT(keys); i++)
        if (strlen(keys[i].name) == key && memcmp(keys[i].name, word, key) == 0) {
            *keys[i].at = x;
            if (i == 1 && x > 1) return wrong(dg, word, n, "is a part of the peak, at most 1");
            return GW_OK;
        }
    if (key != 5 || memcmp(word, "reach", key) != 0) return wrong(dg, word, n, "has no such key");
    if (x > 1e6 || x < 1 || floor(x) < x) return wrong(dg, word, n, "is no number of ranks");
    h->reach = (int64_t)x;
    return GW_OK;
}

gw_status gw_hardware_parse(const char *text, gw_hardware *out, gw_diags *dg) {
    *out = (gw_hardware){.mfu = 1};
    for (const char *word = text; word;) {
        const char *comma = strchr(word, ',');
        size_t n = comma ? (size_t)(comma - word) : strlen(word);
        const gw_hardware *p = NULL;
        for (size_t i = 0; i < GW_COUNT(presets) && word == text; i++)
            if (strlen(presets[i].name) == n && memcmp(presets[i].name, word, n) == 0)
                p = &presets[i];
        if (p)
            *out = *p;
        else
            GW_TRY(set(out, word, n, dg));
        word = comma ? comma + 1 : NULL;
    }
    return GW_OK;
}

double gw_hardware_link(const gw_hardware *h, int64_t n) {
    return h->reach > 0 && n > h->reach ? h->beyond_bytes : h->link_bytes;
}

double gw_hardware_seconds(const gw_hardware *h, double flops, double bytes) {
    double work = h->flops > 0 ? flops / h->flops : 0;
    double move = h->memory_bytes > 0 ? bytes / h->memory_bytes : 0;
    return (work > move ? work : move) / h->mfu;
}

static void rate(gw_str *out, const char *before, double x, const char *unit) {
    char buf[32];
    if (x > 0)
        gw_str_printf(out, "%s%s%s%s", out->len ? ", " : "", before, gw_fmt_si(buf, x), unit);
}

void gw_hardware_describe(const gw_hardware *h, gw_str *out) {
    rate(out, "products at ", h->flops, "FLOP/s");
    if (h->flops > 0 && h->mfu < 1) gw_str_printf(out, " × %g", h->mfu);
    rate(out, "memory ", h->memory_bytes, "B/s");
    rate(out, "links ", h->link_bytes, "B/s");
    if (h->link_bytes > 0 && h->reach > 0)
        gw_str_printf(out, " to %lld ranks", (long long)h->reach);
    if (h->reach > 0) rate(out, "then ", h->beyond_bytes, "B/s");
}
