// SPDX-License-Identifier: Apache-2.0
// Damaged copies of a small file. The copy lives beside the original under the name "damaged" with
// the original's suffix, so that readers that look for a partner file find it by the same prefix.
// Changed bytes come from a counter-based generator, so a failure repeats.
#include "damage.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"  /* gw_file_read */
#include "base/rng.h" /* gw_rng_u32 */
#include "harness.h"

void put_file(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    CHECK_MSG(f != NULL, "cannot create %s", path);
    CHECK(fwrite(bytes, 1, n, f) == n);
    CHECK(fclose(f) == 0);
}

gw_str get_file(const char *path) {
    gw_diags dg;
    gw_str s = {0};
    gw_diags_init(&dg);
    CHECK_OK(gw_file_read(path, 0, &s, &dg), &dg);
    gw_diags_release(&dg);
    return s;
}

static void damaged_name(const char *path, char out[1024]) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    snprintf(out, 1024, "%.*s/damaged%s", (int)(slash - path), path, dot && dot > slash ? dot : "");
}

static gw_status try(const char *path, damage_reader *read, const char *what, size_t at) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status s = read(path, &dg);
    CHECK_MSG(s == GW_OK || dg.nerrors > 0, "%s %zu: an error without a diagnostic", what, at);
    gw_diags_release(&dg);
    return s;
}

void damage_cut(const char *path, damage_reader *read) {
    char copy[1024];
    damaged_name(path, copy);
    gw_str whole = get_file(path);
    put_file(copy, whole.data, whole.len);
    CHECK_EQ(try(copy, read, "whole copy", 0), GW_OK);
    for (size_t n = 0; n < whole.len; n++) {
        put_file(copy, whole.data, n);
        CHECK_MSG(try(copy, read, "cut at", n) != GW_OK, "cut at byte %zu of %zu: accepted", n,
                  whole.len);
    }
    gw_str_release(&whole);
}

void damage_flip(const char *path, damage_reader *read, int rounds) {
    char copy[1024];
    damaged_name(path, copy);
    gw_str whole = get_file(path);
    gw_rng_key key = gw_rng_key_named(7, "damage");
    for (int round = 0; round < rounds; round++) {
        gw_str bad = {0};
        uint64_t c = (uint64_t)round * 16;
        gw_str_add_n(&bad, whole.data, whole.len);
        int changes = 1 + (int)(gw_rng_u32(key, c) % 4);
        for (int i = 0; i < changes; i++) {
            size_t at = gw_rng_u32(key, c + 1 + (uint64_t)i) % bad.len;
            uint32_t mask = 1 + gw_rng_u32(key, c + 8 + (uint64_t)i) % 255;
            bad.data[at] = (char)((unsigned char)bad.data[at] ^ mask);
        }
        put_file(copy, bad.data, bad.len);
        (void)try(copy, read, "flip round", (size_t)round);
        gw_str_release(&bad);
    }
    gw_str_release(&whole);
}
