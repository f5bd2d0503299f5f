// SPDX-License-Identifier: Apache-2.0
// RefinedWeb's corrections of lines, and word lists, as DCLM's mappers have them.
//
// Penedo et al. 2023 (RefinedWeb), appendix G2, remove lines that are shouted, that are numbers,
// that are counters ("3 likes") or single words, and take a few phrases out of short lines; a page
// that loses more than a twentieth of its words goes. DCLM runs this as a row of modifiers over the
// page, each of which strips the page at its ends or does not; so it is done here, modifier by
// modifier, since a line at the end can change by the stripping. "Read more..." is a regular
// expression there, whose points stand for any three characters: so it is here.
//
// The word lists are DCLM's substring_filter: pages that hold an entry of a file, as a part or as a
// word of its own. Entries are plain text here, where they are regular expressions there.
#include <string.h>

#include "data/dedup/simplify.h"     /* gw_simplify_lower */
#include "data/filter/filter_impl.h" /* gw_filter_desc */
#include "data/text/words_impl.h"    /* words_class_at */

enum { P_REMOVED, P_UPPER, P_NUMBERS, P_COUNTERS, P_MIN_WORDS, P_PHRASES };
static const gw_filter_param params[] = {
    FILTER_LIMIT("max_removed_ratio", 0.05, "most words that may be lost"),
    FILTER_MEASURE("uppercase_ratio", 0.5, "drop lines with more capitals, per character"),
    FILTER_MEASURE("numeric_ratio", 0.999999, "drop lines with more digits, per character"),
    FILTER_SHAPE("counters", 1, "drop lines such as '3 likes'"),
    FILTER_MEASURE("min_line_words", 2, "drop lines of fewer words"),
    FILTER_SHAPE("phrases", 1, "take 'items in cart', 'Read more...' and 'Sign-in' out of lines"),
};
enum { C_BEFORE, C_AFTER, C_EMPTY };
static const char *const columns[] = {"words_before", "words_after", "empty"};
static const char *const reasons[] = {"empty", "word_removal_ratio"};

static int64_t count_class(gw_line l, uint32_t cls) {
    int64_t count = 0;
    const char *p = l.text, *end = p + l.bytes;
    for (int len; p < end; p += len) count += (words_class_at(p, end, &len) & cls) != 0;
    return count;
}

static int64_t words_in(gw_line l) {
    int64_t words = 0;
    bool space = true;
    const char *p = l.text, *end = p + l.bytes;
    for (int len; p < end; p += len) {
        bool s = words_class_at(p, end, &len) & GW_CH_SPACE;
        words += space && !s;
        space = s;
    }
    return words;
}

static bool is_word_at(const char *p, const char *end) {
    int len;
    return words_class_at(p, end, &len) & GW_CH_WORD;
}
static const char *skip_marks(const char *p, const char *end) {
    for (int len; p < end; p += len)
        if (words_class_at(p, end, &len) & GW_CH_WORD) break;
    return p;
}

/* "  1,204K views!": a number, perhaps k, m or b, white space, what is counted; marks around. */
static bool is_counter(gw_line l) {
    static const char *const things[] = {"likes",     "shares",    "comments",  "retweets",
                                         "reposts",   "quotes",    "bookmarks", "upvotes",
                                         "downvotes", "downloads", "views",     "followers"};
    const char *end = l.text + l.bytes, *p = skip_marks(l.text, end);
    int len;
    if (p == end || !(words_class_at(p, end, &len) & GW_CH_DIGIT)) return false;
    for (; p < end; p += len)
        if (!(words_class_at(p, end, &len) & GW_CH_DIGIT) && *p != ',' && *p != '.') break;
    if (p < end && strchr("KkMmBb", *p) && *p) p++;
    const char *gap = p;
    for (; p < end; p += len)
        if (!(words_class_at(p, end, &len) & GW_CH_SPACE)) break;
    if (p == gap) return false;
    for (int i = 0; i < FILTER_COUNT(things); i++) {
        size_t n = strlen(things[i]);
        if ((size_t)(end - p) < n || strncasecmp(p, things[i], n) != 0) continue;
        if (skip_marks(p + n, end) == end) return true;
    }
    return false;
}

typedef enum rule { UPPER, NUMBERS, COUNTERS, SHORT } rule;

static bool dropped(gw_line l, rule r, const double *p) {
    if (!l.bytes) return false;
    double chars = (double)gw_text_chars(l.text, l.bytes);
    switch (r) {
    case UPPER: return (double)count_class(l, GW_CH_UPPERCASE) / chars > p[P_UPPER];
    case NUMBERS: return (double)count_class(l, GW_CH_DIGIT) / chars > p[P_NUMBERS];
    case COUNTERS: return is_counter(l);
    case SHORT: return (double)words_in(l) < p[P_MIN_WORDS];
    }
    return false;
}

static void strip_text(gw_str *s) {
    gw_line l = gw_line_strip((gw_line){gw_str_c(s), (int64_t)s->len});
    if (l.bytes) memmove(s->data, l.text, (size_t)l.bytes);
    s->len = (size_t)l.bytes;
    if (s->data) s->data[s->len] = 0;
}

/* One modifier: text -> the lines that stay, joined; the result takes the text's place. */
static void drop_lines(gw_str *text, gw_str *spare, rule r, const double *p, bool strip) {
    gw_str_clear(spare);
    bool any = false;
    gw_line l;
    for (gw_lines it = gw_lines_of(gw_str_c(text), (int64_t)text->len, GW_LINES_NEWLINE);
         gw_lines_next(&it, &l);) {
        if (dropped(l, r, p)) continue;
        if (any) gw_str_add_char(spare, '\n');
        any = true;
        gw_str_add_n(spare, l.text, (size_t)l.bytes);
    }
    if (strip) strip_text(spare);
    gw_str was = *text;
    *text = *spare;
    *spare = was;
}

typedef enum phrase { CART, MORE, SIGN_IN } phrase;

static const char *find_nocase(const char *p, const char *end, const char *what) {
    size_t n = strlen(what);
    for (; (size_t)(end - p) >= n; p++)
        if (!strncasecmp(p, what, n)) return p;
    return NULL;
}
static bool is_space_at(const char *p, const char *end, int *len) {
    return p < end && words_class_at(p, end, len) & GW_CH_SPACE;
}
/* The start of the white-space character that ends at p, or p. */
static const char *one_space_back(const char *from, const char *p) {
    const char *q = p;
    while (q > from && p - q < 4) {
        q--;
        if (((uint8_t)*q & 0xc0) != 0x80) break;
    }
    int len;
    return q < p && is_space_at(q, p, &len) && q + len == p ? q : p;
}

/* Appends a line without the phrase. */
static void cut_phrase(gw_line l, phrase which, gw_str *out) {
    const char *p = l.text, *end = p + l.bytes;
    int len;
    switch (which) {
    case CART:
        for (const char *hit; (hit = find_nocase(p, end, "items in cart"));) {
            gw_str_add_n(out, p, (size_t)(one_space_back(p, hit) - p));
            p = hit + strlen("items in cart");
        }
        break;
    case MORE: {
        const char *q = end;
        for (int k = 0; k < 3 && q > p; k++) {
            q--;
            while (q > p && ((uint8_t)*q & 0xc0) == 0x80) q--;
        }
        size_t n = strlen("read more");
        if (gw_text_chars(q, end - q) == 3 && (size_t)(q - p) >= n &&
            !strncasecmp(q - n, "read more", n))
            end = one_space_back(p, q - n);
        break;
    }
    case SIGN_IN:
        if (l.bytes >= 7 && !strncasecmp(p, "sign-in", 7)) {
            p += 7;
            if (is_space_at(p, end, &len)) p += len;
        }
        break;
    }
    gw_str_add_n(out, p, (size_t)(end - p));
}

static void cut_phrases(gw_str *text, gw_str *spare, phrase which) {
    gw_str_clear(spare);
    bool any = false;
    gw_line l;
    for (gw_lines it = gw_lines_of(gw_str_c(text), (int64_t)text->len, GW_LINES_NEWLINE);
         gw_lines_next(&it, &l);) {
        size_t was = spare->len;
        if (any) gw_str_add_char(spare, '\n');
        size_t begin = spare->len;
        if (words_in(l) <= 10) {
            cut_phrase(l, which, spare);
            gw_line now = {gw_str_c(spare) + begin, (int64_t)(spare->len - begin)};
            if (l.bytes && !gw_line_lstrip(now).bytes) {
                spare->len = was;
                continue;
            }
        } else {
            gw_str_add_n(spare, l.text, (size_t)l.bytes);
        }
        any = true;
    }
    strip_text(spare);
    gw_str was = *text;
    *text = *spare;
    *spare = was;
}

static void measure(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)state;
    const double *p = a->number;
    c[C_BEFORE] = (double)gw_dclm_page_words(gw_str_c(m->text), (int64_t)m->text->len);
    c[C_EMPTY] = 0;
    gw_str *t = m->text, *s = &m->spare;
    /* Each modifier would drop an emptied page; the next ones find nothing then. */
    drop_lines(t, s, UPPER, p, true);
    drop_lines(t, s, NUMBERS, p, true);
    if (filter_is_on(a, P_COUNTERS)) drop_lines(t, s, COUNTERS, p, true);
    drop_lines(t, s, SHORT, p, false);
    if (filter_is_on(a, P_PHRASES)) {
        cut_phrases(t, s, CART);
        cut_phrases(t, s, MORE);
        cut_phrases(t, s, SIGN_IN);
    }
    c[C_EMPTY] = t->len == 0;
    c[C_AFTER] = (double)gw_dclm_page_words(gw_str_c(t), (int64_t)t->len);
    gw_measure_changed(m);
}

static int decide(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    if (c[C_EMPTY] > 0 || c[C_BEFORE] == 0) return 0;
    return filter_over((c[C_BEFORE] - c[C_AFTER]) / c[C_BEFORE], a->number[P_REMOVED]) ? 1 : -1;
}

const gw_filter_desc gw_filter_lines_dclm = {
    .name = "refinedweb_lines/dclm",
    .about = "RefinedWeb's corrections of lines as DCLM's modifiers; edits the text",
    .params = params,
    .nparams = FILTER_COUNT(params),
    .columns = columns,
    .ncolumns = FILTER_COUNT(columns),
    .reasons = reasons,
    .nreasons = FILTER_COUNT(reasons),
    .edits = true,
    .open = filter_open_none,
    .close = filter_close_none,
    .measure = measure,
    .decide = decide,
};

enum { W_LIST, W_WORDS, W_EXACT, W_CASE };
static const gw_filter_param word_params[] = {
    FILTER_FILE("banlist", "what a page may not hold, one entry a line"),
    FILTER_TEXT("words", "", "further entries"),
    FILTER_SHAPE("exact_word", 0, "entries count only as words of their own"),
    FILTER_SHAPE("case_sensitive", 0, "capitals matter"),
};
static const char *const word_columns[] = {"found"};
static const char *const word_reasons[] = {"substring"};

typedef struct ban {
    filter_set words;
    filter_automaton *parts;
    gw_str lower;
} ban;

static int64_t lower_line(char *p, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (p[i] >= 'A' && p[i] <= 'Z') p[i] = (char)(p[i] + 32);
    return n;
}

static gw_status open_ban(const gw_filter_args *a, void **state, gw_diags *dg) {
    ban *b = gw_mem_zalloc(sizeof *b);
    *state = b;
    bool fold = !filter_is_on(a, W_CASE);
    GW_TRY(filter_set_add_file(&b->words, a->text[W_LIST], fold ? lower_line : NULL, dg));
    gw_str words = {0};
    gw_str_add(&words, a->text[W_WORDS]);
    if (fold && words.len) lower_line(words.data, (int64_t)words.len);
    filter_set_add_list(&b->words, gw_str_c(&words));
    gw_str_release(&words);
    if (!b->words.items.count)
        return GW_FAIL(dg, GW_ERR_CONFIG, "data-filter-value",
                       "words/dclm has nothing to look for: give 'banlist' or 'words'");
    b->parts = filter_automaton_new(&b->words);
    return GW_OK;
}

static void close_ban(void *state) {
    ban *b = state;
    if (!b) return;
    filter_set_release(&b->words);
    filter_automaton_free(b->parts);
    gw_str_release(&b->lower);
    gw_mem_free(b);
}

static bool word_ends_at(const char *text, int64_t n, int64_t i) {
    bool after = i < n && is_word_at(text + i, text + n);
    int64_t from = i;
    while (from > 0 && i - from < 4) {
        from--;
        if (((uint8_t)text[from] & 0xc0) != 0x80) break;
    }
    bool before = i > 0 && is_word_at(text + from, text + i);
    return after != before;
}
static bool at_words_edges(const char *text, int64_t n, int64_t from, int64_t to) {
    return word_ends_at(text, n, from) && word_ends_at(text, n, to);
}

static void measure_ban(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    ban *b = state;
    const char *text = gw_str_c(m->text);
    int64_t n = (int64_t)m->text->len;
    if (!filter_is_on(a, W_CASE)) {
        gw_simplify_lower(text, n, &b->lower);
        text = gw_str_c(&b->lower);
        n = (int64_t)b->lower.len;
    }
    c[0] = filter_is_on(a, W_EXACT) ? filter_automaton_any(b->parts, text, n, at_words_edges)
                                    : filter_automaton_finds(b->parts, text, n);
}

static int decide_ban(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    (void)a;
    return c[0] > 0 ? 0 : -1;
}

const gw_filter_desc gw_filter_words_dclm = {
    .name = "words/dclm",
    .about = "pages that hold an entry of a list, as DCLM's substring_filter",
    .params = word_params,
    .nparams = FILTER_COUNT(word_params),
    .columns = word_columns,
    .ncolumns = FILTER_COUNT(word_columns),
    .reasons = word_reasons,
    .nreasons = FILTER_COUNT(word_reasons),
    .open = open_ban,
    .close = close_ban,
    .measure = measure_ban,
    .decide = decide_ban,
};
