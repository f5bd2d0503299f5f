// SPDX-License-Identifier: Apache-2.0
// C4's rules as datatrove applies them: lines that go, pages that go, the paragraph rule.
//
// Raffel et al. 2020 (JMLR 21) keep lines that end a sentence and say enough, and drop pages that
// look like code or placeholders. C4QualityFilter goes through str.splitlines(), strips a line,
// takes citations such as [3] out of it, and tests in a fixed order; "lorem ipsum" and a curly
// bracket in a line that got so far end the page, so a page has one or the other as its reason,
// whichever stands first. Here all lines are looked at in any case: the columns hold the number of
// the first line with each, and of sentences, so that these rules can be switched afterwards. The
// rules that drop lines shape the text itself.
//
// Sentences are counted per line. A line's words are those of the whole text that lie in it (no
// token crosses a line break), unless a citation was cut out of it: so a text is cut into words
// once for this filter and those before it.
#include <string.h>

#include "data/filter/filter_impl.h" /* gw_filter_desc */
#include "data/filter/scan_text.h"   /* text_find_phrases */
#include "data/text/words_impl.h"    /* words_class_at */

enum {
    P_CITATIONS,
    P_TERMINAL,
    P_MIN_SENTENCES,
    P_MIN_WORDS,
    P_MAX_WORD,
    P_LOREM,
    P_JAVASCRIPT,
    P_CURLY,
    P_POLICY,
    P_LANGUAGE
};
static const gw_filter_param params[] = {
    FILTER_SHAPE("remove_citations", 1, "cut [1], [edit] and [citation needed] out of lines"),
    FILTER_SHAPE("filter_no_terminal_punct", 1, "drop lines that do not end in . ? ! \" or '"),
    FILTER_LIMIT("min_num_sentences", 5, "fewest sentences of a page; -1: any"),
    FILTER_MEASURE("min_words_per_line", 3, "drop lines of fewer words"),
    FILTER_MEASURE("max_word_length", 1000, "drop lines with a longer word; -1: any"),
    FILTER_FLAG("filter_lorem_ipsum", 1, "drop pages with 'lorem ipsum'"),
    FILTER_SHAPE("filter_javascript", 1, "drop lines with 'javascript'"),
    FILTER_FLAG("filter_curly_bracket", 1, "drop pages with '{'"),
    FILTER_SHAPE("filter_policy", 1, "drop lines that speak of cookies and terms of use"),
    FILTER_TEXT("language", "en", "whose sentences they are: a code, or spacy_en and the like"),
};
enum {
    C_LINES,
    C_KEPT,
    C_SENTENCES,
    C_LOREM,
    C_CURLY,
    C_LONG,
    C_UNENDED,
    C_SHORT,
    C_SCRIPT,
    C_POLICY
};
static const char *const columns[] = {
    "lines",         "kept_lines",       "sentences",     "lorem_ipsum_line", "curly_bracket_line",
    "too_long_word", "no_terminal_punc", "too_few_words", "javascript",       "policy",
};
static const char *const reasons[] = {"lorem_ipsum", "curly_bracket", "too_few_sentences"};

static const char *const policies[] = {"terms of use", "privacy policy", "cookie policy",
                                       "uses cookies", "use of cookies", "use cookies"};

/* Bytes of a citation at p, or 0: "[" digits "]", "[edit]", "[citation needed]". */
static int64_t citation(const char *p, const char *end) {
    gw_line l = {p, end - p};
    if (gw_line_begins(l, "[edit]")) return 6;
    if (gw_line_begins(l, "[citation needed]")) return 17;
    const char *q = p + 1;
    int len;
    while (q < end && words_class_at(q, end, &len) & GW_CH_DIGIT) q += len;
    return q < end && *q == ']' ? q + 1 - p : 0;
}

/* Appends a line without its citations; true if there were any. */
static bool add_without_citations(gw_line l, gw_str *out) {
    const char *p = l.text, *end = p + l.bytes;
    bool any = false;
    while (p < end) {
        const char *open = memchr(p, '[', (size_t)(end - p));
        int64_t n = open ? citation(open, end) : 0;
        const char *to = open ? open + (n == 0) : end;
        gw_str_add_n(out, p, (size_t)(to - p));
        p = to + n;
        any |= n > 0;
    }
    return any;
}

/* What stands anywhere in the text: most texts have none of these, and their lines need not be
 * searched, but those that a citation was cut out of: that can bring halves of a phrase together.
 */
typedef struct present {
    bool citation, curly, lorem, script, policy;
} present;

static bool speaks_of_policy(const char *p, int64_t n) {
    for (int k = 0; k < FILTER_COUNT(policies); k++)
        if (gw_text_has_nocase(p, n, policies[k])) return true;
    return false;
}

static present look_for(const char *p, int64_t n) {
    enum { LOREM, SCRIPT, TERMS, PRIVACY, COOKIE };
    static const text_phrase phrases[] = {
        [LOREM] = {"lorem ipsum", 11, 7},  [SCRIPT] = {"javascript", 10, 0},
        [TERMS] = {"terms of use", 12, 3}, [PRIVACY] = {"privacy policy", 14, 5},
        [COOKIE] = {"cookie", 6, 3},
    };
    present has = {0};
    if (!n) return has;
    has.curly = memchr(p, '{', (size_t)n) != NULL;
    has.citation = memchr(p, '[', (size_t)n) != NULL;
    unsigned found = text_find_phrases(phrases, FILTER_COUNT(phrases), p, n);
    has.lorem = found >> LOREM & 1;
    has.script = found >> SCRIPT & 1;
    has.policy = found & (1u << TERMS | 1u << PRIVACY | 1u << COOKIE);
    return has;
}

/* Going through the lines of a text. Tokens of the kept lines are moved to the front, [0, out), so
 * that they are the words of the text that is left; `exact` while that is so. */
typedef struct pass {
    gw_measure *m;
    const gw_filter_args *a;
    double *c;
    gw_words *words;
    gw_splitter kind;
    int64_t next, out, number;
    bool exact;
    present has;
} pass;

/* The tokens of a line, and its words of str.split(): how many, characters of the longest. */
typedef struct line_words {
    int64_t first, end; /* tokens */
    int64_t words, longest;
} line_words;

static line_words take_words(pass *s, gw_line raw) {
    const gw_word *items = s->words->items;
    const gw_word_facts *facts = s->words->facts;
    int64_t end = raw.text + raw.bytes - gw_str_c(s->m->text), k = s->next, chars = 0;
    line_words l = {.first = k};
    for (; k < s->words->count && items[k].offset < end; k++) {
        int64_t begins = facts[k].flags & GW_WORD_FIRST ? 1 : 0;
        chars = begins ? facts[k].chars : chars + facts[k].chars;
        l.words += begins;
        if (chars > l.longest) l.longest = chars;
    }
    l.end = s->next = k;
    return l;
}

/* The column of the rule that drops a line, or C_KEPT. `now` is the line without citations. */
static int rule_for(pass *s, gw_line now, bool cut, int64_t words) {
    const double *p = s->a->number;
    char last = now.bytes ? now.text[now.bytes - 1] : 0;
    if (filter_is_on(s->a, P_TERMINAL) &&
        ((last != '.' && last != '?' && last != '!' && last != '"' && last != '\'') ||
         gw_line_ends(now, "...")))
        return C_UNENDED;
    if ((double)words < p[P_MIN_WORDS]) return C_SHORT;
    if ((s->has.lorem || cut) && s->c[C_LOREM] < 0 &&
        gw_text_has_nocase(now.text, now.bytes, "lorem ipsum"))
        s->c[C_LOREM] = (double)s->number;
    if ((s->has.script || cut) && filter_is_on(s->a, P_JAVASCRIPT) &&
        gw_text_has_nocase(now.text, now.bytes, "javascript"))
        return C_SCRIPT;
    if (s->has.curly && s->c[C_CURLY] < 0 && now.bytes && memchr(now.text, '{', (size_t)now.bytes))
        s->c[C_CURLY] = (double)s->number;
    if ((s->has.policy || cut) && filter_is_on(s->a, P_POLICY) &&
        speaks_of_policy(now.text, now.bytes))
        return C_POLICY;
    return C_KEPT;
}

/* The same of a line that citations were cut out of: its tokens are others. */
static int64_t take_cut_line(pass *s, const line_words *l, gw_line now, int64_t begin) {
    if (!s->m->scratch) s->m->scratch = gw_words_new();
    gw_words *w = s->m->scratch;
    gw_words_measure(w, s->kind, now.text, now.bytes);
    int64_t n = w->count, room = l->end - s->out;
    if (n > room) s->exact = false; /* more tokens than before: they would run into the next */
    for (int64_t k = 0; k < n && s->exact; k++, s->out++) {
        s->words->items[s->out] =
            (gw_word){w->items[k].offset + (uint32_t)begin, w->items[k].bytes};
        s->words->facts[s->out] = w->facts[k];
    }
    if (s->kind == GW_SPLIT_TROVE_XX) return words_trove_sentences(now.text, now.bytes);
    return gw_words_range_sentences(w->items, w->facts, n, now.text, 0, now.bytes);
}

/* Sentences of a kept line, which stands at `begin` in the text that is left. */
static int64_t take_line(pass *s, gw_line line, const line_words *l, int64_t begin) {
    const char *text = gw_str_c(s->m->text);
    gw_word *items = s->words->items;
    gw_word_facts *facts = s->words->facts;
    int64_t from = line.text - text, to = from + line.bytes, n = l->end - l->first;
    int64_t sentences =
        s->kind == GW_SPLIT_TROVE_XX
            ? words_trove_sentences(line.text, line.bytes)
            : gw_words_range_sentences(items + l->first, facts + l->first, n, text, from, to);
    uint32_t back = (uint32_t)(from - begin);
    if (s->out != l->first) memmove(facts + s->out, facts + l->first, (size_t)n * sizeof *facts);
    if (s->out != l->first || back)
        for (int64_t k = 0; k < n; k++)
            items[s->out + k] =
                (gw_word){items[l->first + k].offset - back, items[l->first + k].bytes};
    s->out += n;
    return sentences;
}

/* One line: appended to m->spare if it is kept. */
static void pass_line(pass *s, gw_line raw) {
    const double *p = s->a->number;
    gw_str *out = &s->m->spare;
    size_t was = out->len;
    gw_line line = gw_line_strip(raw);
    line_words l = take_words(s, raw);
    if (p[P_MAX_WORD] != -1 && (double)l.longest > p[P_MAX_WORD]) {
        s->c[C_LONG]++;
        return;
    }
    if (s->c[C_KEPT] > 0) gw_str_add_char(out, '\n');
    size_t begin = out->len;
    bool cut = false;
    if (s->has.citation && filter_is_on(s->a, P_CITATIONS))
        cut = add_without_citations(line, out);
    else
        gw_str_add_n(out, line.text, (size_t)line.bytes);
    gw_line now = {gw_str_c(out) + begin, (int64_t)(out->len - begin)};
    int rule = rule_for(s, now, cut, l.words);
    s->c[rule]++;
    if (rule == C_KEPT)
        s->c[C_SENTENCES] += (double)(cut ? take_cut_line(s, &l, now, (int64_t)begin)
                                          : take_line(s, line, &l, (int64_t)begin));
    else
        out->len = was;
}

static gw_status open(const gw_filter_args *a, void **state, gw_diags *dg) {
    const gw_splitter *kind;
    GW_TRY(filter_open_splitter(a->text[P_LANGUAGE], state, dg));
    kind = *state;
    if (*kind == GW_SPLIT_WHITESPACE || *kind == GW_SPLIT_UNICODE)
        return GW_FAIL(dg, GW_ERR_CONFIG, "data-filter-value",
                       "c4/datatrove counts sentences, and '%s' has none", a->text[P_LANGUAGE]);
    return GW_OK;
}

static void measure(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    gw_splitter kind = *(const gw_splitter *)state;
    for (int i = 0; i < FILTER_COUNT(columns); i++) c[i] = 0;
    c[C_LOREM] = c[C_CURLY] = -1;
    const char *text = gw_str_c(m->text);
    int64_t n = (int64_t)m->text->len;
    gw_str *out = &m->spare;
    gw_str_clear(out);
    gw_str_reserve(out, (size_t)n + 1);
    gw_measure_words(m, kind, NULL);
    pass s = {.m = m,
              .a = a,
              .c = c,
              .words = m->words[kind],
              .kind = kind,
              .exact = true,
              .has = look_for(text, n)};
    gw_line raw;
    for (gw_lines it = gw_lines_of(text, n, GW_LINES_PYTHON); gw_lines_next(&it, &raw);
         s.number++) {
        c[C_LINES]++;
        pass_line(&s, raw);
    }
    gw_line all = gw_line_strip((gw_line){gw_str_c(out), (int64_t)out->len});
    if (all.text != gw_str_c(out)) s.exact = false; /* empty lines before the first */
    if (all.bytes) memmove(out->data, all.text, (size_t)all.bytes);
    out->len = (size_t)all.bytes;
    out->data[out->len] = 0;
    gw_measure_replace(m);
    if (s.exact) gw_measure_know_words(m, kind, s.out);
}

static int decide(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    double lorem = filter_is_on(a, P_LOREM) ? c[C_LOREM] : -1;
    double curly = filter_is_on(a, P_CURLY) ? c[C_CURLY] : -1;
    if (lorem >= 0 && (curly < 0 || lorem <= curly)) return 0;
    if (curly >= 0) return 1;
    if (a->number[P_MIN_SENTENCES] == -1) return -1;
    return filter_under(c[C_SENTENCES], a->number[P_MIN_SENTENCES]) ? 2 : -1;
}

const gw_filter_desc gw_filter_c4_datatrove = {
    .name = "c4/datatrove",
    .about = "C4's lines and pages as datatrove's C4QualityFilter keeps them; edits the text",
    .params = params,
    .nparams = FILTER_COUNT(params),
    .columns = columns,
    .ncolumns = FILTER_COUNT(columns),
    .reasons = reasons,
    .nreasons = FILTER_COUNT(reasons),
    .edits = true,
    .open = open,
    .close = filter_close_memory,
    .measure = measure,
    .decide = decide,
};

enum { PP_COUNT, PP_LENGTH };
static const gw_filter_param para_params[] = {
    FILTER_MEASURE("min_paragraphs", 3, "how many long lines there must be; at most 16"),
    FILTER_LIMIT("min_paragraph_len", 200, "characters that make a line long"),
};
static const char *const para_columns[] = {"lines", "length_of_last_long"};
static const char *const para_reasons[] = {"too_few_paragraphs"};

/* The length of the third longest line (of the nth): all that the rule looks at. */
static void measure_paras(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)state;
    double want = a->number[PP_COUNT];
    int keep = want >= 1 && want <= 16 ? (int)want : 16;
    int64_t longest[16] = {0}, lines = 0;
    gw_line line;
    for (gw_lines it = gw_lines_of(gw_str_c(m->text), (int64_t)m->text->len, GW_LINES_NEWLINE);
         gw_lines_next(&it, &line); lines++) {
        int64_t chars = gw_text_chars(line.text, line.bytes);
        for (int k = 0; k < keep; k++)
            if (chars > longest[k]) {
                int64_t was = longest[k];
                longest[k] = chars;
                chars = was;
            }
    }
    c[0] = (double)lines;
    c[1] = (double)longest[keep - 1];
}

static int decide_paras(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    if (filter_under(c[0], a->number[PP_COUNT])) return 0;
    return filter_under(c[1], a->number[PP_LENGTH]) ? 0 : -1;
}

const gw_filter_desc gw_filter_c4_paragraphs_datatrove = {
    .name = "c4_paragraphs/datatrove",
    .about = "mC4's rule: at least three lines of 200 characters",
    .params = para_params,
    .nparams = FILTER_COUNT(para_params),
    .columns = para_columns,
    .ncolumns = FILTER_COUNT(para_columns),
    .reasons = para_reasons,
    .nreasons = FILTER_COUNT(para_reasons),
    .open = filter_open_none,
    .close = filter_close_none,
    .measure = measure_paras,
    .decide = decide_paras,
};
