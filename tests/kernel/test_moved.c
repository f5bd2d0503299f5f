// SPDX-License-Identifier: Apache-2.0
// Convolutions whose tensors lie elsewhere at their second launch, at the sizes that oneDNN takes
// (the cases of the op itself are smaller). Other kernels: test_suite.c.
#include <string.h>

#include "harness.h"
#include "run.h"

/* The three ops on images of 6x6 and filters of `window`, 8 to 16 channels; gradients of filters
 * also into an accumulator. Returns how many ops were run by oneDNN. */
static int check_convs(gw_dtype dtype, const char *op, int window, bool acc) {
    gw_diags dg;
    gw_cases cs;
    char w[32];
    const char *x = "b2 y6 x6 c8", *dy = "b2 y6 x6 c16";
    int n = 0;
    gw_diags_init(&dg);
    own_cases(&cs, op, dtype, &dg);
    gw_case *c = gw_case_begin(&cs, "8 to 16 channels");
    snprintf(w, sizeof w, "o16 c8 i%d j%d", window, window);
    bool images = strcmp(op, "conv2d_dx") == 0, filters = strcmp(op, "conv2d_dw") == 0;
    const char *first = images || filters ? dy : x, *second = filters ? x : w;
    int size = images ? 6 : window;
    gw_attr a[5] = {{.i = 1}, {.i = window / 2}, {.i = size}, {.i = size}, {.i = -1}};
    gw_vid in[3] = {gw_case_value(c, first, false, GW_FILL_NORMAL, 1, 0),
                    gw_case_value(c, second, !filters, GW_FILL_NORMAL, 0.5, 0), GW_NONE};
    if (acc) in[2] = gw_case_fixed(c, GW_F32, w, GW_FILL_NORMAL, 1, 0);
    gw_build(&c->b, op, in, acc ? 3 : 2, a, NULL);
    CHECK_OK(c->b.status, &dg);
    values v;
    values_init(&v, c);
    values_reference(&v, 0);
    gw_machine m = gw_machine_this(2);
    for (int i = 0; gw_kernel_at(i); i++) {
        const gw_kernel *k = gw_kernel_at(i);
        if (strcmp(k->op, op) != 0 || !k->supports(&c->g, &c->g.ops.items[0], &m)) continue;
        check_moved(&v, 0, k, 2);
        n++;
    }
    values_release(&v);
    gw_cases_release(&cs);
    gw_diags_release(&dg);
    return n;
}

TEST(convolutions_go_where_their_tensors_go) {
    static const gw_dtype dtypes[] = {GW_F32, GW_BF16, GW_F16};
    int n = 0;
    for (int t = 0; t < 3; t++)
        for (int window = 1; window <= 3; window += 2) {
            n += check_convs(dtypes[t], "conv2d", window, false);
            n += check_convs(dtypes[t], "conv2d_dx", window, false);
            n += check_convs(dtypes[t], "conv2d_dw", window, false);
            n += check_convs(dtypes[t], "conv2d_dw", window, true);
        }
    CHECK(n >= 24); /* float32 and converted */
}
