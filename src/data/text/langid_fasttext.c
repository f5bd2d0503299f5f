// SPDX-License-Identifier: Apache-2.0
// Supervised models of fastText, full (.bin) and quantised (.ftz), read as its library writes them.
//
// A file holds arguments, a dictionary of words and labels, and two matrices. A text is the mean of
// the rows of its words, of the n-grams of characters of each word ("<" and ">" at its ends) and of
// words, the latter two by a hash into buckets; labels are scored by a softmax, by a Huffman tree
// of their counts (hs), or each by itself. Quantised matrices hold codes of product quantisation,
// and their dictionary a table of the buckets that were kept.
//
// The file is mapped, and every count is checked against what is left of it before it is used, so a
// cut or damaged file is refused with the offset where it stops making sense. Scores are the
// library's: it adds 1e-5 to a probability before it takes its logarithm.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"            /* gw_arena */
#include "base/hash.h"             /* gw_hash128_of */
#include "base/io.h"               /* gw_mapping */
#include "base/map.h"              /* gw_smap, GW_VEC */
#include "data/text/langid_impl.h" /* langid_model */

enum {
    MAGIC = 793712314,
    VERSION = 12,
    LOSS_HS = 1,
    LOSS_NS = 2,
    LOSS_SOFTMAX = 3,
    LOSS_OVA = 4,
    SUPERVISED = 3,
    KSUB = 256
};

typedef struct quantizer {
    int32_t dim, nsubq, dsub, lastdsub;
    const uint8_t *centroids; /* float [dim * KSUB] */
} quantizer;

typedef struct matrix {
    int64_t rows, cols;
    const uint8_t *data; /* float [rows * cols], or codes */
    bool quantized, qnorm;
    quantizer pq, npq;
    const uint8_t *norm_codes;
} matrix;

typedef struct tree_node {
    int32_t left, right;
    int64_t count;
} tree_node;

struct langid_model {
    gw_mapping file;
    gw_arena arena;
    char version[48];
    int32_t dim, word_ngrams, loss, bucket, minn, maxn, nwords, nlabels;
    int64_t pruned; /* number of kept buckets, -1: all */
    gw_smap words;
    gw_imap kept;
    const char **labels;
    int64_t *label_counts;
    matrix input, output;
    tree_node *tree;
    float *hidden, *scores;
    bool *taken;
    GW_VEC(int64_t) rows;
    GW_VEC(int32_t) hashes;
    gw_str word;
    int32_t *stack;
    float *stack_score;
};

typedef struct reader {
    const uint8_t *p, *begin, *end;
    const char *path;
    gw_diags *dg;
    bool bad;
} reader;

static const uint8_t *take(reader *r, int64_t n) {
    if (r->bad || n < 0 || n > r->end - r->p) {
        if (!r->bad) {
            gw_status s = GW_FAIL(r->dg, GW_ERR_FORMAT, "data-langid-model",
                                  "%s: the model ends, or makes no sense, at byte %lld", r->path,
                                  (long long)(r->p - r->begin));
            (void)s;
        }
        r->bad = true;
        return NULL;
    }
    const uint8_t *at = r->p;
    r->p += n;
    return at;
}
static int32_t take_i32(reader *r) {
    int32_t x = 0;
    const uint8_t *p = take(r, 4);
    if (p) memcpy(&x, p, 4);
    return x;
}
static int64_t take_i64(reader *r) {
    int64_t x = 0;
    const uint8_t *p = take(r, 8);
    if (p) memcpy(&x, p, 8);
    return x;
}
static bool take_bool(reader *r) {
    const uint8_t *p = take(r, 1);
    return p && *p;
}
/* A product of counts that cannot overflow past the file. */
static const uint8_t *take_array(reader *r, int64_t a, int64_t b, int64_t size) {
    int64_t room = r->bad ? 0 : r->end - r->p;
    if (a < 0 || b < 0 || (a && b > room / a) || a * b > room / size) return take(r, -1);
    return take(r, a * b * size);
}
static void refuse(reader *r, const char *why) {
    if (r->bad) return;
    r->bad = true;
    gw_status s = GW_FAIL(r->dg, GW_ERR_FORMAT, "data-langid-model", "%s: %s (byte %lld)", r->path,
                          why, (long long)(r->p - r->begin));
    (void)s;
}

static void read_args(langid_model *m, reader *r) {
    if (take_i32(r) != MAGIC) {
        refuse(r, "not a model of fastText");
        return;
    }
    int32_t version = take_i32(r);
    if (!r->bad && (version < 11 || version > VERSION)) {
        refuse(r, "a version of fastText's format other than 11 and 12");
        return;
    }
    m->dim = take_i32(r);
    for (int i = 0; i < 4; i++) take_i32(r); /* ws, epoch, minCount, neg */
    m->word_ngrams = take_i32(r);
    m->loss = take_i32(r);
    int32_t kind = take_i32(r);
    m->bucket = take_i32(r);
    m->minn = take_i32(r);
    m->maxn = take_i32(r);
    take_i32(r); /* lrUpdateRate */
    take(r, 8);  /* t */
    if (r->bad) return;
    if (kind != SUPERVISED) refuse(r, "word vectors, not a supervised model: it has no labels");
    if (version == 11) m->maxn = 0;
    if (m->dim < 1 || m->dim > 65536 || m->bucket < 0 || m->word_ngrams < 0 || m->maxn > 100)
        refuse(r, "arguments out of range");
    if (m->loss < LOSS_HS || m->loss > LOSS_OVA) refuse(r, "an unknown loss");
    if (m->bucket == 0 && (m->maxn > 0 || m->word_ngrams > 1)) refuse(r, "n-grams without buckets");
}

static void read_dictionary(langid_model *m, reader *r) {
    int32_t size = take_i32(r);
    m->nwords = take_i32(r);
    m->nlabels = take_i32(r);
    take_i64(r); /* ntokens */
    m->pruned = take_i64(r);
    if (r->bad) return;
    if (m->nwords < 0 || m->nlabels < 1 || size != (int64_t)m->nwords + m->nlabels ||
        size > r->end - r->p) {
        refuse(r, "counts of words and labels that do not fit");
        return;
    }
    m->labels = gw_arena_new(&m->arena, const char *, m->nlabels);
    m->label_counts = gw_arena_new(&m->arena, int64_t, m->nlabels);
    for (int32_t i = 0; i < size; i++) {
        const uint8_t *zero = memchr(r->p, 0, (size_t)(r->end - r->p));
        const char *text = (const char *)r->p;
        int64_t n = zero ? zero - r->p : -1;
        take(r, n < 0 ? -1 : n + 1);
        int64_t count = take_i64(r);
        const uint8_t *type = take(r, 1);
        if (r->bad) return;
        bool label = i >= m->nwords;
        if (*type != label) {
            refuse(r, "words and labels out of order");
            return;
        }
        if (label) {
            m->labels[i - m->nwords] = strncmp(text, "__label__", 9) == 0 ? text + 9 : text;
            m->label_counts[i - m->nwords] = count;
        } else {
            gw_smap_put(&m->words, text, (size_t)n, (uint32_t)i);
        }
    }
    if (m->pruned > (int64_t)m->bucket || m->pruned < -1)
        refuse(r, "more buckets kept than there are");
    for (int64_t i = 0; i < m->pruned && !r->bad; i++) {
        int32_t from = take_i32(r), to = take_i32(r);
        if (from < 0 || to < 0 || to >= m->pruned)
            refuse(r, "a kept bucket out of range");
        else
            gw_imap_put(&m->kept, (uint64_t)from, (uint32_t)to);
    }
}

static void read_quantizer(quantizer *q, reader *r) {
    q->dim = take_i32(r);
    q->nsubq = take_i32(r);
    q->dsub = take_i32(r);
    q->lastdsub = take_i32(r);
    if (r->bad) return;
    if (q->dim < 1 || q->dim > 65536 || q->nsubq < 1 || q->dsub < 1 || q->lastdsub < 1 ||
        q->lastdsub > q->dsub || (int64_t)(q->nsubq - 1) * q->dsub + q->lastdsub != q->dim) {
        refuse(r, "a quantiser whose parts do not add up");
        return;
    }
    q->centroids = take_array(r, q->dim, KSUB, 4);
}

static void read_matrix(matrix *x, bool quantized, reader *r) {
    x->quantized = quantized;
    if (!quantized) {
        x->rows = take_i64(r);
        x->cols = take_i64(r);
        x->data = take_array(r, x->rows, x->cols, 4);
        return;
    }
    x->qnorm = take_bool(r);
    x->rows = take_i64(r);
    x->cols = take_i64(r);
    int32_t codes = take_i32(r);
    x->data = take_array(r, codes, 1, 1);
    read_quantizer(&x->pq, r);
    if (!r->bad && (x->rows < 0 || x->cols != x->pq.dim || x->rows > INT32_MAX / x->pq.nsubq ||
                    codes != x->rows * x->pq.nsubq))
        refuse(r, "codes that do not fit their matrix");
    if (!x->qnorm) return;
    x->norm_codes = take_array(r, x->rows, 1, 1);
    read_quantizer(&x->npq, r);
    if (!r->bad && x->npq.dim != 1) refuse(r, "norms of more than one number");
}

static void build_tree(langid_model *m) {
    int32_t n = m->nlabels, total = 2 * n - 1;
    m->tree = gw_arena_new(&m->arena, tree_node, total);
    for (int32_t i = 0; i < total; i++)
        m->tree[i] = (tree_node){-1, -1, i < n ? m->label_counts[i] : 1000000000000000};
    int32_t leaf = n - 1, node = n;
    for (int32_t i = n; i < total; i++) {
        int32_t least[2];
        for (int j = 0; j < 2; j++) {
            /* Of a damaged file counts may be anything: only nodes that were made are taken. */
            bool take_leaf = leaf >= 0 && (node >= i || m->tree[leaf].count < m->tree[node].count);
            least[j] = take_leaf ? leaf-- : node++;
        }
        m->tree[i].left = least[0];
        m->tree[i].right = least[1];
        m->tree[i].count =
            (int64_t)((uint64_t)m->tree[least[0]].count + (uint64_t)m->tree[least[1]].count);
    }
    m->stack = gw_arena_new(&m->arena, int32_t, total + 1);
    m->stack_score = gw_arena_new(&m->arena, float, total + 1);
}

gw_status langid_model_open(const char *path, langid_model **out, gw_diags *dg) {
    *out = NULL;
    langid_model *m = gw_mem_zalloc(sizeof *m);
    gw_status s = gw_map_open(&m->file, path, dg);
    if (s != GW_OK) {
        gw_mem_free(m);
        return s;
    }
    reader r = {m->file.data, m->file.data, m->file.data + m->file.bytes, path, dg, false};
    read_args(m, &r);
    if (!r.bad) read_dictionary(m, &r);
    bool quantized = !r.bad && take_bool(&r);
    if (!r.bad) read_matrix(&m->input, quantized, &r);
    bool qout = !r.bad && take_bool(&r);
    if (!r.bad) read_matrix(&m->output, quantized && qout, &r);
    int64_t rows = (int64_t)m->nwords + (m->pruned >= 0 ? m->pruned : m->bucket);
    if (!r.bad && (m->input.cols != m->dim || m->output.cols != m->dim ||
                   m->output.rows != m->nlabels || m->input.rows < rows))
        refuse(&r, "matrices that do not fit the dictionary");
    if (!r.bad && !quantized && m->pruned >= 0) refuse(&r, "a pruned dictionary without codes");
    if (r.bad) {
        langid_model_free(m);
        return GW_ERR_FORMAT;
    }
    if (m->loss == LOSS_HS) build_tree(m);
    m->hidden = gw_arena_new(&m->arena, float, m->dim);
    m->scores = gw_arena_new(&m->arena, float, m->nlabels);
    m->taken = gw_arena_new(&m->arena, bool, m->nlabels);
    char hex[33];
    snprintf(m->version, sizeof m->version, "fasttext:%s",
             gw_hash128_hex(hex, gw_hash128_of(m->file.data, (size_t)m->file.bytes)));
    *out = m;
    return GW_OK;
}

void langid_model_free(langid_model *m) {
    if (!m) return;
    gw_smap_release(&m->words);
    gw_imap_release(&m->kept);
    gw_vec_release(&m->rows);
    gw_vec_release(&m->hashes);
    gw_str_release(&m->word);
    gw_arena_release(&m->arena);
    gw_map_release(&m->file);
    gw_mem_free(m);
}

const char *langid_model_version(const langid_model *m) { return m->version; }

static float float_at(const uint8_t *p, int64_t i) {
    float x;
    memcpy(&x, p + 4 * i, 4);
    return x;
}

static const uint8_t *centroid(const quantizer *q, int32_t part, uint8_t code) {
    if (part == q->nsubq - 1)
        return q->centroids + 4 * ((int64_t)part * KSUB * q->dsub + (int64_t)code * q->lastdsub);
    return q->centroids + 4 * (((int64_t)part * KSUB + code) * q->dsub);
}

/* out += row; or, with `dot`, the product of the row and out. */
static float use_row(const matrix *x, int64_t row, float *out, bool dot) {
    float sum = 0;
    if (!x->quantized) {
        const uint8_t *p = x->data + 4 * row * x->cols;
        for (int64_t i = 0; i < x->cols; i++) {
            if (dot)
                sum += float_at(p, i) * out[i];
            else
                out[i] += float_at(p, i);
        }
        return sum;
    }
    float norm = x->qnorm ? float_at(centroid(&x->npq, 0, x->norm_codes[row]), 0) : 1;
    const uint8_t *codes = x->data + row * x->pq.nsubq;
    int64_t at = 0;
    for (int32_t part = 0; part < x->pq.nsubq; part++) {
        const uint8_t *c = centroid(&x->pq, part, codes[part]);
        int32_t n = part == x->pq.nsubq - 1 ? x->pq.lastdsub : x->pq.dsub;
        for (int32_t i = 0; i < n; i++, at++) {
            if (dot)
                sum += float_at(c, i) * out[at];
            else
                out[at] += norm * float_at(c, i);
        }
    }
    return sum * norm;
}

static uint32_t hash_of(const char *p, int64_t n) {
    uint32_t h = 2166136261u;
    for (int64_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)p[i];
        uint32_t wide = c < 128 ? c : c | 0xffffff00u; /* the library extends the sign */
        h = (h ^ wide) * 16777619u;
    }
    return h;
}

static void push_bucket(langid_model *m, uint64_t id) {
    if (m->pruned == 0) return;
    if (m->pruned > 0) {
        uint32_t to;
        if (!gw_imap_find(&m->kept, id, &to)) return;
        id = to;
    }
    gw_vec_push(&m->rows, m->nwords + (int64_t)id);
}

static void push_subwords(langid_model *m, const char *word, int64_t n) {
    if (m->maxn <= 0) return;
    gw_str_clear(&m->word);
    gw_str_add_char(&m->word, '<');
    gw_str_add_n(&m->word, word, (size_t)n);
    gw_str_add_char(&m->word, '>');
    const char *w = m->word.data;
    int64_t size = (int64_t)m->word.len;
    for (int64_t i = 0; i < size; i++) {
        if (((uint8_t)w[i] & 0xc0) == 0x80) continue;
        int64_t j = i;
        for (int k = 1; j < size && k <= m->maxn; k++) {
            j++;
            while (j < size && ((uint8_t)w[j] & 0xc0) == 0x80) j++;
            if (k >= m->minn && !(k == 1 && (i == 0 || j == size)))
                push_bucket(m, hash_of(w + i, j - i) % (uint32_t)m->bucket);
        }
    }
}

static void push_word(langid_model *m, const char *p, int64_t n) {
    static const char eos[] = "</s>";
    uint32_t id;
    bool known = gw_smap_find(&m->words, p, (size_t)n, &id);
    if (!known && n >= 9 && !memcmp(p, "__label__", 9)) return;
    bool end = n == 4 && !memcmp(p, eos, 4);
    if (known) gw_vec_push(&m->rows, (int64_t)id);
    if (!end) push_subwords(m, p, n);
    gw_vec_push(&m->hashes, (int32_t)hash_of(p, n));
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == 0; }

/* Rows of the words, of their parts, and of word n-grams. The library ends a line with "</s>", at
 * the first one that stands in it too. */
static void collect(langid_model *m, const char *text, int64_t n) {
    m->rows.count = m->hashes.count = 0;
    for (int64_t i = 0; i < n;) {
        while (i < n && is_space(text[i])) i++;
        int64_t from = i;
        while (i < n && !is_space(text[i])) i++;
        if (i == from) break;
        if (i - from == 4 && !memcmp(text + from, "</s>", 4)) break;
        push_word(m, text + from, i - from);
    }
    push_word(m, "</s>", 4);
    for (int64_t i = 0; i < m->hashes.count; i++) {
        uint64_t h = (uint64_t)(int64_t)m->hashes.items[i];
        for (int64_t j = i + 1; j < m->hashes.count && j < i + m->word_ngrams; j++) {
            h = h * 116049371u + (uint64_t)(int64_t)m->hashes.items[j];
            push_bucket(m, h % (uint64_t)m->bucket);
        }
    }
}

static float soft_log(float x) { return logf(x + 1e-5f); }

/* Scores of the leaves: sums of logarithms on the way from the root. */
static void walk_tree(langid_model *m) {
    int32_t n = m->nlabels, top = 0;
    for (int32_t i = 0; i < n; i++) m->scores[i] = -1;
    m->stack[top] = 2 * n - 2;
    m->stack_score[top++] = 0;
    while (top) {
        int32_t node = m->stack[--top];
        float score = m->stack_score[top];
        if (score < soft_log(0)) continue; /* the library does not list it */
        if (m->tree[node].left < 0) {
            m->scores[node] = expf(score);
            continue;
        }
        float f = use_row(&m->output, node - n, m->hidden, true);
        f = 1 / (1 + expf(-f));
        m->stack[top] = m->tree[node].left;
        m->stack_score[top++] = score + soft_log(1 - f);
        m->stack[top] = m->tree[node].right;
        m->stack_score[top++] = score + soft_log(f);
    }
}

/* The library takes these from a table of 512 steps. */
static float table_sigmoid(float x) {
    if (!(x >= -8)) return 0;
    if (x > 8) return 1;
    int step = (int)((x + 8) * 512 / 8 / 2);
    return 1 / (1 + expf(8 - (float)(step * 16) / 512));
}

static void score_labels(langid_model *m) {
    if (m->loss == LOSS_HS) {
        walk_tree(m);
        return;
    }
    float most = -INFINITY, sum = 0;
    for (int32_t i = 0; i < m->nlabels; i++) {
        m->scores[i] = use_row(&m->output, i, m->hidden, true);
        if (m->scores[i] > most) most = m->scores[i];
    }
    for (int32_t i = 0; i < m->nlabels; i++) {
        if (m->loss == LOSS_SOFTMAX)
            m->scores[i] = expf(m->scores[i] - most);
        else
            m->scores[i] = table_sigmoid(m->scores[i]);
        sum += m->scores[i];
    }
    for (int32_t i = 0; i < m->nlabels; i++)
        m->scores[i] = (m->loss == LOSS_SOFTMAX ? m->scores[i] / sum : m->scores[i]) + 1e-5f;
}

int langid_model_top(langid_model *m, const char *text, int64_t n, int k, const char **labels,
                     float *scores) {
    collect(m, text, n);
    if (!m->rows.count) return 0;
    memset(m->hidden, 0, (size_t)m->dim * sizeof(float));
    for (int64_t i = 0; i < m->rows.count; i++)
        use_row(&m->input, m->rows.items[i], m->hidden, false);
    for (int32_t i = 0; i < m->dim; i++) m->hidden[i] /= (float)m->rows.count;
    score_labels(m);
    memset(m->taken, 0, (size_t)m->nlabels * sizeof(bool));
    int got = 0;
    for (; got < k && got < m->nlabels; got++) {
        int32_t best = -1;
        for (int32_t i = 0; i < m->nlabels; i++)
            if (!m->taken[i] && !(m->scores[i] < 0) && (best < 0 || m->scores[i] > m->scores[best]))
                best = i;
        if (best < 0) break;
        m->taken[best] = true;
        labels[got] = m->labels[best];
        scores[got] = m->scores[best];
    }
    return got;
}
