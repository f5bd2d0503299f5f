// SPDX-License-Identifier: Apache-2.0
// Filters by lists: addresses (datatrove's URLFilter), bad words (C4BadWordsFilter), languages.
//
// An address is judged by its host, as a whole, by its words and by what it spells without marks,
// in that order. The library asks the public suffix list which part of a host was registered;
// here a listed domain takes all hosts below it, which differs only where a list names a public
// suffix, or a middle part of a host. The lists that the library carries are not ours to copy: each
// is the path of a file.
//
// Bad words must stand free in the lower-case text (\W on both sides), except in languages written
// without spaces. The library can keep a random share of such pages; as that share depends on the
// order of documents there, it is not offered.
#include <string.h>

#include "data/dedup/simplify.h"     /* gw_simplify_lower */
#include "data/filter/filter_impl.h" /* gw_filter_desc, filter_set */
#include "data/text/words_impl.h"    /* words_class_at */

enum { U_SOFT, U_DOMAINS, U_URLS, U_BANNED, U_SOFT_WORDS, U_SUBWORDS };
static const gw_filter_param url_params[] = {
    FILTER_LIMIT("soft_word_threshold", 2, "how many different soft words are too many"),
    FILTER_FILE("domains", "hosts that go, with all below them"),
    FILTER_FILE("urls", "addresses that go"),
    FILTER_FILE("banned_words", "words of an address, one of which is too many"),
    FILTER_FILE("soft_banned_words", "words of an address, some of which are too many"),
    FILTER_FILE("banned_subwords", "what an address without marks may not hold"),
};
static const char *const url_columns[] = {"no_url",     "domain",     "subdomain", "url",
                                          "hard_words", "soft_words", "subwords"};
static const char *const url_reasons[] = {
    "domain", "subdomain", "url", "hard_blacklisted", "soft_blacklisted", "blacklisted_subword"};

typedef struct url_lists {
    filter_set domains, urls, banned, soft, subwords;
    filter_automaton *parts;
    gw_str plain;
} url_lists;

static bool is_alnum(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static char low(char c) { return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c); }

/* Drops all but ASCII letters and digits, and makes letters small. */
static int64_t normalize(char *p, int64_t n) {
    int64_t out = 0;
    for (int64_t i = 0; i < n; i++)
        if (is_alnum(p[i])) p[out++] = low(p[i]);
    return out;
}

static gw_status open_url(const gw_filter_args *a, void **state, gw_diags *dg) {
    url_lists *l = gw_mem_zalloc(sizeof *l);
    *state = l;
    GW_TRY(filter_set_add_file(&l->domains, a->text[U_DOMAINS], NULL, dg));
    GW_TRY(filter_set_add_file(&l->urls, a->text[U_URLS], NULL, dg));
    GW_TRY(filter_set_add_file(&l->banned, a->text[U_BANNED], normalize, dg));
    GW_TRY(filter_set_add_file(&l->soft, a->text[U_SOFT_WORDS], normalize, dg));
    GW_TRY(filter_set_add_file(&l->subwords, a->text[U_SUBWORDS], normalize, dg));
    l->parts = filter_automaton_new(&l->subwords);
    return GW_OK;
}

static void close_url(void *state) {
    url_lists *l = state;
    if (!l) return;
    filter_set_release(&l->domains);
    filter_set_release(&l->urls);
    filter_set_release(&l->banned);
    filter_set_release(&l->soft);
    filter_set_release(&l->subwords);
    filter_automaton_free(l->parts);
    gw_str_release(&l->plain);
    gw_mem_free(l);
}

/* The host of an address: behind "//" and any user part, up to a port or path. */
static gw_line host_of(const char *url) {
    const char *p = strstr(url, "//");
    p = p ? p + 2 : url;
    size_t n = strcspn(p, "/?#");
    for (size_t i = n; i-- > 0;)
        if (p[i] == '@') {
            p += i + 1;
            n -= i + 1;
            break;
        }
    const char *colon = memchr(p, ':', n);
    if (colon) n = (size_t)(colon - p);
    while (n && p[n - 1] == '.') n--;
    return (gw_line){p, (int64_t)n};
}

/* Words of an address that are in a set, each once. */
static int64_t count_listed(const filter_set *s, const char *url) {
    gw_line seen[32];
    int64_t count = 0;
    if (!s->items.count) return 0;
    for (const char *p = url; *p;) {
        const char *from = p;
        while (is_alnum(*p)) p++;
        gw_line w = {from, p - from};
        bool again = false;
        for (int64_t k = 0; k < count && k < 32; k++)
            again |= seen[k].bytes == w.bytes && !memcmp(seen[k].text, w.text, (size_t)w.bytes);
        if (!again && filter_set_has(s, w.text, w.bytes)) {
            if (count < 32) seen[count] = w;
            count++;
        }
        if (*p && !is_alnum(*p)) p++;
    }
    return count;
}

static void measure_url(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    url_lists *l = state;
    const char *url = m->facts->url ? m->facts->url : "";
    for (int i = 0; i < FILTER_COUNT(url_columns); i++) c[i] = 0;
    c[0] = *url == 0;
    if (!*url) return;
    gw_line host = host_of(url);
    gw_str_clear(&l->plain);
    for (int64_t i = 0; i < host.bytes; i++) gw_str_add_char(&l->plain, low(host.text[i]));
    const char *h = gw_str_c(&l->plain);
    c[2] = filter_set_has(&l->domains, h, (int64_t)l->plain.len);
    for (const char *dot = strchr(h, '.'); dot && strchr(dot + 1, '.'); dot = strchr(dot + 1, '.'))
        if (filter_set_has(&l->domains, dot + 1, (int64_t)strlen(dot + 1))) c[1] = 1;
    /* A host without a part below what was registered is a domain itself. */
    if (c[2] > 0 && gw_text_count(h, (int64_t)l->plain.len, ".") == 1) c[1] = 1;
    c[3] = filter_set_has(&l->urls, url, (int64_t)strlen(url));
    c[4] = (double)count_listed(&l->banned, url);
    c[5] = (double)count_listed(&l->soft, url);
    gw_str_clear(&l->plain);
    gw_str_add(&l->plain, url);
    int64_t n = normalize(l->plain.data, (int64_t)l->plain.len);
    c[6] = filter_automaton_finds(l->parts, gw_str_c(&l->plain), n);
}

static int decide_url(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    if (c[1] > 0) return 0;
    if (c[2] > 0) return 1;
    if (c[3] > 0) return 2;
    if (c[4] > 0) return 3;
    if (a->number[U_SOFT] > 0 && c[5] >= a->number[U_SOFT]) return 4;
    return c[6] > 0 ? 5 : -1;
}

const gw_filter_desc gw_filter_url_datatrove = {
    .name = "url/datatrove",
    .about = "addresses by lists of domains, words and parts of words, as datatrove's URLFilter",
    .params = url_params,
    .nparams = FILTER_COUNT(url_params),
    .columns = url_columns,
    .ncolumns = FILTER_COUNT(url_columns),
    .reasons = url_reasons,
    .nreasons = FILTER_COUNT(url_reasons),
    .needs_url = true,
    .open = open_url,
    .close = close_url,
    .measure = measure_url,
    .decide = decide_url,
};

enum { B_LIST, B_LANGUAGE };
static const gw_filter_param bad_params[] = {
    FILTER_FILE("list", "bad words, one a line; without one the filter is refused"),
    FILTER_TEXT("language", "en", "of the list; documents known to be in another are kept"),
};
static const char *const bad_columns[] = {"found"};
static const char *const bad_reasons[] = {"document_removed_with_badwords"};

typedef struct bad_words {
    filter_set words;
    filter_automaton *parts;
    gw_str lower;
} bad_words;

static gw_status open_bad(const gw_filter_args *a, void **state, gw_diags *dg) {
    bad_words *b = gw_mem_zalloc(sizeof *b);
    *state = b;
    if (!*a->text[B_LIST])
        return GW_FAIL(dg, GW_ERR_CONFIG, "data-filter-value",
                       "c4_badwords/datatrove needs a list of words: give its file as 'list'");
    GW_TRY(filter_set_add_file(&b->words, a->text[B_LIST], NULL, dg));
    b->parts = filter_automaton_new(&b->words);
    return GW_OK;
}

static void close_bad(void *state) {
    bad_words *b = state;
    if (!b) return;
    filter_set_release(&b->words);
    filter_automaton_free(b->parts);
    gw_str_release(&b->lower);
    gw_mem_free(b);
}

static bool is_word_at(const char *p, const char *end) {
    int len;
    return p < end && words_class_at(p, end, &len) & GW_CH_WORD;
}
static bool is_word_before(const char *text, int64_t i) {
    if (i == 0) return false;
    int64_t from = i - 1;
    while (from > 0 && i - from < 4 && ((uint8_t)text[from] & 0xc0) == 0x80) from--;
    return is_word_at(text + from, text + i);
}
static bool stands_free(const char *text, int64_t n, int64_t from, int64_t to) {
    return !is_word_before(text, from) && !is_word_at(text + to, text + n);
}

static void measure_bad(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    bad_words *b = state;
    const char *lang = m->facts->language ? m->facts->language : "";
    c[0] = 0;
    if (*lang && strcmp(lang, a->text[B_LANGUAGE]) != 0) return;
    if (!*lang) lang = a->text[B_LANGUAGE];
    gw_simplify_lower(gw_str_c(m->text), (int64_t)m->text->len, &b->lower);
    const char *text = gw_str_c(&b->lower);
    int64_t n = (int64_t)b->lower.len;
    bool spaceless = !strcmp(lang, "ja") || !strcmp(lang, "th") || !strcmp(lang, "zh");
    c[0] = spaceless ? filter_automaton_finds(b->parts, text, n)
                     : filter_automaton_any(b->parts, text, n, stands_free);
}

static int decide_found(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    (void)a;
    return c[0] > 0 ? 0 : -1;
}

const gw_filter_desc gw_filter_c4_badwords_datatrove = {
    .name = "c4_badwords/datatrove",
    .about = "pages with a word of a list of bad words, as datatrove's C4BadWordsFilter",
    .params = bad_params,
    .nparams = FILTER_COUNT(bad_params),
    .columns = bad_columns,
    .ncolumns = FILTER_COUNT(bad_columns),
    .reasons = bad_reasons,
    .nreasons = FILTER_COUNT(bad_reasons),
    .open = open_bad,
    .close = close_bad,
    .measure = measure_bad,
    .decide = decide_found,
};

static const gw_filter_param language_params[] = {
    {"languages", GW_PARAM_TEXT, 0, "en", false, "which to keep; empty: any"},
    FILTER_LIMIT("language_threshold", 0.65, "the score must be above it"),
};
static const char *const no_columns[] = {"score"};
static const char *const language_reasons[] = {"language", "language_score"};

static void measure_language(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    (void)state;
    c[0] = (double)m->facts->language_score;
}

static int decide_language(const double *c, const gw_filter_facts *f, const gw_filter_args *a) {
    const char *list = a->text[0], *lang = f->language ? f->language : "";
    bool listed = !*list;
    for (const char *p = list; *p && !listed;) {
        size_t n = strcspn(p, ",");
        gw_line l = gw_line_strip((gw_line){p, (int64_t)n});
        listed = l.bytes == (int64_t)strlen(lang) && !memcmp(l.text, lang, (size_t)l.bytes);
        p += n + (p[n] == ',');
    }
    if (!listed) return 0;
    return isnan(a->number[1]) || c[0] > a->number[1] ? -1 : 1;
}

const gw_filter_desc gw_filter_language_datatrove = {
    .name = "language/datatrove",
    .about = "documents in given languages, surely enough, as datatrove's LanguageFilter",
    .params = language_params,
    .nparams = FILTER_COUNT(language_params),
    .columns = no_columns,
    .ncolumns = FILTER_COUNT(no_columns),
    .reasons = language_reasons,
    .nreasons = FILTER_COUNT(language_reasons),
    .open = filter_open_none,
    .close = filter_close_none,
    .measure = measure_language,
    .decide = decide_language,
};
