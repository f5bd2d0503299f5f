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
    P_POLICY
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

/* Words of str.split(), and the length of the longest in characters. */
static int64_t count_words(gw_line l, int64_t *longest) {
    int64_t words = 0;
    *longest = 0;
    const char *p = l.text, *end = p + l.bytes;
    while (p < end) {
        int len;
        while (p < end && words_class_at(p, end, &len) & GW_CH_SPACE) p += len;
        const char *from = p;
        while (p < end && !(words_class_at(p, end, &len) & GW_CH_SPACE)) p += len;
        if (p == from) break;
        words++;
        if (p - from <= *longest) continue; /* no more characters than bytes */
        int64_t chars = gw_text_chars(from, p - from);
        if (chars > *longest) *longest = chars;
    }
    return words;
}

/* What stands anywhere in the text: most texts have none of these, and their lines need not be
 * searched. A citation cut out of a line could bring the halves of a phrase together. */
typedef struct present {
    bool lorem, script, policy;
} present;

static bool speaks_of_policy(const char *p, int64_t n) {
    for (int k = 0; k < FILTER_COUNT(policies); k++)
        if (gw_text_has_nocase(p, n, policies[k])) return true;
    return false;
}

static present look_for(const char *p, int64_t n) {
    if (n && memchr(p, '[', (size_t)n)) return (present){true, true, true};
    return (present){gw_text_has_nocase(p, n, "lorem ipsum"),
                     gw_text_has_nocase(p, n, "javascript"), speaks_of_policy(p, n)};
}

/* Going through the lines of a text. Tokens of the kept lines are moved to the front, [0, out), so
 * that they are the words of the text that is left; `exact` while that is so. */
typedef struct pass {
    gw_measure *m;
    const gw_filter_args *a;
    double *c;
    gw_words *words;
    gw_word_facts *facts;
    int64_t next, out, number;
    bool exact;
    present has;
} pass;

/* The column of the rule that drops a line, or C_KEPT. `now` is the line without citations. */
static int rule_for(pass *s, gw_line now, int64_t words) {
    const double *p = s->a->number;
    char last = now.bytes ? now.text[now.bytes - 1] : 0;
    if (filter_is_on(s->a, P_TERMINAL) &&
        ((last != '.' && last != '?' && last != '!' && last != '"' && last != '\'') ||
         gw_line_ends(now, "...")))
        return C_UNENDED;
    if ((double)words < p[P_MIN_WORDS]) return C_SHORT;
    if (s->has.lorem && s->c[C_LOREM] < 0 && gw_text_has_nocase(now.text, now.bytes, "lorem ipsum"))
        s->c[C_LOREM] = (double)s->number;
    if (s->has.script && filter_is_on(s->a, P_JAVASCRIPT) &&
        gw_text_has_nocase(now.text, now.bytes, "javascript"))
        return C_SCRIPT;
    if (s->c[C_CURLY] < 0 && now.bytes && memchr(now.text, '{', (size_t)now.bytes))
        s->c[C_CURLY] = (double)s->number;
    if (s->has.policy && filter_is_on(s->a, P_POLICY) && speaks_of_policy(now.text, now.bytes))
        return C_POLICY;
    return C_KEPT;
}

/* Sentences of a kept line, which stands at `begin` in the text that is left. */
static int64_t take_line(pass *s, gw_line line, gw_line now, bool cut, int64_t begin) {
    const char *text = gw_str_c(s->m->text);
    int64_t from = line.text - text, to = from + line.bytes;
    while (s->next < s->words->count && s->words->items[s->next].offset < from) s->next++;
    int64_t first = s->next;
    while (s->next < s->words->count && s->words->items[s->next].offset < to) s->next++;
    if (cut) {
        s->exact = false;
        if (!s->m->scratch) s->m->scratch = gw_words_new();
        return gw_words_sentences(s->m->scratch, GW_SPLIT_SPACY_EN, now.text, now.bytes);
    }
    int64_t sentences =
        gw_words_range_sentences(s->words->items + first, s->next - first, text, from, to);
    for (int64_t k = first; k < s->next; k++, s->out++) {
        s->words->items[s->out] = s->words->items[k];
        s->words->items[s->out].offset = (uint32_t)(s->words->items[k].offset - from + begin);
        s->facts[s->out] = s->facts[k];
    }
    return sentences;
}

/* One line: appended to m->spare if it is kept. */
static void pass_line(pass *s, gw_line raw) {
    const double *p = s->a->number;
    gw_str *out = &s->m->spare;
    size_t was = out->len;
    gw_line line = gw_line_strip(raw);
    int64_t longest, words = count_words(line, &longest);
    if (p[P_MAX_WORD] != -1 && (double)longest > p[P_MAX_WORD]) {
        s->c[C_LONG]++;
        return;
    }
    if (s->c[C_KEPT] > 0) gw_str_add_char(out, '\n');
    size_t begin = out->len;
    bool cut = false;
    if (filter_is_on(s->a, P_CITATIONS))
        cut = add_without_citations(line, out);
    else
        gw_str_add_n(out, line.text, (size_t)line.bytes);
    gw_line now = {gw_str_c(out) + begin, (int64_t)(out->len - begin)};
    int rule = rule_for(s, now, words);
    s->c[rule]++;
    if (rule == C_KEPT)
        s->c[C_SENTENCES] += (double)take_line(s, line, now, cut, (int64_t)begin);
    else
        out->len = was;
}

static void measure(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)state;
    for (int i = 0; i < FILTER_COUNT(columns); i++) c[i] = 0;
    c[C_LOREM] = c[C_CURLY] = -1;
    const char *text = gw_str_c(m->text);
    int64_t n = (int64_t)m->text->len;
    gw_str *out = &m->spare;
    gw_str_clear(out);
    gw_str_reserve(out, (size_t)n + 1);
    gw_measure_words(m, GW_SPLIT_SPACY_EN, NULL);
    pass s = {.m = m,
              .a = a,
              .c = c,
              .words = m->words[GW_SPLIT_SPACY_EN],
              .facts = m->word_facts[GW_SPLIT_SPACY_EN],
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
    if (s.exact) gw_measure_know_words(m, GW_SPLIT_SPACY_EN, s.out);
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
    .open = filter_open_none,
    .close = filter_close_none,
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
