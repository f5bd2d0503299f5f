// SPDX-License-Identifier: Apache-2.0
// See conversion.h.
#include "conversion.h"

#include <string.h>

#include "harness.h"
#include "train/setup.h" /* gw_setup_init */

void conversion_make(conversion *c, const gw_cv_request *q) {
    memset(c, 0, sizeof *c);
    gw_diags_init(&c->dg);
    c->st = gw_convert_config(q, &c->a, &c->v, &c->dg);
}

void conversion_load(conversion *c, int64_t ranks) {
    CHECK_OK(c->st, &c->dg);
    int line = 0;
    for (int i = 0; i < c->v.nkeys; i++) {
        const gw_cv_key *k = &c->v.keys[i];
        CHECK_MSG(k->fate != GW_CV_OPEN, "%s", k->name);
        CHECK_MSG(k->fate == GW_CV_MAPPED ? k->ours && k->wrote : k->why && *k->why, "%s", k->name);
        if (k->line == 0) continue;
        CHECK_MSG(k->line >= line, "%s", k->name);
        line = k->line;
    }
    CHECK_EQ(c->v.mapped + c->v.implied + c->v.refused, c->v.nkeys);
    CHECK_OK(gw_runfile_parse_for(&c->rf, "made", c->v.yaml, (int64_t)strlen(c->v.yaml), NULL, 0,
                                  ranks, &c->dg),
             &c->dg);
    gw_setup *s = gw_mem_zalloc(sizeof *s);
    CHECK_OK(gw_setup_init(s, &c->rf, false, &c->dg), &c->dg);
    gw_setup_release(s);
    gw_mem_free(s);
}

const gw_cv_key *conversion_key(const conversion *c, const char *name) {
    for (int i = 0; i < c->v.nkeys; i++)
        if (strcmp(c->v.keys[i].name, name) == 0) return &c->v.keys[i];
    return NULL;
}

void conversion_release(conversion *c) {
    gw_runfile_release(&c->rf);
    gw_diags_release(&c->dg);
    gw_arena_release(&c->a);
}
