// SPDX-License-Identifier: Apache-2.0
// Files of torch.save: what stands in them comes out, what they would call is refused by name, and
// no damage of a byte reaches outside.
#include <stdio.h>
#include <string.h>

#include "base/io.h"  /* gw_file_read */
#include "base/num.h" /* gw_bf16_to_f32 */
#include "base/str.h" /* gw_str */
#include "file/pickle.h"
#include "file/pytorch.h"
#include "harness.h"

static const char *golden(const char *name, char buf[400]) {
    snprintf(buf, 400, "%s/golden/pytorch/%s", GW_TESTS_DIR, name);
    return buf;
}

static double element(const gw_st_tensor *t, int64_t j) {
    const char *p = (const char *)t->data + j * gw_st_dtype_bits(t->dtype) / 8;
    uint16_t half;
    float single;
    double real;
    int64_t whole;
    switch ((int)t->dtype) {
    case GW_ST_F32: memcpy(&single, p, 4); return (double)single;
    case GW_ST_F64: memcpy(&real, p, 8); return real;
    case GW_ST_I64: memcpy(&whole, p, 8); return (double)whole;
    case GW_ST_F16: memcpy(&half, p, 2); return (double)gw_fp16_to_f32((gw_fp16){half});
    case GW_ST_BF16: memcpy(&half, p, 2); return (double)gw_bf16_to_f32((gw_bf16){half});
    }
    CHECK_MSG(false, "a dtype that the file has none of: %d", (int)t->dtype);
    return 0;
}

TEST(a_state_dict_of_every_dtype) {
    static const struct {
        gw_st_dtype dtype;
        int ndim;
        int64_t elems;
    } want[] = {{GW_ST_F32, 2, 15}, {GW_ST_F16, 1, 4}, {GW_ST_BF16, 3, 12},
                {GW_ST_F64, 0, 1},  {GW_ST_I64, 1, 7}, {GW_ST_U8, 2, 0}};
    gw_diags dg;
    gw_torch *t = NULL;
    char buf[400];
    gw_diags_init(&dg);
    CHECK_OK(gw_torch_open(golden("state.bin", buf), &t, &dg), &dg);
    CHECK_EQ(gw_torch_count(t), GW_COUNT(want));
    for (int i = 0; i < (int)GW_COUNT(want); i++) {
        char name[16];
        snprintf(name, sizeof name, "t.%d", i);
        const gw_st_tensor *x = gw_torch_find(t, name);
        CHECK(x && x == gw_torch_get(t, i));
        CHECK(x->dtype == want[i].dtype && x->ndim == want[i].ndim && x->elems == want[i].elems);
        for (int64_t j = 0; j < x->elems; j++) {
            double is = element(x, j), must = i + (double)j / 4;
            CHECK_NEAR(is, x->dtype == GW_ST_I64 ? floor(must) : must, 0);
        }
    }
    CHECK(!gw_torch_find(t, "t.9"));
    gw_torch_free(t);
    gw_diags_release(&dg);
}

TEST(a_dict_within_and_two_names_of_one_storage) {
    gw_diags dg;
    gw_torch *t = NULL;
    char buf[400];
    gw_diags_init(&dg);
    CHECK_OK(gw_torch_open(golden("wrapped.pt", buf), &t, &dg), &dg);
    CHECK_EQ(gw_torch_count(t), 3);
    const gw_st_tensor *a = gw_torch_find(t, "a"), *b = gw_torch_find(t, "b");
    const gw_st_tensor *rows = gw_torch_find(t, "rows");
    CHECK(a && b && rows && a->data == b->data);
    CHECK(rows->dims[0] == 2 && rows->dims[1] == 6);
    CHECK_NEAR(element(rows, 0), 6.0 / 4, 0); /* the second row of four */
    gw_torch_free(t);
    gw_diags_release(&dg);
}

static void refused(const char *name, gw_code code, const char *says) {
    gw_diags dg;
    gw_torch *t = NULL;
    char buf[400];
    gw_diags_init(&dg);
    CHECK_EQ(gw_torch_open(golden(name, buf), &t, &dg), code);
    CHECK_MSG(strstr(gw_diags_first_error(&dg), says), "it says: %s", gw_diags_first_error(&dg));
    CHECK(!t);
    gw_diags_release(&dg);
}

TEST(what_would_be_called_is_named_and_not_called) {
    refused("called.pt", GW_ERR_UNSUPPORTED, "posix system");
    refused("turned.pt", GW_ERR_UNSUPPORTED, "not row-major");
}

/* By hand: what a pickle could try, and what is cut. */
TEST(pickles_that_are_refused) {
    static const struct {
        const char *bytes, *says;
        size_t n;
    } cases[] = {
#define P(text, says) {text, says, sizeof text - 1}
        P("\x80\x02"
          "cbuiltins\neval\n.",
          "builtins eval"),
        P("\x80\x02"
          "cos\nsystem\nX\x01\0\0\0a\x85R.",
          "os system"),
        P("\x80\x04\x8c\x02os\x8c\x06system\x93.", "os system"),
        P("\x80\x02}N\x81.", "opcode 0x81"),
        P("\x80\x02"
          "ctorch._utils\n_rebuild_tensor_v2\n)R.",
          "tensor without a storage"),
        P("\x80\x02"
          "ccollections\nOrderedDict\n}b.",
          "sets the state of"),
        P("\x80\x02t.", "mark is missing"),
        P("\x80\x02h\x05.", "not kept"),
        P("\x80\x02X\xff\xff\xff\x7f"
          "ab",
          "ends within a text"),
        P("\x80\x02N", "no end"),
        P("\x80\x02.", "ends with nothing"),
        P("\x80\x09N.", "protocol"),
        P("\x80\x02}(K\x01u.", "key has no value"),
        P("\x80\x02(0.", "nothing to drop"),
#undef P
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_diags dg;
        gw_arena a = {0};
        const gw_pickle_value *v;
        gw_diags_init(&dg);
        CHECK(gw_pickle_read("p", cases[i].bytes, (int64_t)cases[i].n, &a, &v, &dg) != GW_OK);
        CHECK_MSG(strstr(gw_diags_first_error(&dg), cases[i].says), "%zu says: %s", i,
                  gw_diags_first_error(&dg));
        gw_arena_release(&a);
        gw_diags_release(&dg);
    }
}

/* Every byte changed, every length cut: an error, or tensors that lie within the file. */
TEST(damage_never_reaches_outside) {
    static const char *const names[] = {"state.bin", "wrapped.pt"};
    for (size_t f = 0; f < GW_COUNT(names); f++) {
        gw_str good = {0};
        gw_diags dg;
        char buf[400], path[400];
        int read = 0, wrong = 0;
        gw_diags_init(&dg);
        CHECK_OK(gw_file_read(golden(names[f], buf), 0, &good, &dg), &dg);
        snprintf(path, sizeof path, "%s", test_tmp_path("damaged.bin"));
        for (size_t i = 0; i < good.len * 2; i++) {
            size_t n = i < good.len ? good.len : i - good.len;
            if (i < good.len) good.data[i] ^= (char)(1 << i % 8);
            FILE *out = fopen(path, "w");
            CHECK(out && fwrite(good.data, 1, n, out) == n && fclose(out) == 0);
            if (i < good.len) good.data[i] ^= (char)(1 << i % 8);
            gw_torch *t = NULL;
            gw_diags_clear(&dg);
            if (gw_torch_open(path, &t, &dg) != GW_OK) {
                wrong++;
                continue;
            }
            read++;
            static volatile unsigned sum; /* every byte is read, whatever the compiler thinks */
            for (int64_t k = 0; k < gw_torch_count(t); k++) {
                const gw_st_tensor *x = gw_torch_get(t, k);
                for (int64_t j = 0; j < x->bytes; j++) sum = sum + ((const uint8_t *)x->data)[j];
            }
            gw_torch_free(t);
        }
        CHECK(read > 0 && wrong > (int)good.len);
        gw_str_release(&good);
        gw_diags_release(&dg);
    }
}
