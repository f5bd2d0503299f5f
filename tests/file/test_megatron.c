// SPDX-License-Identifier: Apache-2.0
// file/megatron_idx: the layout byte by byte, round trips, hostile indexes, offsets past 2^31.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/io.h" /* gw_path_exists */
#include "damage.h"
#include "file/megatron_idx.h"
#include "harness.h"

static gw_diags dg;

static gw_midx *open_ok(const char *prefix) {
    gw_midx *m = NULL;
    gw_diags_init(&dg);
    CHECK_OK(gw_midx_open(prefix, &m, &dg), &dg);
    return m;
}

static void close_all(gw_midx *m) {
    gw_midx_free(m);
    gw_diags_release(&dg);
}

/* An index from its parts. */
typedef struct parts {
    const char *magic;
    int64_t version, s, d;
    int dtype;
    int32_t lengths[8];
    int64_t offsets[8], docs[8];
    const char *tail;
    int ntail;
} parts;

static void put_index(const char *path, const parts *p) {
    gw_str s = {0};
    gw_str_add_n(&s, p->magic ? p->magic : "MMIDIDX\0\0", 9);
    gw_str_add_n(&s, &p->version, 8);
    gw_str_add_char(&s, (char)p->dtype);
    gw_str_add_n(&s, &p->s, 8);
    gw_str_add_n(&s, &p->d, 8);
    int64_t ns = p->s < 8 && p->s >= 0 ? p->s : 0, nd = p->d < 8 && p->d >= 0 ? p->d : 0;
    gw_str_add_n(&s, p->lengths, 4 * (size_t)ns);
    gw_str_add_n(&s, p->offsets, 8 * (size_t)ns);
    gw_str_add_n(&s, p->docs, 8 * (size_t)nd);
    gw_str_add_n(&s, p->tail ? p->tail : "", (size_t)p->ntail);
    put_file(path, s.data, s.len);
    gw_str_release(&s);
}

/* Two documents: one of two sequences, one of a single sequence, u16. */
static const parts good = {.version = 1,
                           .s = 3,
                           .d = 3,
                           .dtype = 8,
                           .lengths = {2, 3, 1},
                           .offsets = {0, 4, 10},
                           .docs = {0, 2, 3}};
static const uint16_t good_bin[6] = {10, 11, 20, 21, 22, 65499};

static void put_good(void) {
    put_file(test_tmp_path("g.bin"), good_bin, sizeof good_bin);
    put_index(test_tmp_path("g.idx"), &good);
}

TEST(midx_reads_the_layout) {
    put_good();
    gw_midx *m = open_ok(test_tmp_path("g"));
    uint32_t t[3];
    int64_t first, n;
    CHECK_EQ(gw_midx_elem_type(m), GW_MIDX_U16);
    CHECK_EQ(gw_midx_nseqs(m), 3);
    CHECK_EQ(gw_midx_ndocs(m), 2);
    CHECK_EQ(gw_midx_ntokens(m), 6);
    gw_midx_doc(m, 0, &first, &n);
    CHECK(first == 0 && n == 2);
    gw_midx_doc(m, 1, &first, &n);
    CHECK(first == 2 && n == 1);
    CHECK_EQ(gw_midx_seq_tokens(m, 1), 3);
    CHECK_EQ(gw_midx_seq_offset(m, 1), 4);
    CHECK_OK(gw_midx_read(m, 1, 1, 2, t, &dg), &dg);
    CHECK(t[0] == 21 && t[1] == 22);
    CHECK_OK(gw_midx_read(m, 2, 0, 1, t, &dg), &dg);
    CHECK_EQ(t[0], 65499);
    CHECK(!gw_midx_has_modes(m));
    close_all(m);
    m = open_ok(test_tmp_path("g.idx")); /* either file's name will do */
    close_all(m);
}

TEST(midx_reads_modes) {
    put_good();
    parts p = good;
    p.tail = "\1\0\2";
    p.ntail = 3;
    put_index(test_tmp_path("g.idx"), &p);
    gw_midx *m = open_ok(test_tmp_path("g"));
    CHECK(gw_midx_has_modes(m));
    CHECK_EQ(gw_midx_seq_mode(m, 0), 1);
    CHECK_EQ(gw_midx_seq_mode(m, 2), 2);
    close_all(m);
}

/* The writer's file is the layout above. */
TEST(midx_writes_the_layout) {
    put_good();
    gw_midx_writer *w = NULL;
    gw_diags_init(&dg);
    CHECK_OK(gw_midx_writer_new(test_tmp_path("w"), 65499, &w, &dg), &dg);
    CHECK_OK(gw_midx_writer_seq(w, (uint32_t[]){10, 11}, 2, &dg), &dg);
    CHECK_OK(gw_midx_writer_seq(w, (uint32_t[]){20, 21, 22}, 3, &dg), &dg);
    gw_midx_writer_end_doc(w);
    CHECK_OK(gw_midx_writer_doc(w, (uint32_t[]){65498}, 1, &dg), &dg);
    CHECK(!gw_path_exists(test_tmp_path("w.idx")) && !gw_path_exists(test_tmp_path("w.bin")));
    CHECK_OK(gw_midx_writer_finish(w, &dg), &dg);
    gw_midx_writer_free(w);
    gw_str a = get_file(test_tmp_path("g.idx")), b = get_file(test_tmp_path("w.idx"));
    CHECK_EQ(a.len, 34 + 3 * 12 + 3 * 8);
    CHECK_EQ(a.len, b.len);
    CHECK(memcmp(a.data, b.data, a.len) == 0);
    gw_str_release(&a);
    gw_str_release(&b);
    b = get_file(test_tmp_path("w.bin"));
    CHECK_EQ(b.len, 12);
    CHECK(memcmp(b.data, good_bin, 10) == 0);
    gw_str_release(&b);
    gw_diags_release(&dg);
}

/* u16 below a vocabulary of 65,500, i32 from there on. */
TEST(midx_width_follows_the_vocabulary) {
    static const struct {
        int64_t vocab;
        gw_midx_dtype want;
    } cases[] = {
        {256, GW_MIDX_U16}, {65499, GW_MIDX_U16}, {65500, GW_MIDX_I32}, {151936, GW_MIDX_I32}};
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_midx_writer *w = NULL;
        uint32_t top = (uint32_t)cases[i].vocab - 1, back;
        gw_diags_init(&dg);
        CHECK_OK(gw_midx_writer_new(test_tmp_path("v"), cases[i].vocab, &w, &dg), &dg);
        CHECK_FAILS(gw_midx_writer_doc(w, (uint32_t[]){1, top + 1}, 2, &dg), &dg,
                    "vocabulary size");
        CHECK_OK(gw_midx_writer_doc(w, &top, 1, &dg), &dg);
        CHECK_OK(gw_midx_writer_finish(w, &dg), &dg);
        gw_midx_writer_free(w);
        gw_diags_release(&dg);
        gw_midx *m = open_ok(test_tmp_path("v"));
        CHECK_EQ(gw_midx_elem_type(m), cases[i].want);
        CHECK_EQ(gw_midx_ntokens(m), 1); /* nothing of the refused document was written */
        CHECK_OK(gw_midx_read(m, 0, 0, 1, &back, &dg), &dg);
        CHECK_EQ(back, top);
        close_all(m);
    }
    gw_midx_writer *w = NULL;
    gw_diags_init(&dg);
    CHECK_FAILS(gw_midx_writer_new(test_tmp_path("v"), 0, &w, &dg), &dg, "vocabulary");
    CHECK_FAILS(gw_midx_writer_new(test_tmp_path("v"), INT64_C(1) << 40, &w, &dg), &dg,
                "vocabulary");
    gw_diags_release(&dg);
}

TEST(midx_round_trip_of_many) {
    gw_midx_writer *w = NULL;
    uint32_t doc[1000], back[1000];
    enum { DOCS = 3000 };
    gw_diags_init(&dg);
    CHECK_OK(gw_midx_writer_new(test_tmp_path("many"), 100000, &w, &dg), &dg);
    for (int d = 0; d < DOCS; d++) {
        int n = d * 37 % 1000; /* the first is empty */
        for (int i = 0; i < n; i++) doc[i] = (uint32_t)(d * 7919 + i) % 100000;
        CHECK_OK(gw_midx_writer_doc(w, doc, n, &dg), &dg);
    }
    CHECK_OK(gw_midx_writer_finish(w, &dg), &dg);
    int64_t total = gw_midx_writer_ntokens(w);
    gw_midx_writer_free(w);
    gw_diags_release(&dg);
    gw_midx *m = open_ok(test_tmp_path("many"));
    CHECK_EQ(gw_midx_ndocs(m), DOCS);
    CHECK_EQ(gw_midx_ntokens(m), total);
    for (int d = 0; d < DOCS; d++) {
        int n = d * 37 % 1000;
        CHECK_EQ(gw_midx_seq_tokens(m, d), n);
        CHECK_OK(gw_midx_read(m, d, 0, n, back, &dg), &dg);
        for (int i = 0; i < n; i++) CHECK(back[i] == (uint32_t)(d * 7919 + i) % 100000);
    }
    close_all(m);
}

TEST(midx_unfinished_writer_leaves_the_old_pair) {
    put_good();
    gw_midx_writer *w = NULL;
    gw_diags_init(&dg);
    CHECK_OK(gw_midx_writer_new(test_tmp_path("g"), 100, &w, &dg), &dg);
    CHECK_OK(gw_midx_writer_doc(w, (uint32_t[]){1}, 1, &dg), &dg);
    gw_midx_writer_free(w);
    gw_diags_release(&dg);
    gw_midx *m = open_ok(test_tmp_path("g"));
    CHECK_EQ(gw_midx_ntokens(m), 6);
    close_all(m);
    gw_diags_init(&dg);
    CHECK_OK(gw_midx_writer_new(test_tmp_path("e"), 100, &w, &dg), &dg);
    CHECK_OK(gw_midx_writer_finish(w, &dg), &dg); /* no documents at all */
    gw_midx_writer_free(w);
    gw_diags_release(&dg);
    m = open_ok(test_tmp_path("e"));
    CHECK_EQ(gw_midx_ndocs(m) + gw_midx_nseqs(m) + gw_midx_ntokens(m), 0);
    close_all(m);
}

/* A .bin with holes, whose sequences start beyond 2^31 and 2^32 bytes. */
TEST(midx_offsets_past_32_bits) {
    const char *bin = test_tmp_path("big.bin");
    int fd = open(bin, O_WRONLY | O_CREAT, 0600);
    int64_t far = INT64_C(0x180000000);
    uint16_t near_2g[2] = {111, 222}, past_4g[2] = {333, 444};
    CHECK(pwrite(fd, near_2g, 4, INT64_C(0x7ffffffe)) == 4); /* across 2^31 */
    CHECK(pwrite(fd, past_4g, 4, far) == 4);
    CHECK(close(fd) == 0);
    parts p = {.version = 1,
               .s = 3,
               .d = 2,
               .dtype = 8,
               .lengths = {INT32_MAX, 2, 2},
               .offsets = {0, INT64_C(0x7ffffffe), far},
               .docs = {0, 3}};
    put_index(test_tmp_path("big.idx"), &p);
    gw_midx *m = open_ok(test_tmp_path("big"));
    uint32_t t[2];
    CHECK_EQ(gw_midx_ntokens(m), INT64_C(0x7fffffff) + 4);
    CHECK_OK(gw_midx_read(m, 1, 0, 2, t, &dg), &dg);
    CHECK(t[0] == 111 && t[1] == 222);
    CHECK_OK(gw_midx_read(m, 2, 1, 1, t, &dg), &dg);
    CHECK_EQ(t[0], 444);
    /* The same bytes seen through the first sequence, at token 2^30 - 1. */
    CHECK_OK(gw_midx_read(m, 0, INT64_C(0x3fffffff), 2, t, &dg), &dg);
    CHECK(t[0] == 111 && t[1] == 222);
    close_all(m);
}

/* A write that fails must not leave a pair behind, and finish must say so even if the failure was
 * met earlier. */
TEST(midx_failed_write_commits_nothing) {
    static uint32_t tokens[1 << 19]; /* 1 MiB as u16: the buffer goes out */
    gw_midx_writer *w = NULL;
    put_good();
    gw_diags_init(&dg);
    CHECK_OK(gw_midx_writer_new(test_tmp_path("g"), 100, &w, &dg), &dg);
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, RLIM_INFINITY}) == 0);
    CHECK(gw_midx_writer_doc(w, tokens, 1 << 19, &dg) == GW_ERR_IO);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) == 0);
    CHECK_FAILS(gw_midx_writer_finish(w, &dg), &dg, "earlier write failed");
    gw_midx_writer_free(w);
    gw_diags_release(&dg);
    gw_midx *m = open_ok(test_tmp_path("g"));
    CHECK_EQ(gw_midx_ntokens(m), 6);
    close_all(m);
}

static void refuse(const parts *p, const char *expected) {
    gw_midx *m = NULL;
    put_index(test_tmp_path("g.idx"), p);
    gw_diags_init(&dg);
    CHECK_FAILS(gw_midx_open(test_tmp_path("g"), &m, &dg), &dg, expected);
    CHECK(m == NULL);
    gw_diags_release(&dg);
}

#define REFUSE(change, expected)                                                                   \
    do {                                                                                           \
        parts p = good;                                                                            \
        change;                                                                                    \
        refuse(&p, expected);                                                                      \
    } while (0)

TEST(midx_refuses_hostile_indexes) {
    put_good();
    REFUSE(p.magic = "MMIDIDY\0\0", "not a Megatron");
    REFUSE(p.magic = "MMIDIDX\0x", "not a Megatron");
    REFUSE(p.version = 2, "version 1");
    REFUSE(p.dtype = 0, "element type 0");
    REFUSE(p.dtype = 9, "element type 9");
    REFUSE(p.dtype = 7, "floating-point");
    REFUSE(p.s = -1, "too short");
    REFUSE(p.s = INT64_MAX, "too short");
    REFUSE(p.s = INT64_MAX / 12 + 1, "too short");
    REFUSE(p.d = INT64_MAX, "too short");
    REFUSE(p.d = 0, "too short");
    REFUSE(p.lengths[1] = -1, "sequence 1");
    REFUSE(p.lengths[2] = 2, "sequence 2");
    REFUSE(p.offsets[0] = -2, "sequence 0");
    REFUSE(p.offsets[1] = INT64_MAX, "sequence 1");
    REFUSE(p.dtype = 4, "sequence 1"); /* four bytes a token: the .bin is too short */
    REFUSE(p.docs[0] = 1, "does not start at sequence 0");
    REFUSE(p.docs[1] = 4, "document 0");
    REFUSE(p.docs[1] = -1, "document 0");
    REFUSE(p.docs[2] = 1, "document 1");
    REFUSE(p.docs[2] = 2, "cover all");
    REFUSE((p.tail = "\1\2", p.ntail = 2), "after its last array");
}

TEST(midx_refuses_negative_tokens_when_read) {
    parts p = {.version = 1, .s = 1, .d = 2, .dtype = 4, .lengths = {2}, .docs = {0, 1}};
    put_index(test_tmp_path("n.idx"), &p);
    put_file(test_tmp_path("n.bin"), (int32_t[]){5, -6}, 8);
    gw_midx *m = open_ok(test_tmp_path("n"));
    uint32_t t[2];
    CHECK_OK(gw_midx_read(m, 0, 0, 1, t, &dg), &dg);
    CHECK_FAILS(gw_midx_read(m, 0, 0, 2, t, &dg), &dg, "token 1 of sequence 0");
    close_all(m);
}

TEST(midx_names_the_missing_file) {
    gw_midx *m = NULL;
    put_good();
    unlink(test_tmp_path("g.bin"));
    gw_diags_init(&dg);
    CHECK_FAILS(gw_midx_open(test_tmp_path("g"), &m, &dg), &dg, "g.bin");
    gw_diags_release(&dg);
}

static gw_status use(const char *path, gw_diags *d) {
    gw_midx *m = NULL;
    GW_TRY(gw_midx_open(path, &m, d));
    uint32_t t[16];
    int64_t first, n;
    for (int64_t i = 0; i < gw_midx_nseqs(m); i++) {
        CHECK(gw_midx_seq_tokens(m, i) <= 12);
        (void)!gw_midx_read(m, i, 0, gw_midx_seq_tokens(m, i), t, NULL);
    }
    for (int64_t i = 0; i < gw_midx_ndocs(m); i++) {
        gw_midx_doc(m, i, &first, &n);
        CHECK(first >= 0 && n >= 0 && first + n <= gw_midx_nseqs(m));
    }
    gw_midx_free(m);
    return GW_OK;
}

TEST(midx_every_truncation_is_refused) {
    put_good();
    put_file(test_tmp_path("damaged.bin"), good_bin, sizeof good_bin);
    damage_cut(test_tmp_path("g.idx"), use);
    put_index(test_tmp_path("damaged.idx"), &good);
    damage_cut(test_tmp_path("g.bin"), use);
}

TEST(midx_byte_flips_never_crash) {
    put_good();
    put_file(test_tmp_path("damaged.bin"), good_bin, sizeof good_bin);
    damage_flip(test_tmp_path("g.idx"), use, 3000);
}
