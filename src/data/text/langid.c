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
#include <math.h>
#include <string.h>
#include <utf8proc.h>

#include "base/arena.h"            /* gw_mem_zalloc */
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

typedef struct posting {
    uint8_t profile, weight;
} posting;
/* An n-gram: postings[first .. first + count). */
typedef struct feature {
    uint64_t hash;
    uint32_t first;
    uint16_t count;
} feature;

struct langid_builtin {
    feature *features;
    uint64_t mask;
    posting *postings;
    float score[MAX_PROFILES];
    const char *label[MAX_PROFILES];
    float chance[MAX_PROFILES];
};

static uint64_t extend(uint64_t h, uint32_t cp) {
    h = (h ^ cp) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static feature *find(const langid_builtin *b, uint64_t h) {
    for (uint64_t i = h;; i++) {
        feature *f = &b->features[i & b->mask];
        if (f->hash == h || !f->count) return f;
    }
}

static void note(langid_builtin *b, uint64_t h, int p, int class, bool fill) {
    feature *f = find(b, h);
    f->hash = h;
    if (fill)
        b->postings[f->first++] = (posting){(uint8_t)p, (uint8_t)(FLOOR - class)};
    else
        f->count++;
}

/* Each n-gram of a profile: counted, or its posting written. */
static void each_gram(langid_builtin *b, int p, bool fill) {
    int class = 0;
    uint64_t start = (uint64_t)profiles[p].s + 1;
    for (int part = 0; part < 4 && profiles[p].grams[part]; part++) {
        const uint8_t *at = (const uint8_t *)profiles[p].grams[part];
        const uint8_t *end = at + strlen(profiles[p].grams[part]);
        uint64_t h = start;
        int chars = 0;
        bool wide = false;
        for (int len; at < end; at += len) {
            uint32_t cp = gw_utf8_decode(at, end, &len);
            if (cp == ' ') {
                if (chars > 1 || wide) note(b, h, p, class, fill);
                h = start;
                chars = 0;
                wide = false;
            } else if (cp == '|') {
                class ++;
            } else {
                h = extend(h, cp);
                chars++;
                wide |= cp >= 128;
            }
        }
    }
}

langid_builtin *langid_builtin_new(void) {
    langid_builtin *b = gw_mem_zalloc(sizeof *b);
    b->mask = (1u << 17) - 1;
    b->features = gw_mem_zalloc((b->mask + 1) * sizeof *b->features);
    for (int p = 0; p < NPROFILES; p++) each_gram(b, p, false);
    uint32_t total = 0;
    for (uint64_t i = 0; i <= b->mask; i++) {
        b->features[i].first = total;
        total += b->features[i].count;
    }
    b->postings = gw_mem_zalloc((total + 1) * sizeof *b->postings);
    for (int p = 0; p < NPROFILES; p++) each_gram(b, p, true);
    for (uint64_t i = 0; i <= b->mask; i++) b->features[i].first -= b->features[i].count;
    return b;
}

void langid_builtin_free(langid_builtin *b) {
    if (!b) return;
    gw_mem_free(b->features);
    gw_mem_free(b->postings);
    gw_mem_free(b);
}

/* Adds the n-grams of one word, w[0..n) with "_" at both ends. */
static int add_word(langid_builtin *b, script s, const uint32_t *w, int n) {
    int grams = 0;
    for (int i = 0; i < n; i++) {
        uint64_t h = (uint64_t)s + 1;
        for (int k = 0; k < MAX_N && i + k < n; k++) {
            h = extend(h, w[i + k]);
            if (k == 0 && w[i] == '_') continue;
            grams++;
            if (k == 0 && w[i] < 128) continue; /* every language has it */
            const feature *f = find(b, h);
            for (uint32_t p = 0; p < f->count; p++) {
                posting q = b->postings[f->first + p];
                b->score[q.profile] += (float)q.weight;
            }
        }
    }
    return grams;
}

/* Parts of a long text: whole characters from each third. */
typedef struct window {
    const char *p, *end;
} window;
static int windows_of(const char *text, int64_t n, window w[3]) {
    if (n <= GW_LANGID_BYTES) {
        w[0] = (window){text, text + n};
        return 1;
    }
    int64_t size = GW_LANGID_BYTES / 3, from[3] = {0, n / 2, n - size};
    for (int i = 0; i < 3; i++) {
        const char *p = text + from[i], *end = p + size;
        while (p < end && ((uint8_t)*p & 0xc0) == 0x80) p++;
        while (end > p && end < text + n && ((uint8_t)*end & 0xc0) == 0x80) end--;
        w[i] = (window){p, end};
    }
    return 3;
}

static int add_window(langid_builtin *b, script s, window w) {
    uint32_t word[WORD_MAX + 2] = {'_'};
    int n = 1, grams = 0;
    for (const char *p = w.p;;) {
        uint32_t cp = ' ';
        int len = 1;
        if (p < w.end) {
            cp = gw_utf8_decode((const uint8_t *)p, (const uint8_t *)w.end, &len);
            if (cp < 128)
                cp = cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
            else if (cp == 0x2019)
                cp = '\'';
            else if (cp != GW_CP_INVALID)
                cp = (uint32_t)utf8proc_tolower((int32_t)cp);
        }
        bool mark = cp == '\'' && n > 1;
        if (mark || script_of(cp) == s) {
            if (n <= WORD_MAX) word[n++] = cp;
        } else if (n > 1) {
            while (n > 1 && word[n - 1] == '\'') n--;
            word[n++] = '_';
            if (n > 2) grams += add_word(b, s, word, n);
            n = 1;
        }
        if (p >= w.end) return grams;
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

static int by_grams(langid_builtin *b, script s, const window *w, int nw, float share) {
    memset(b->score, 0, sizeof b->score);
    int grams = 0, count = 0;
    for (int i = 0; i < nw; i++) grams += add_window(b, s, w[i]);
    if (grams < 8) return 0;
    float best = -INFINITY, most = 0, sum = 0, heat = HEAT / sqrtf((float)grams);
    for (int p = 0; p < NPROFILES; p++) {
        if (profiles[p].s != s) continue;
        float x = b->score[p] * heat + before(profiles[p].code);
        b->label[count] = profiles[p].code;
        b->chance[count++] = x;
        if (x > best) best = x;
        if (b->score[p] > most) most = b->score[p];
    }
    if (most == 0) return 0;
    for (int i = 0; i < count; i++) {
        b->chance[i] = expf(b->chance[i] - best);
        sum += b->chance[i];
    }
    for (int i = 0; i < count; i++) b->chance[i] *= share / sum;
    return count;
}

/* Letters of each script, as bytes in UTF-8: a Chinese character says as much as three letters. */
static int64_t count_scripts(const window *w, int nw, int64_t bytes[SCRIPTS]) {
    int64_t all = 0;
    for (int i = 0; i < nw; i++) {
        int len;
        for (const char *p = w[i].p; p < w[i].end; p += len) {
            uint32_t cp = gw_utf8_decode((const uint8_t *)p, (const uint8_t *)w[i].end, &len);
            script s = script_of(cp);
            if (s == NONE) continue;
            bytes[s] += len;
            all += len;
        }
    }
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
    return l->builtin ? "builtin-1" : langid_model_version(l->model);
}
