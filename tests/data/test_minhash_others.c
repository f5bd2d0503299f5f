// SPDX-License-Identifier: Apache-2.0
// MinHash values of recipes that are other projects' than datatrove's.
//
// ../golden/minhash_others.txt holds signatures by the code of RedPajama-V2 and text-dedup, and the
// bands and rows that their own searches give (make_minhash_others.py).
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"          /* gw_diags */
#include "base/str.h"           /* gw_str */
#include "data/dedup/minhash.h" /* gw_minhash */
#include "escaped.h"            /* read_golden, unhex */
#include "harness.h"            /* TEST, CHECK */

enum { FIELDS = 4 };

static void check_sign(char **f) {
    gw_diags dg = {0};
    const gw_minhash_recipe *r = gw_minhash_recipe_find(f[1]);
    CHECK_MSG(r && r->equal_to, "%s", f[1]);
    gw_minhash *m;
    CHECK_OK(gw_minhash_open(r, &m, &dg), &dg);
    size_t n = unhex(f[2]), want = unhex(f[3]);
    uint64_t *signature = malloc((size_t)gw_minhash_values(m) * 8);
    CHECK(signature);
    bool any = gw_minhash_sign(m, f[2], (int64_t)n, signature);
    CHECK_MSG(any == (want > 0), "%s of '%s'", f[1], f[2]);
    if (any) CHECK_EQ(want, 4 * (size_t)gw_minhash_values(m));
    for (size_t i = 0; i < want / 4; i++) {
        uint32_t theirs;
        memcpy(&theirs, f[3] + 4 * i, 4);
        CHECK_MSG(signature[i] == theirs, "%s, value %zu of '%s'", f[1], i, f[2]);
    }
    free(signature);
    gw_minhash_free(m);
}

static void check_law(char **f) {
    const gw_minhash_recipe *r = gw_minhash_recipe_find(f[1]);
    CHECK(r);
    CHECK_EQ(r->bands, strtol(f[2], NULL, 10));
    CHECK_EQ(r->rows, strtol(f[3], NULL, 10));
}

TEST(minhash_values_are_the_projects) {
    gw_str all = read_golden("minhash_others.txt");
    int signs = 0, laws = 0;
    for (char *at = all.data; *at;) {
        char *fields[FIELDS], *p = take_line(&at);
        for (int i = 0; i < FIELDS; i++) {
            CHECK(p);
            fields[i] = p;
            p = strchr(p, '\t');
            if (p) *p++ = 0;
        }
        bool sign = gw_str_eq(fields[0], "sign");
        if (sign)
            check_sign(fields);
        else
            check_law(fields);
        signs += sign;
        laws += !sign;
    }
    CHECK(signs >= 100 && laws == 5);
    gw_str_release(&all);
}
