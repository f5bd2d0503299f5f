// SPDX-License-Identifier: Apache-2.0
// Language identification without a downloaded model: script first, then n-grams of letters.
//
// Half of the work is done by the script: Greek, Thai, Hangul, kana and two dozen others belong to
// one language each, as far as training data goes. The languages that share Latin, Cyrillic,
// Arabic, Devanagari or Bengali letters are told apart by the n-grams (1 to 5 letters, "_" at the
// edges of words) that each uses most: a text's score for a language is the sum, over its n-grams,
// of how much more often that language uses them than a floor (naive Bayes with a common floor).
// The profiles are in langid_profiles.inc, learned from packaged translations by make_langid.py.
//
// The sum is too sure of itself, since n-grams of a word are not independent. So it is divided by a
// temperature that grows with the square root of their number before it becomes a probability,
// with a constant that was fitted on held-out text; `bench/filters langid` prints accuracy by
// language and how well the scores are calibrated.
//
// What costs is looking n-grams up. They are a trie in one hash table of 8-byte nodes: where a
// beginning is in no profile, nothing longer is. An n-gram of many languages has its weights as a
// row of bytes, one a language, which is added at once; one of few has a list. A long text is read
// in two turns: the first 160 bytes of each third of what may be read, then the rest, unless the
// same language leads in each and is SURE already.
#include <math.h>
#include <string.h>
#include <utf8proc.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/arena.h"            /* gw_mem_zalloc */
#include "base/compiler.h"         /* GW_PREFETCH */
#include "base/map.h"              /* GW_VEC */
#include "base/str.h"              /* gw_str */
#include "data/text/langid_impl.h" /* langid_builtin */
#include "data/unicode.h"          /* gw_utf8_decode */

typedef enum script {
    LATIN,
    CYRILLIC,
    ARABIC,
    DEVANAGARI,
    BENGALI, /* by n-grams */
    HAN,
    KANA,
    HANGUL,
    GREEK,
    HEBREW,
    THAI,
    LAO,
    KHMER,
    MYANMAR,
    GEORGIAN,
    ARMENIAN,
    TAMIL,
    TELUGU,
    KANNADA,
    MALAYALAM,
    GUJARATI,
    GURMUKHI,
    ORIYA,
    SINHALA,
    TIBETAN,
    ETHIOPIC,
    SCRIPTS,
    NONE = SCRIPTS
} script;
#define GRAM_SCRIPTS HAN /* those before it */
enum { MAX_PROFILES = 96, MAX_N = 5, FLOOR = 42, WORD_MAX = 48 };
enum { HEAD = 160 /* bytes of a third that are read first */, LANES = 64, NODE_BITS = 16 };
#define SURE 0.995f /* of one language: the rest need not be read */

static const char *const only_language[SCRIPTS] = {
    [HAN] = "zh",      [KANA] = "ja",     [HANGUL] = "ko", [GREEK] = "el",   [HEBREW] = "he",
    [THAI] = "th",     [LAO] = "lo",      [KHMER] = "km",  [MYANMAR] = "my", [GEORGIAN] = "ka",
    [ARMENIAN] = "hy", [TAMIL] = "ta",    [TELUGU] = "te", [KANNADA] = "kn", [MALAYALAM] = "ml",
    [GUJARATI] = "gu", [GURMUKHI] = "pa", [ORIYA] = "or",  [SINHALA] = "si", [TIBETAN] = "bo",
    [ETHIOPIC] = "am",
};

typedef struct range {
    uint32_t first, last;
    script s;
} range;
/* Sorted; letters and the marks that words hold, without digits and punctuation. */
static const range ranges[] = {
    {0x41, 0x5a, LATIN},        {0x61, 0x7a, LATIN},        {0xaa, 0xaa, LATIN},
    {0xba, 0xba, LATIN},        {0xc0, 0xd6, LATIN},        {0xd8, 0xf6, LATIN},
    {0xf8, 0x24f, LATIN},       {0x370, 0x3ff, GREEK},      {0x400, 0x52f, CYRILLIC},
    {0x531, 0x587, ARMENIAN},   {0x5d0, 0x5f2, HEBREW},     {0x620, 0x65f, ARABIC},
    {0x66e, 0x6d3, ARABIC},     {0x6d5, 0x6dc, ARABIC},     {0x6e5, 0x6e8, ARABIC},
    {0x6ea, 0x6ef, ARABIC},     {0x6fa, 0x6ff, ARABIC},     {0x750, 0x77f, ARABIC},
    {0x900, 0x963, DEVANAGARI}, {0x971, 0x97f, DEVANAGARI}, {0x980, 0x9e3, BENGALI},
    {0x9f0, 0x9f1, BENGALI},    {0xa01, 0xa75, GURMUKHI},   {0xa81, 0xae3, GUJARATI},
    {0xb01, 0xb63, ORIYA},      {0xb82, 0xbd7, TAMIL},      {0xc00, 0xc63, TELUGU},
    {0xc80, 0xce3, KANNADA},    {0xd00, 0xd63, MALAYALAM},  {0xd81, 0xdf3, SINHALA},
    {0xe01, 0xe4e, THAI},       {0xe81, 0xece, LAO},        {0xf00, 0xfbc, TIBETAN},
    {0x1000, 0x109f, MYANMAR},  {0x10a0, 0x10ff, GEORGIAN}, {0x1100, 0x11ff, HANGUL},
    {0x1200, 0x137f, ETHIOPIC}, {0x1780, 0x17d3, KHMER},    {0x1e00, 0x1eff, LATIN},
    {0x1f00, 0x1fff, GREEK},    {0x200c, 0x200c, ARABIC},   {0x3041, 0x30ff, KANA},
    {0x3400, 0x4dbf, HAN},      {0x4e00, 0x9fff, HAN},      {0xac00, 0xd7a3, HANGUL},
    {0xf900, 0xfaff, HAN},      {0xff66, 0xff9d, KANA},     {0x20000, 0x323af, HAN},
};

static script script_of(uint32_t cp) {
    if (cp < 128) return (cp | 32) - 'a' < 26 ? LATIN : NONE;
    size_t lo = 0, hi = sizeof ranges / sizeof *ranges;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (ranges[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < sizeof ranges / sizeof *ranges && ranges[lo].first <= cp ? ranges[lo].s : NONE;
}

/* Profiles: GROUP names a script, PROFILE a language and its n-grams, "|" one class down. */
typedef struct profile {
    script s;
    const char *code, *grams[4]; /* in parts; NULL behind the last */
} profile;
static const profile profiles[] = {
#define GROUP_latin               LATIN
#define GROUP_cyrillic            CYRILLIC
#define GROUP_arabic              ARABIC
#define GROUP_devanagari          DEVANAGARI
#define GROUP_bengali             BENGALI
#define PROFILE(group, code, ...) {GROUP_##group, #code, {__VA_ARGS__}},
#include "data/text/langid_profiles.inc"
#undef PROFILE
};
#define NPROFILES ((int)(sizeof profiles / sizeof *profiles))

/* Where a profile's score is: a lane among those of its script. */
typedef struct posting {
    uint8_t lane, weight;
} posting;

/* An n-gram, or the beginning of some. Of its hash the low bits are its place, the high ones `tag`;
 * `what` is 0 where it is only a beginning. */
typedef struct node {
    uint32_t tag;
    uint32_t what; /* a list: postings[what >> 3], as many as the low bits; a row: 0 there */
} node;
enum { MOST_LISTED = 5 };

/* An n-gram while the table is made. */
typedef struct feature {
    uint64_t hash;
    uint32_t first, count; /* postings */
    int8_t script;
} feature;

struct langid_builtin {
    node *nodes;
    posting *postings;
    uint8_t *rows; /* rows of 16 bytes; as many for an n-gram as its script has */
    int lane[MAX_PROFILES];
    int lanes[SCRIPTS]; /* profiles of a script */
    uint16_t recent[LANES];
    uint32_t score[LANES], added; /* rows added to `recent` */
    const char *label[MAX_PROFILES];
    float chance[MAX_PROFILES];
};

static uint64_t extend(uint64_t h, uint32_t cp) {
    h = (h ^ cp) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* ------------------------------------------------------------------------------ making it */

/* The n-grams of all profiles, with their beginnings. */
typedef struct maker {
    langid_builtin *b;
    feature *features; /* [1 << NODE_BITS] */
    posting *postings;
} maker;

enum { NODES = 1 << NODE_BITS };

static feature *feature_of(const maker *m, uint64_t h, script s) {
    for (uint64_t i = h;; i++) {
        feature *f = &m->features[i & (NODES - 1)];
        if (f->hash == h) return f;
        if (f->hash) continue;
        f->hash = h;
        f->script = (int8_t)s;
        return f;
    }
}

/* Each n-gram of a profile: counted, or its posting written. */
static void each_gram(maker *m, int p, bool fill) {
    int class = 0;
    script s = profiles[p].s;
    for (int part = 0; part < 4 && profiles[p].grams[part]; part++) {
        const uint8_t *at = (const uint8_t *)profiles[p].grams[part];
        const uint8_t *end = at + strlen(profiles[p].grams[part]);
        uint64_t h = (uint64_t)s + 1;
        int chars = 0;
        bool wide = false;
        for (int len; at < end; at += len) {
            uint32_t cp = gw_utf8_decode(at, end, &len);
            if (cp == ' ') {
                feature *f = chars > 1 || wide ? feature_of(m, h, s) : NULL;
                if (f && fill)
                    m->postings[f->first + f->count] =
                        (posting){(uint8_t)m->b->lane[p], (uint8_t)(FLOOR - class)};
                if (f) f->count++;
                h = (uint64_t)s + 1;
                chars = 0;
                wide = false;
            } else if (cp == '|') {
                class ++;
            } else {
                h = extend(h, cp);
                chars++;
                wide |= cp >= 128;
                feature_of(m, h, s);
            }
        }
    }
}

static int row_bytes(const langid_builtin *b, script s) { return (b->lanes[s] + 15) / 16 * 16; }

/* A feature becomes a node at its own place. */
static void place(maker *m, int i, uint32_t *nlisted, uint32_t *nrows) {
    langid_builtin *b = m->b;
    const feature *f = &m->features[i];
    b->nodes[i] = (node){(uint32_t)(f->hash >> 32), 0};
    if (!f->count) return;
    const posting *from = m->postings + f->first;
    if (f->count <= MOST_LISTED) {
        memcpy(b->postings + *nlisted, from, f->count * sizeof *from);
        b->nodes[i].what = *nlisted << 3 | f->count;
        *nlisted += f->count;
        return;
    }
    for (uint32_t k = 0; k < f->count; k++)
        b->rows[(size_t)*nrows * 16 + from[k].lane] += from[k].weight;
    b->nodes[i].what = *nrows << 3;
    *nrows += (uint32_t)row_bytes(b, (script)f->script) / 16;
}

static void make_tables(maker *m) {
    langid_builtin *b = m->b;
    uint32_t total = 0, listed = 1, rows = 1;
    for (int i = 0; i < NODES; i++) {
        feature *f = &m->features[i];
        f->first = total;
        total += f->count;
        if (f->count > MOST_LISTED) rows += (uint32_t)row_bytes(b, (script)f->script) / 16;
        f->count = 0;
    }
    m->postings = gw_mem_zalloc((total + 1) * sizeof *m->postings);
    for (int p = 0; p < NPROFILES; p++) each_gram(m, p, true);
    b->nodes = gw_mem_zalloc(NODES * sizeof *b->nodes);
    b->postings = gw_mem_zalloc((total + 1) * sizeof *b->postings);
    b->rows = gw_mem_zalloc((size_t)rows * 16 + 16);
    rows = 1;
    for (int i = 0; i < NODES; i++)
        if (m->features[i].hash) place(m, i, &listed, &rows);
}

langid_builtin *langid_builtin_new(void) {
    langid_builtin *b = gw_mem_zalloc(sizeof *b);
    maker m = {.b = b};
    for (int p = 0; p < NPROFILES; p++) b->lane[p] = b->lanes[profiles[p].s]++;
    m.features = gw_mem_zalloc(NODES * sizeof *m.features);
    for (int p = 0; p < NPROFILES; p++) each_gram(&m, p, false);
    make_tables(&m);
    gw_mem_free(m.features);
    gw_mem_free(m.postings);
    return b;
}

void langid_builtin_free(langid_builtin *b) {
    if (!b) return;
    gw_mem_free(b->nodes);
    gw_mem_free(b->postings);
    gw_mem_free(b->rows);
    gw_mem_free(b);
}

/* ------------------------------------------------------------------------------ adding up */

static const node *find(const langid_builtin *b, uint64_t h) {
    uint32_t tag = (uint32_t)(h >> 32);
    for (uint64_t i = h;; i++) {
        const node *f = &b->nodes[i & (NODES - 1)];
        if (f->tag == tag) return f;
        if (!f->tag) return NULL;
    }
}

/* Sums of 16 bits hold 1500 weights of at most 42. */
static void settle(langid_builtin *b) {
    for (int i = 0; i < LANES; i++) b->score[i] += b->recent[i];
    memset(b->recent, 0, sizeof b->recent);
    b->added = 0;
}

static void add_row(langid_builtin *b, const uint8_t *row, int n) {
    if (b->added++ == 1500) settle(b);
#if defined(__SSE2__)
    const __m128i zero = _mm_setzero_si128();
    for (int i = 0; i < n; i += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(row + i));
        __m128i *to = (__m128i *)(void *)(b->recent + i);
        __m128i low = _mm_unpacklo_epi8(x, zero), high = _mm_unpackhi_epi8(x, zero);
        _mm_storeu_si128(to, _mm_add_epi16(_mm_loadu_si128(to), low));
        _mm_storeu_si128(to + 1, _mm_add_epi16(_mm_loadu_si128(to + 1), high));
    }
#else
    for (int i = 0; i < n; i++) b->recent[i] = (uint16_t)(b->recent[i] + row[i]);
#endif
}

static void add_gram(langid_builtin *b, uint32_t what, int row_size) {
    uint32_t count = what & 7, at = what >> 3;
    if (count == 0) {
        add_row(b, b->rows + (size_t)at * 16, row_size);
        return;
    }
    for (uint32_t k = 0; k < count; k++)
        b->score[b->postings[at + k].lane] += b->postings[at + k].weight;
}

/* Adds the n-grams of one word, w[0..n) with "_" at both ends. Returns how many there are. The
 * table is larger than the first cache, so the nodes of all pairs and threes of letters, which
 * nearly all words ask for, are on their way before the first is looked at. */
static int add_word(langid_builtin *b, script s, int row_size, const uint32_t *w, int n) {
    uint64_t one[WORD_MAX + 2], two[WORD_MAX + 2];
    int grams = 0;
    for (int i = 0; i + 1 < n; i++) {
        one[i] = extend((uint64_t)s + 1, w[i]);
        two[i] = extend(one[i], w[i + 1]);
        GW_PREFETCH(&b->nodes[two[i] & (NODES - 1)]);
        if (i + 2 < n) GW_PREFETCH(&b->nodes[extend(two[i], w[i + 2]) & (NODES - 1)]);
    }
    for (int i = 0; i + 1 < n; i++) {
        uint64_t h = one[i];
        int most = GW_MIN(MAX_N, n - i);
        grams += most - (i == 0);
        for (int k = 0; k < most; k++) {
            if (k > 0) h = k == 1 ? two[i] : extend(h, w[i + k]);
            if (k == 0 && w[i] < 128) continue; /* every language has it */
            const node *f = find(b, h);
            if (!f) break;
            if (f->what) add_gram(b, f->what, row_size);
        }
    }
    return grams;
}

/* ------------------------------------------------------------------------------ what is read */

/* A part of a text: what is read of it first, [p, head), and then, [head, end). */
typedef struct window {
    const char *p, *head, *end;
} window;

/* The next white space of ASCII at or behind p. */
static const char *next_space(const char *p, const char *end) {
    while (p < end && (uint8_t)*p > ' ') p++;
    return p;
}

/* Parts of a text: its thirds, cut at white space; of a long one whole characters from its
 * beginning, middle and end. */
static int windows_of(const char *text, int64_t n, window w[3]) {
    const char *end = text + n;
    if (n <= (int64_t)3 * HEAD) {
        w[0] = (window){text, end, end};
        return 1;
    }
    int64_t size = GW_LANGID_BYTES / 3, from[3] = {0, n / 2, n - size};
    const char *second = next_space(text + n / 3, end);
    const char *third = next_space(GW_MAX(second, text + 2 * n / 3), end);
    const char *cuts[4] = {text, second, third, end};
    for (int i = 0; i < 3; i++) {
        const char *p = cuts[i], *q = cuts[i + 1];
        if (n > GW_LANGID_BYTES) {
            p = text + from[i];
            q = p + size;
            while (p < q && ((uint8_t)*p & 0xc0) == 0x80) p++;
            while (q > p && q < end && ((uint8_t)*q & 0xc0) == 0x80) q--;
        }
        w[i] = (window){p, next_space(GW_MIN(p + HEAD, q), q), q};
    }
    return 3;
}

static int add_part(langid_builtin *b, script s, const char *p, const char *end) {
    uint32_t word[WORD_MAX + 2] = {'_'};
    int n = 1, grams = 0, row_size = row_bytes(b, s);
    for (;;) {
        uint32_t cp = ' ';
        int len = 1;
        if (p < end) {
            cp = (uint8_t)*p;
            if (cp < 128) {
                cp = cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
            } else {
                cp = gw_utf8_decode((const uint8_t *)p, (const uint8_t *)end, &len);
                if (cp == 0x2019)
                    cp = '\'';
                else if (cp != GW_CP_INVALID)
                    cp = (uint32_t)utf8proc_tolower((int32_t)cp);
            }
        }
        bool mark = cp == '\'' && n > 1;
        if (mark || script_of(cp) == s) {
            if (n <= WORD_MAX) word[n++] = cp;
        } else if (n > 1) {
            while (n > 1 && word[n - 1] == '\'') n--;
            word[n++] = '_';
            if (n > 2) grams += add_word(b, s, row_size, word, n);
            n = 1;
        }
        if (p >= end) return grams;
        p += len;
    }
}

/* Fitted on held-out text: how the difference of two scores becomes one of probabilities. */
#define HEAT 0.85f

/* Languages that are easily seen in texts of a much larger neighbour: their chance before a word is
 * read, as a logarithm. */
static float before(const char *code) {
    static const char *const rare[] = {"oc", "ast", "ms", "nn", "gl"};
    for (size_t i = 0; i < sizeof rare / sizeof *rare; i++)
        if (!strcmp(code, rare[i])) return i == 4 ? -0.7f : -2.3f;
    return 0;
}

/* Probabilities of the languages of a script, from their scores over `grams` n-grams. Returns their
 * number; *best is the largest. */
static int weigh(langid_builtin *b, script s, int grams, float *best) {
    settle(b);
    *best = 0;
    if (grams < 8) return 0;
    uint32_t top = 0;
    float most = -INFINITY, sum = 0, heat = HEAT / sqrtf((float)grams);
    int count = 0;
    for (int p = 0; p < NPROFILES; p++) {
        if (profiles[p].s != s) continue;
        uint32_t score = b->score[b->lane[p]];
        float x = (float)score * heat + before(profiles[p].code);
        b->label[count] = profiles[p].code;
        b->chance[count++] = x;
        most = GW_MAX(most, x);
        top = GW_MAX(top, score);
    }
    if (top == 0) return 0;
    for (int i = 0; i < count; i++) {
        b->chance[i] = expf(b->chance[i] - most);
        sum += b->chance[i];
    }
    for (int i = 0; i < count; i++) {
        b->chance[i] /= sum;
        *best = GW_MAX(*best, b->chance[i]);
    }
    return count;
}

/* The lane that has gained most since the scores `seen`, which are brought up to date. */
static int leader(langid_builtin *b, uint32_t seen[LANES]) {
    int best = 0;
    uint32_t most = 0;
    settle(b);
    for (int i = 0; i < LANES; i++) {
        uint32_t gain = b->score[i] - seen[i];
        if (gain > most) {
            most = gain;
            best = i;
        }
        seen[i] = b->score[i];
    }
    return best;
}

static int by_grams(langid_builtin *b, script s, const window *w, int nw, float share) {
    uint32_t seen[LANES] = {0};
    int grams = 0, first = 0;
    float best;
    bool rest = false, agree = true;
    memset(b->score, 0, sizeof b->score);
    for (int i = 0; i < nw; i++) {
        grams += add_part(b, s, w[i].p, w[i].head);
        rest |= w[i].head < w[i].end;
        int leads = leader(b, seen);
        agree &= i == 0 || leads == first;
        first = leads;
    }
    int count = weigh(b, s, grams, &best);
    if (rest && (best < SURE || !agree)) {
        for (int i = 0; i < nw; i++) grams += add_part(b, s, w[i].head, w[i].end);
        count = weigh(b, s, grams, &best);
    }
    for (int i = 0; i < count; i++) b->chance[i] *= share;
    return count;
}

/* Letters of ASCII at the front of [p, end), as long as 16 bytes at a time are of ASCII; *p moves
 * behind them. */
static int64_t count_ascii(const char **p, const char *end) {
    int64_t n = 0;
#if defined(__SSE2__)
    for (; end - *p >= 16; *p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)*p);
        if (_mm_movemask_epi8(x)) break;
        x = _mm_or_si128(x, _mm_set1_epi8(0x20));
        __m128i letters = _mm_and_si128(_mm_cmpgt_epi8(x, _mm_set1_epi8('a' - 1)),
                                        _mm_cmplt_epi8(x, _mm_set1_epi8('z' + 1)));
        n += __builtin_popcount((unsigned)_mm_movemask_epi8(letters));
    }
#else
    (void)p;
    (void)end;
#endif
    return n;
}

/* Letters of each script, as bytes in UTF-8: a Chinese character says as much as three letters. */
static int64_t count_scripts(const window *w, int nw, int64_t bytes[SCRIPTS]) {
    int64_t all = 0;
    for (int i = 0; i < nw; i++) {
        const char *p = w[i].p;
        while (p < w[i].end) {
            bytes[LATIN] += count_ascii(&p, w[i].end);
            const char *stop = w[i].end - p > 16 ? p + 16 : w[i].end;
            for (int len; p < stop; p += len) {
                uint32_t cp = (uint8_t)*p;
                len = 1;
                if (cp >= 128)
                    cp = gw_utf8_decode((const uint8_t *)p, (const uint8_t *)w[i].end, &len);
                script s = script_of(cp);
                if (s != NONE) bytes[s] += len;
            }
        }
    }
    for (int s = 0; s < SCRIPTS; s++) all += bytes[s];
    return all;
}

int langid_builtin_top(langid_builtin *b, const char *text, int64_t n, int k, const char **labels,
                       float *scores) {
    window w[3];
    int nw = windows_of(text, n, w), count = 0;
    int64_t bytes[SCRIPTS] = {0}, all = count_scripts(w, nw, bytes);
    if (all < 4) return 0;
    /* Japanese writes Han too: a twentieth of kana among both decides. */
    if (bytes[KANA] * 20 >= bytes[KANA] + bytes[HAN]) {
        bytes[KANA] += bytes[HAN];
        bytes[HAN] = 0;
    }
    script s = LATIN;
    for (int i = 0; i < SCRIPTS; i++)
        if (bytes[i] > bytes[s]) s = (script)i;
    float share = (float)bytes[s] / (float)all;
    if (s < GRAM_SCRIPTS) {
        count = by_grams(b, s, w, nw, share);
    } else {
        b->label[0] = only_language[s];
        b->chance[0] = share * 0.99f;
        count = 1;
    }
    int got = 0;
    for (; got < k && got < count; got++) {
        int best = -1;
        for (int i = 0; i < count; i++)
            if (b->chance[i] >= 0 && (best < 0 || b->chance[i] > b->chance[best])) best = i;
        labels[got] = b->label[best];
        scores[got] = b->chance[best];
        b->chance[best] = -1;
    }
    return got;
}

struct gw_langid {
    langid_builtin *builtin;
    langid_model *model;
    gw_str text;
};

gw_status gw_langid_open(const char *spec, gw_langid **out, gw_diags *dg) {
    *out = NULL;
    gw_langid *l = gw_mem_zalloc(sizeof *l);
    gw_status s = GW_OK;
    if (gw_str_eq(spec, "builtin"))
        l->builtin = langid_builtin_new();
    else
        s = langid_model_open(spec, &l->model, dg);
    if (s == GW_OK)
        *out = l;
    else
        gw_langid_free(l);
    return s;
}

void gw_langid_free(gw_langid *l) {
    if (!l) return;
    langid_builtin_free(l->builtin);
    langid_model_free(l->model);
    gw_str_release(&l->text);
    gw_mem_free(l);
}

int gw_langid_top(gw_langid *l, const char *text, int64_t n, int k, const char **labels,
                  float *scores) {
    if (l->builtin) return langid_builtin_top(l->builtin, text, n, k, labels, scores);
    gw_str_clear(&l->text);
    gw_str_add_n(&l->text, text, (size_t)n);
    for (size_t i = 0; i < l->text.len; i++)
        if (l->text.data[i] == '\n') l->text.data[i] = ' ';
    return langid_model_top(l->model, gw_str_c(&l->text), n, k, labels, scores);
}

enum { LEAST_SCORE = 15 /* hundredths */ };

void gw_langid_detect(gw_langid *l, const char *text, int64_t n, char lang[8], float *score) {
    const char *label;
    lang[0] = 0;
    *score = 0;
    float s;
    if (!gw_langid_top(l, text, n, 1, &label, &s)) return;
    if (l->builtin && s < (float)LEAST_SCORE / 100) return;
    size_t size = strlen(label);
    if (size > 7) size = 7;
    memcpy(lang, label, size);
    lang[size] = 0;
    *score = s > 1 ? 1 : s >= 0 ? s : 0; /* a damaged model may give anything */
}

int gw_langid_builtin_languages(const char *const **codes) {
    static const char *const sorted[] = {
#define PROFILE(group, code, ...) #code,
#include "data/text/langid_profiles.inc"
#undef PROFILE
        "zh", "ja", "ko", "el", "he", "th", "lo", "km", "my", "ka", "hy",
        "ta", "te", "kn", "ml", "gu", "pa", "or", "si", "bo", "am",
    };
    *codes = sorted;
    return (int)(sizeof sorted / sizeof *sorted);
}

const char *gw_langid_version(const gw_langid *l) {
    return l->builtin ? "builtin-2" : langid_model_version(l->model);
}
