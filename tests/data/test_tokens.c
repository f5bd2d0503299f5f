// SPDX-License-Identifier: Apache-2.0
// Laws of token data sets: rows are windows of one stream, every target comes once an epoch, any
// size is legal.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"        /* gw_mem_alloc, gw_mem_count */
#include "base/io.h"           /* gw_file_write_atomic */
#include "base/rng.h"          /* gw_rng_u32 */
#include "data/loader.h"       /* gw_loader */
#include "data/tokens.h"       /* gw_tokens */
#include "file/megatron_idx.h" /* gw_midx_writer */
#include "harness.h"           /* TEST, CHECK */

/* Every token of a set is unique: its value tells where it stands. */
typedef struct set {
    int32_t *tokens;
    int64_t *ends;
    int64_t ndocs, ntokens;
} set;

static set make_set(int64_t ndocs, int64_t longest, bool empties, uint64_t seed) {
    set s = {.ndocs = ndocs};
    gw_rng_key key = gw_rng_key_named(seed, "set");
    s.ends = gw_mem_alloc((size_t)ndocs * sizeof *s.ends);
    for (int64_t d = 0; d < ndocs; d++) {
        int64_t n = 1 + gw_rng_u32(key, (uint64_t)d) % longest;
        if (empties && d % 3 == 1) n = 0;
        s.ends[d] = s.ntokens += n;
    }
    s.tokens = gw_mem_alloc((size_t)(s.ntokens + 1) * sizeof *s.tokens);
    for (int64_t i = 0; i < s.ntokens; i++) s.tokens[i] = (int32_t)i;
    return s;
}

static void free_set(set *s) {
    gw_mem_free(s->tokens);
    gw_mem_free(s->ends);
}

static bool is_doc_start(const set *s, int64_t token) {
    if (token == 0) return true;
    for (int64_t d = 0; d < s->ndocs; d++)
        if (s->ends[d] == token) return true;
    return false;
}

typedef struct row {
    gw_sample s;
} row;

static row new_row(int64_t n) {
    row r = {{0}};
    size_t bytes = (size_t)n * sizeof(int32_t);
    r.s.tokens = gw_mem_alloc(bytes);
    r.s.labels = gw_mem_alloc(bytes);
    r.s.positions = gw_mem_alloc(bytes);
    r.s.docs = gw_mem_alloc(bytes);
    return r;
}

static void free_row(row *r) {
    gw_mem_free(r->s.tokens);
    gw_mem_free(r->s.labels);
    gw_mem_free(r->s.positions);
    gw_mem_free(r->s.docs);
}

/* The shape of one row: positions and docs restart where documents do, labels are the next inputs.
 */
static void check_row(const set *s, const gw_sample *r, int64_t n, bool mask_first) {
    int64_t valid = 0, inputs = n - r->padded;
    for (int64_t i = 0; i < inputs; i++) {
        bool starts = i > 0 && is_doc_start(s, r->tokens[i]);
        CHECK_EQ(r->docs[i], i == 0 ? 0 : r->docs[i - 1] + (starts ? 1 : 0));
        CHECK_EQ(r->positions[i], i == 0 || starts ? 0 : r->positions[i - 1] + 1);
        if (i > 0 && !starts) CHECK_EQ(r->tokens[i], r->tokens[i - 1] + 1);
        if (i + 1 < inputs) {
            bool crosses = is_doc_start(s, r->tokens[i + 1]);
            CHECK_EQ(r->labels[i], crosses && mask_first ? GW_LABEL_MASKED : r->tokens[i + 1]);
        }
        valid += r->labels[i] != GW_LABEL_MASKED;
    }
    for (int64_t i = inputs; i < n; i++) {
        CHECK_EQ(r->tokens[i], 0);
        CHECK_EQ(r->labels[i], GW_LABEL_MASKED);
        CHECK_EQ(r->positions[i], i - inputs);
        CHECK_EQ(r->docs[i], inputs ? r->docs[inputs - 1] + 1 : 0);
    }
    CHECK_EQ(r->valid, valid);
}

/* One epoch: every token is an input or the last label once in the stream, every target once. */
static void check_epoch(const set *s, gw_tokens *ds, int64_t epoch, int64_t n, bool mask_first) {
    gw_diags dg;
    gw_diags_init(&dg);
    int64_t per = gw_tokens_samples(ds);
    CHECK_EQ(per, s->ntokens - 1 <= n ? 1 : (s->ntokens - 1 + n - 1) / n);
    int *inputs = calloc((size_t)s->ntokens, sizeof *inputs);
    int *targets = calloc((size_t)s->ntokens, sizeof *targets);
    row r = new_row(n);
    int64_t first = -1;
    for (int64_t j = 0; j < per; j++) {
        CHECK_OK(gw_tokens_sample(ds, epoch * per + j, &r.s, &dg), &dg);
        CHECK_EQ(r.s.id, epoch * per + j);
        check_row(s, &r.s, n, mask_first);
        CHECK_EQ(gw_tokens_valid(ds, epoch * per + j), r.s.valid);
        CHECK_EQ(gw_tokens_inputs(ds, epoch * per + j), n - r.s.padded);
        CHECK(r.s.padded == 0 || j == per - 1);
        if (j == 0) first = r.s.tokens[0];
        for (int64_t i = 0; i < n - r.s.padded; i++) {
            inputs[r.s.tokens[i]]++;
            if (r.s.labels[i] != GW_LABEL_MASKED) targets[r.s.labels[i]]++;
        }
    }
    int64_t unseen = 0;
    for (int64_t t = 0; t < s->ntokens; t++) {
        CHECK(inputs[t] <= 1);
        unseen += inputs[t] == 0;
        bool wanted = t != first && !(mask_first && is_doc_start(s, t));
        CHECK_EQ(targets[t], wanted);
    }
    /* The stream's last token may be a label only. */
    CHECK(unseen <= (s->ntokens > 1));
    free(inputs);
    free(targets);
    free_row(&r);
    gw_diags_release(&dg);
}

TEST(every_target_once_an_epoch) {
    static const int64_t DOCS[] = {1, 2, 3, 7, 40}, LONGEST[] = {1, 5, 60};
    static const int64_t SEQ[] = {1, 2, 7, 16, 1000};
    gw_diags dg;
    gw_diags_init(&dg);
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 5; c++)
                for (int k = 0; k < 8; k++) {
                    set s = make_set(DOCS[a], LONGEST[b], k & 1, (uint64_t)(a + 10 * b + k));
                    gw_tokens_options o = gw_tokens_options_default(SEQ[c], 5);
                    gw_tokens *ds;
                    o.mask_first = !(k & 2);
                    o.shuffle = !(k & 4);
                    CHECK_OK(gw_tokens_open_memory(s.tokens, s.ends, s.ndocs, &o, &ds, &dg), &dg);
                    CHECK_EQ(gw_tokens_count(ds), s.ntokens);
                    for (int64_t e = 0; e < 3; e++) check_epoch(&s, ds, e, SEQ[c], o.mask_first);
                    gw_tokens_close(ds);
                    free_set(&s);
                }
    gw_diags_release(&dg);
}

/* One document a row: cut or padded; each document once an epoch. */
TEST(unpacked_rows_are_documents) {
    gw_diags dg;
    gw_diags_init(&dg);
    set s = make_set(23, 30, true, 3);
    for (int64_t n = 1; n <= 40; n += 13) {
        gw_tokens_options o = gw_tokens_options_default(n, 1);
        gw_tokens *ds;
        o.pack = false;
        CHECK_OK(gw_tokens_open_memory(s.tokens, s.ends, s.ndocs, &o, &ds, &dg), &dg);
        int64_t docs = gw_tokens_documents(ds);
        CHECK_EQ(gw_tokens_samples(ds), docs);
        row r = new_row(n);
        for (int64_t e = 0; e < 2; e++) {
            int seen[23] = {0};
            for (int64_t j = 0; j < docs; j++) {
                CHECK_OK(gw_tokens_sample(ds, e * docs + j, &r.s, &dg), &dg);
                check_row(&s, &r.s, n, true);
                CHECK_EQ(gw_tokens_valid(ds, e * docs + j), r.s.valid);
                CHECK_EQ(gw_tokens_inputs(ds, e * docs + j), n - r.s.padded);
                int64_t d = 0;
                while (s.ends[d] <= r.s.tokens[0]) d++;
                CHECK(is_doc_start(&s, r.s.tokens[0]));
                seen[d]++;
                int64_t len = s.ends[d] - r.s.tokens[0];
                CHECK_EQ(r.s.valid, len - 1 < n ? len - 1 : n);
                CHECK_EQ(r.s.docs[n - 1 - r.s.padded], 0);
            }
            for (int64_t d = 0; d < 23; d++) CHECK_EQ(seen[d], s.ends[d] > (d ? s.ends[d - 1] : 0));
        }
        free_row(&r);
        gw_tokens_close(ds);
    }
    free_set(&s);
    gw_diags_release(&dg);
}

/* webdataset#71: local shuffles leave neighbours together. Here the mean displacement of documents
 * is near that of a uniform permutation, n/3, and epochs differ. */
TEST(shuffle_is_wide_and_changes) {
    enum { N = 3000 };
    gw_diags dg;
    gw_diags_init(&dg);
    set s = make_set(N, 1, false, 1);
    gw_tokens_options o = gw_tokens_options_default(1, 9);
    gw_tokens *ds;
    o.mask_first = false;
    o.pack = false;
    CHECK_OK(gw_tokens_open_memory(s.tokens, s.ends, N, &o, &ds, &dg), &dg);
    row r = new_row(1);
    double moved = 0;
    int same = 0, neighbours = 0;
    int32_t before = -5, order0[N];
    for (int64_t j = 0; j < 2 * N; j++) {
        CHECK_OK(gw_tokens_sample(ds, j, &r.s, &dg), &dg);
        int32_t t = r.s.tokens[0];
        if (j < N) order0[j] = t;
        moved += (double)llabs(t - j % N);
        neighbours += t == before + 1;
        same += j >= N && order0[j - N] == t;
        before = t;
    }
    /* Standard deviation of the mean of 6000 is about 0.0031 N; the bound is five of them. */
    CHECK_NEAR(moved / (2.0 * N) / N, 1.0 / 3.0, 0.016);
    CHECK(same < 12);
    CHECK(neighbours < 12);
    free_row(&r);
    gw_tokens_close(ds);
    free_set(&s);
    gw_diags_release(&dg);
}

/* Any order of asking gives the same rows: a sample is a function of its number. */
TEST(samples_do_not_depend_on_history) {
    gw_diags dg;
    gw_diags_init(&dg);
    set s = make_set(17, 20, true, 4);
    gw_tokens_options o = gw_tokens_options_default(8, 2);
    gw_tokens *a, *b;
    CHECK_OK(gw_tokens_open_memory(s.tokens, s.ends, s.ndocs, &o, &a, &dg), &dg);
    CHECK_OK(gw_tokens_open_memory(s.tokens, s.ends, s.ndocs, &o, &b, &dg), &dg);
    row x = new_row(8), y = new_row(8);
    int64_t n = 5 * gw_tokens_samples(a);
    gw_rng_key key = gw_rng_key_named(1, "order");
    int64_t allocations = 0;
    for (int64_t k = 0; k < 300; k++) {
        int64_t j = gw_rng_u32(key, (uint64_t)k) % n;
        CHECK_OK(gw_tokens_sample(a, j, &x.s, &dg), &dg);
        gw_tokens *fresh = b;
        if (k % 10 == 0) {
            gw_tokens_close(b);
            CHECK_OK(gw_tokens_open_memory(s.tokens, s.ends, s.ndocs, &o, &fresh, &dg), &dg);
            b = fresh;
            allocations = gw_mem_count();
        }
        CHECK_OK(gw_tokens_sample(fresh, j, &y.s, &dg), &dg);
        CHECK(!memcmp(x.s.tokens, y.s.tokens, 32) && !memcmp(x.s.labels, y.s.labels, 32));
        CHECK(!memcmp(x.s.docs, y.s.docs, 32) && !memcmp(x.s.positions, y.s.positions, 32));
        CHECK_EQ(gw_mem_count(), allocations);
    }
    free_row(&x);
    free_row(&y);
    gw_tokens_close(a);
    gw_tokens_close(b);
    free_set(&s);
    gw_diags_release(&dg);
}

TEST(bad_sets_are_refused) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokens *ds;
    gw_tokens_options o = gw_tokens_options_default(4, 1);
    static const int32_t IDS[] = {1, 2, 70000, 4};
    CHECK_FAILS(gw_tokens_open_memory(IDS, (const int64_t[]){0, 0}, 2, &o, &ds, &dg), &dg,
                "no tokens");
    gw_diags_clear(&dg);
    o.seq_len = 0;
    CHECK_FAILS(gw_tokens_open_memory(IDS, (const int64_t[]){4}, 1, &o, &ds, &dg), &dg,
                "sequence length");
    gw_diags_clear(&dg);
    o.seq_len = 4;
    o.vocab_size = 50257;
    CHECK_OK(gw_tokens_open_memory(IDS, (const int64_t[]){4}, 1, &o, &ds, &dg), &dg);
    row r = new_row(4);
    CHECK_FAILS(gw_tokens_sample(ds, 0, &r.s, &dg), &dg, "token 2 of document 0 is 70000");
    free_row(&r);
    gw_tokens_close(ds);
    gw_diags_clear(&dg);
    CHECK_FAILS(gw_tokens_open(test_tmp_path("absent"), &o, &ds, &dg), &dg, "absent");
    gw_diags_release(&dg);
}

/* ---- from text ----------------------------------------------------------------------------------
 */

static void build(const char *text, gw_doc_rule rule, const char *want_docs) {
    gw_diags dg;
    gw_tokenizer *t;
    gw_tokens_build_report rep;
    gw_diags_init(&dg);
    char file[512], prefix[512];
    snprintf(file, sizeof file, "%s", test_tmp_path("text"));
    snprintf(prefix, sizeof prefix, "%s", test_tmp_path("set"));
    CHECK_OK(gw_file_write_atomic(file, text, (int64_t)strlen(text), &dg), &dg);
    CHECK_OK(gw_tokenizer_open("bytes", NULL, &t, &dg), &dg);
    gw_tokens_build_options o = {.rule = rule, .append_eos = true};
    CHECK_OK(gw_tokens_build((const char *const[]){file}, 1, t, &o, prefix, &rep, &dg), &dg);
    gw_tokens *ds;
    gw_tokens_options to = gw_tokens_options_default(64, 1);
    to.shuffle = to.mask_first = false;
    to.vocab_size = gw_tokenizer_vocab_size(t);
    CHECK_OK(gw_tokens_open(prefix, &to, &ds, &dg), &dg);
    CHECK_EQ(gw_tokens_count(ds), rep.tokens);
    CHECK_EQ(gw_tokens_documents(ds), rep.documents);
    row r = new_row(64);
    CHECK_OK(gw_tokens_sample(ds, 0, &r.s, &dg), &dg);
    gw_str got = {0};
    for (int64_t i = 0; i < 64 - r.s.padded; i++)
        gw_str_add_char(&got, r.s.tokens[i] == 256 ? '|' : (char)r.s.tokens[i]);
    if (r.s.padded == 0) gw_str_add_char(&got, '|');
    CHECK_STR(gw_str_c(&got), want_docs);
    gw_str_release(&got);
    free_row(&r);
    gw_tokens_close(ds);
    gw_tokenizer_free(t);
    gw_diags_release(&dg);
}

TEST(documents_of_text) {
    build("one\n\ntwo\n\n\nthree\n", GW_DOC_BLANK, "one\n\ntwo|three|");
    build("\n\n\n\na\r\n\r\n\r\n\r\nb", GW_DOC_BLANK, "a|b|");
    build("a\n\n\n\n\n\nb\nc\n\n\n", GW_DOC_BLANK, "a|b\nc|");
    build("a\nb\n\n  \nc", GW_DOC_LINE, "a|b|c|");
    build("a\n\n\nb\n", GW_DOC_FILE, "a\n\n\nb\n|");
    build("{\"text\":\"x\\ny\",\"id\":1}\n\n{\"text\":\"<|endoftext|>\"}\n", GW_DOC_JSONL,
          "x\ny|<|endoftext|>|");
}

TEST(bad_json_lines_are_named) {
    gw_diags dg;
    gw_tokenizer *t;
    gw_diags_init(&dg);
    char file[512];
    snprintf(file, sizeof file, "%s", test_tmp_path("bad.jsonl"));
    static const char TEXT[] = "{\"text\":\"a\"}\n{\"txt\":1}\n";
    CHECK_OK(gw_file_write_atomic(file, TEXT, sizeof TEXT - 1, &dg), &dg);
    CHECK_OK(gw_tokenizer_open("bytes", NULL, &t, &dg), &dg);
    gw_tokens_build_options o = {.rule = GW_DOC_JSONL};
    CHECK_FAILS(
        gw_tokens_build((const char *const[]){file}, 1, t, &o, test_tmp_path("out"), NULL, &dg),
        &dg, "no string 'text'");
    CHECK(strstr(dg.first->frames, "line 2") != NULL);
    CHECK(!gw_path_exists(test_tmp_path("out.idx")));
    gw_tokenizer_free(t);
    gw_diags_release(&dg);
}

/* dolma#152: ids of a large vocabulary wrapped in 16 bits. */
TEST(large_ids_survive_a_file) {
    gw_diags dg;
    gw_diags_init(&dg);
    char prefix[512];
    snprintf(prefix, sizeof prefix, "%s", test_tmp_path("large"));
    gw_midx_writer *w;
    CHECK_OK(gw_midx_writer_new(prefix, 128256, &w, &dg), &dg);
    CHECK_OK(gw_midx_writer_doc(w, (const uint32_t[]){70000, 128255}, 2, &dg), &dg);
    CHECK_OK(gw_midx_writer_doc(w, (const uint32_t[]){5}, 1, &dg), &dg);
    CHECK_OK(gw_midx_writer_finish(w, &dg), &dg);
    gw_midx_writer_free(w);
    gw_tokens_options o = gw_tokens_options_default(4, 1);
    gw_tokens *ds;
    o.shuffle = false;
    CHECK_OK(gw_tokens_open(prefix, &o, &ds, &dg), &dg);
    row r = new_row(4);
    CHECK_OK(gw_tokens_sample(ds, 0, &r.s, &dg), &dg);
    CHECK_EQ(r.s.tokens[0], 70000);
    CHECK_EQ(r.s.tokens[1], 128255);
    CHECK_EQ(r.s.labels[0], 128255);
    CHECK_EQ(r.s.labels[1], GW_LABEL_MASKED);
    CHECK_EQ(r.s.tokens[2], 5);
    free_row(&r);
    gw_tokens_close(ds);
    gw_diags_release(&dg);
}

static void put(gw_str *s, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) gw_str_add_char(s, (char)(v >> (8 * i)));
}

/* Megatron-LM#1672, #1056, gpt-neox#493: offsets in 32 bits went negative. A sparse file of 6 GB.
 */
TEST(offsets_pass_two_gigabytes) {
    enum { EACH = 1 << 30, SEQ = 1000 };
    gw_diags dg;
    gw_diags_init(&dg);
    char prefix[512], path[600];
    snprintf(prefix, sizeof prefix, "%s", test_tmp_path("sparse"));
    gw_str idx = {0};
    gw_str_add_n(&idx, "MMIDIDX\0", 9);
    put(&idx, 1, 8);
    put(&idx, 8, 1); /* u16 */
    put(&idx, 3, 8);
    put(&idx, 4, 8);
    for (int i = 0; i < 3; i++) put(&idx, EACH, 4);
    for (uint64_t i = 0; i < 3; i++) put(&idx, 2 * i * EACH, 8);
    for (uint64_t i = 0; i < 4; i++) put(&idx, i, 8);
    snprintf(path, sizeof path, "%s.idx", prefix);
    CHECK_OK(gw_file_write_atomic(path, idx.data, (int64_t)idx.len, &dg), &dg);
    gw_str_release(&idx);
    snprintf(path, sizeof path, "%s.bin", prefix);
    int64_t total = 3 * (int64_t)EACH;
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    uint16_t last = 777;
    if (fd < 0 || pwrite(fd, &last, 2, 2 * (total - 1)) != 2) SKIP("no sparse files here");
    close(fd);
    gw_tokens_options o = gw_tokens_options_default(SEQ, 1);
    gw_tokens *ds;
    o.shuffle = false;
    CHECK_OK(gw_tokens_open(prefix, &o, &ds, &dg), &dg);
    CHECK_EQ(gw_tokens_count(ds), total);
    int64_t per = gw_tokens_samples(ds), inputs = total - (per - 1) * SEQ;
    CHECK_EQ(per, (total - 1 + SEQ - 1) / SEQ);
    row r = new_row(SEQ);
    CHECK_OK(gw_tokens_sample(ds, 7 * per - 1, &r.s, &dg), &dg);
    CHECK_EQ(r.s.padded, SEQ - inputs);
    CHECK_EQ(r.s.tokens[inputs - 1], 777);
    CHECK_EQ(r.s.labels[inputs - 2], 777);
    free_row(&r);
    gw_tokens_close(ds);
    gw_diags_release(&dg);
}

/* ---- what identifies a set, and sets that change ---- */

static gw_hash128 hash_of(const set *s) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokens *ds;
    gw_tokens_options o = gw_tokens_options_default(16, 1);
    CHECK_OK(gw_tokens_open_memory(s->tokens, s->ends, s->ndocs, &o, &ds, &dg), &dg);
    gw_hash128 h = gw_tokens_hash(ds);
    gw_tokens_close(ds);
    gw_diags_release(&dg);
    return h;
}

TEST(the_hash_sees_any_token_of_a_small_set) {
    set s = make_set(9, 60, true, 5);
    gw_hash128 was = hash_of(&s);
    for (int64_t i = 0; i < s.ntokens; i++) {
        s.tokens[i] ^= 1;
        gw_hash128 is = hash_of(&s);
        CHECK_MSG(is.lo != was.lo, "token %lld", (long long)i);
        s.tokens[i] ^= 1;
    }
    gw_hash128 again = hash_of(&s);
    CHECK(again.lo == was.lo && again.hi == was.hi);
    free_set(&s);
}

/* Few long documents: whatever stretch of 1/4000 of the set is replaced, it is seen. */
TEST(the_hash_looks_all_over_a_large_set) {
    set s = make_set(3, 400000, false, 6);
    CHECK(s.ntokens > 200000);
    gw_hash128 was = hash_of(&s);
    int64_t n = s.ntokens / 4000;
    for (int64_t k = 0; k < 25; k++) {
        int64_t from = k == 24 ? s.ntokens - n : k * (s.ntokens / 25) + 7 * k;
        for (int64_t i = from; i < from + n; i++) s.tokens[i] ^= 1;
        gw_hash128 is = hash_of(&s);
        CHECK_MSG(is.lo != was.lo, "tokens from %lld", (long long)from);
        for (int64_t i = from; i < from + n; i++) s.tokens[i] ^= 1;
    }
    s.tokens[0] ^= 1;
    gw_hash128 first = hash_of(&s);
    s.tokens[0] ^= 1;
    s.tokens[s.ntokens - 1] ^= 1;
    gw_hash128 last = hash_of(&s);
    CHECK(first.lo != was.lo && last.lo != was.lo && first.lo != last.lo);
    free_set(&s);
}

TEST(a_file_cut_short_while_in_use_is_an_error) {
    static const char *const files[] = {"cut.bin", "cut.idx"};
    gw_diags dg;
    gw_diags_init(&dg);
    for (int f = 0; f < 2; f++) {
        gw_midx_writer *w = NULL;
        uint32_t doc[100];
        CHECK_OK(gw_midx_writer_new(test_tmp_path("cut"), 1000, &w, &dg), &dg);
        for (uint32_t d = 0; d < 200; d++) {
            for (uint32_t i = 0; i < 100; i++) doc[i] = (d + i) % 1000;
            CHECK_OK(gw_midx_writer_doc(w, doc, 100, &dg), &dg);
        }
        CHECK_OK(gw_midx_writer_finish(w, &dg), &dg);
        gw_midx_writer_free(w);
        gw_tokens *ds;
        gw_loader *l;
        const gw_step_batch *b;
        gw_tokens_options o = gw_tokens_options_default(16, 1);
        gw_loader_options lo = {.micro_batch = 2, .accumulate = 1, .dp_size = 1};
        CHECK_OK(gw_tokens_open(test_tmp_path("cut.bin"), &o, &ds, &dg), &dg);
        CHECK_OK(gw_loader_open(ds, &lo, &l, &dg), &dg);
        CHECK_OK(gw_loader_next(l, &b, &dg), &dg);
        CHECK(truncate(test_tmp_path(files[f]), 0) == 0);
        row r = new_row(16);
        gw_status st = gw_tokens_sample(ds, 3, &r.s, &dg);
        CHECK_FAILS(st, &dg, strrchr(files[f], '.'));
        CHECK_EQ(st, GW_ERR_IO);
        CHECK(gw_loader_next(l, &b, &dg) == GW_ERR_IO);
        free_row(&r);
        gw_loader_close(l);
        gw_tokens_close(ds);
        gw_diags_clear(&dg);
    }
    gw_diags_release(&dg);
}
