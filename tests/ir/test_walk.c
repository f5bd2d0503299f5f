// SPDX-License-Identifier: Apache-2.0
// Cuts of dimensions and walks over what a rank holds: bijections, whatever is cut how.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "ir/graph.h"
#include "ir/opdef.h"
#include "ir/shard.h"
#include "ir/text.h"
#include "harness.h"

static gw_mesh mesh_of(void) {
    gw_mesh m = {0};
    (void)gw_mesh_add(&m, "dp", 2);
    (void)gw_mesh_add(&m, "cp", 4);
    (void)gw_mesh_add(&m, "tp", 3);
    return m;
}

/* Every element is in `copies` walks, and the runs of a rank fill its buffer in order. */
static void check_covers(const gw_type *t, const gw_mesh *m, int copies) {
    int64_t n = gw_type_elems(t);
    int *seen = calloc((size_t)n, sizeof *seen);
    for (int64_t r = 0; r < gw_mesh_ranks(m); r++) {
        gw_held w;
        int64_t g, l, c, at = 0;
        gw_held_begin(&w, t, m, r);
        while (gw_held_next(&w, &g, &l, &c)) {
            CHECK_EQ(l, at);
            CHECK(c > 0 && g >= 0 && g + c <= n);
            for (int64_t i = 0; i < c; i++) seen[g + i]++;
            at += c;
        }
        CHECK_EQ(at, gw_type_local_elems(t, m, r));
    }
    for (int64_t i = 0; i < n; i++) CHECK_EQ(seen[i], copies);
    free(seen);
}

TEST(walks_cover_each_element_once) {
    gw_mesh m = mesh_of();
    uint32_t tp = gw_mesh_group(&m, "tp"), cp = gw_mesh_group(&m, "cp"),
             dp = gw_mesh_group(&m, "dp");
    gw_type t = gw_type_make(GW_F32, "b4 s24 d5");
    check_covers(&t, &m, 24);
    gw_dim_cut(&t.dims[1], cp, &m);
    check_covers(&t, &m, 6);
    t.dims[1].outer = t.dims[1].naxes;
    t.dims[1].shard = GW_SHARD_ZIGZAG;
    check_covers(&t, &m, 6);
    gw_dim_cut(&t.dims[1], tp, &m);
    check_covers(&t, &m, 2);
    t.dims[1].turn = 3;
    check_covers(&t, &m, 2);
    gw_dim_cut(&t.dims[0], dp, &m);
    check_covers(&t, &m, 1);
}

TEST(walks_cover_uneven_and_flat_parts) {
    gw_mesh m = mesh_of();
    uint32_t tp = gw_mesh_group(&m, "tp"), cp = gw_mesh_group(&m, "cp"),
             dp = gw_mesh_group(&m, "dp");
    gw_type t = gw_type_make(GW_F32, "h7 k3 d5");
    gw_dim_cut(&t.dims[0], tp, &m);
    check_covers(&t, &m, 8);
    t.flat = 1;
    t.flat_axes = dp | cp;
    check_covers(&t, &m, 1);
    t = gw_type_make(GW_F32, "d5 f7");
    gw_dim_cut(&t.dims[1], tp, &m);
    t.flat = 1;
    t.flat_axes = dp | cp;
    check_covers(&t, &m, 1);
    t = gw_type_make(GW_F32, "v2 d1");
    gw_dim_cut(&t.dims[0], tp, &m);
    check_covers(&t, &m, 8);
    t = gw_type_scalar(GW_F32);
    check_covers(&t, &m, 24);
}

TEST(a_turned_part_is_the_neighbours) {
    gw_mesh m = mesh_of();
    gw_type a = gw_type_make(GW_F32, "s48"), b;
    gw_dim_cut(&a.dims[0], gw_mesh_group(&m, "cp"), &m);
    a.dims[0].outer = a.dims[0].naxes;
    a.dims[0].shard = GW_SHARD_ZIGZAG;
    b = a;
    b.dims[0].turn = 1;
    for (int64_t c = 0; c < 4; c++) { /* cp coordinate c has stride 3 in the rank */
        gw_runs mine = gw_type_runs(&b, 0, &m, c * 3),
                before = gw_type_runs(&a, 0, &m, (c + 3) % 4 * 3);
        CHECK_EQ(mine.first[0], before.first[0]);
        CHECK_EQ(mine.count[0], before.count[0]);
        CHECK_EQ(gw_runs_global(&mine, 6), gw_runs_global(&before, 6));
    }
}

TEST(zigzag_within_a_ring_and_chunks_within_it_read_back) {
    gw_mesh m = mesh_of();
    gw_type t = gw_type_make(GW_F32, "s48");
    gw_dim_cut(&t.dims[0], gw_mesh_group(&m, "cp") | gw_mesh_group(&m, "tp"), &m);
    t.dims[0].outer = 2;
    t.dims[0].shard = GW_SHARD_ZIGZAG;
    t.dims[0].turn = 1;
    gw_str s = {0};
    gw_type_print(&t, &m, &s);
    CHECK_STR(gw_str_c(&s), "f32[s{cp/tp:zigzag+1}48]");
    gw_str_release(&s);
    gw_dim_uncut(&t.dims[0], gw_mesh_group(&m, "tp"));
    CHECK_EQ(t.dims[0].naxes, 2);
    CHECK_EQ(t.dims[0].outer, 2);
    gw_dim_uncut(&t.dims[0], gw_mesh_group(&m, "cp"));
    CHECK_EQ(t.dims[0].naxes, 0);
    CHECK_EQ(t.dims[0].shard, GW_SHARD_CHUNK);
}
