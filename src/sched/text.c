// SPDX-License-Identifier: Apache-2.0
// Schedules as text, printed and parsed.
//
//   text    = "schedule" NAME  "ranks" N  "stages" RANK ...  "micro-batches" N  list ...
//   list    = "rank" N ":" action ...
//   action  = as in ir/action.h: F0.3, sB1.0, R1, S
//   NAME    = 1 to 64 of A-Z a-z 0-9 . _ -
//
// Words are apart by blanks and ends of lines, as many as one likes; a colon is a word of its own;
// # begins a comment that ends with its line. The four heads stand in this order, each rank has one
// list, and the lists may stand in any order. `stages` gives the rank of each stage in turn, so
// their number is the number of stages.
//
// A list may leave out messages, reductions and steps (gw_schedule_complete), so computing actions
// are all that must be written. A printed schedule has them all, and is parsed to itself.
//
// A mark of UTF-8 at the beginning of the text (EF BB BF) is skipped. A wrong head ends the parse,
// since all else hangs on it. Words in lists that are no actions are all told, and so is what the
// checker finds, each with its line and column.
#include <string.h>

#include "base/io.h" /* gw_file_read */
#include "sched/impl.h"

enum { MOST_PROBLEMS = 20, MOST_NAME = 64, WIDTH = 100, MOST_BYTES = 1 << 30 };

/* ---- printing ---- */

/* A word behind others, on a new line where it would be too long; *column is kept. */
static void print_word(gw_str *out, size_t *line_start, const char *word) {
    if (out->len - *line_start + 1 + strlen(word) > WIDTH) {
        gw_str_add(out, "\n       ");
        *line_start = out->len - 7;
    }
    gw_str_printf(out, " %s", word);
}

void gw_schedule_print(const gw_schedule *s, gw_str *out) {
    char text[GW_ACTION_TEXT];
    gw_str_printf(out, "schedule %s\nranks %d\n", s->name, s->ranks);
    size_t line_start = out->len;
    gw_str_add(out, "stages");
    for (int i = 0; i < s->stages; i++) {
        snprintf(text, sizeof text, "%d", s->rank_of[i]);
        print_word(out, &line_start, text);
    }
    gw_str_printf(out, "\nmicro-batches %d\n", s->micro_batches);
    for (int rank = 0; rank < s->ranks; rank++) {
        line_start = out->len;
        gw_str_printf(out, "rank %d:", rank);
        for (int64_t i = 0; i < s->lists[rank].n; i++)
            print_word(out, &line_start, gw_action_print(s->lists[rank].items[i], text));
        gw_str_add_char(out, '\n');
    }
}

/* ---- words ---- */

typedef struct word {
    const char *text;
    int64_t n; /* 0: the end */
    int line, column;
} word;

typedef struct parser {
    const char *text;
    int64_t n, at, line_start;
    int line;
    word now; /* the next word, not taken yet */
    const char *file;
    gw_diags *dg;
    int problems;
    gw_arena tmp; /* what only the parse needs */
    gw_sched_token *tokens;
    int64_t ntokens, room;
} parser;

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

/* Looks at the next word. */
static void advance(parser *p) {
    bool comment = false;
    for (; p->at < p->n; p->at++) {
        char c = p->text[p->at];
        if (c == '#') comment = true;
        if (c == '\n') {
            comment = false;
            p->line++;
            p->line_start = p->at + 1;
        }
        if (!comment && !is_blank(c)) break;
    }
    int64_t start = p->at;
    while (p->at < p->n && !is_blank(p->text[p->at]) && p->text[p->at] != '#') {
        bool colon = p->text[p->at] == ':';
        if (colon && p->at > start) break;
        p->at++;
        if (colon) break;
    }
    p->now = (word){.text = p->text + start,
                    .n = p->at - start,
                    .line = p->line,
                    .column = (int)(start - p->line_start) + 1};
}

static bool is(const parser *p, const char *text) {
    return p->now.n == (int64_t)strlen(text) && memcmp(p->now.text, text, (size_t)p->now.n) == 0;
}

/* A word as messages quote it. */
static const char *quoted(parser *p, const word *w) {
    if (w->n == 0) return "the end";
    return gw_arena_printf(&p->tmp, "'%.*s%s'", (int)GW_MIN(w->n, 32), w->text,
                           w->n > 32 ? "..." : "");
}

static gw_where here(const parser *p, const word *w) {
    return (gw_where){.file = p->file, .line = w->line, .column = w->column};
}

#define WRONG(p, w, ...)                                                                           \
    gw_fail_at((p)->dg, GW_ERR_CONFIG, "schedule-text", here((p), (w)), __VA_ARGS__)

/* ---- heads ---- */

static gw_status take_key(parser *p, const char *key) {
    if (!is(p, key)) return WRONG(p, &p->now, "expected '%s', not %s", key, quoted(p, &p->now));
    advance(p);
    return GW_OK;
}

/* A number written in digits; false for anything else and beyond `most`. */
static bool number_of(const word *w, int64_t most, int64_t *out) {
    int64_t x = 0;
    for (int64_t i = 0; i < w->n; i++) {
        if (w->text[i] < '0' || w->text[i] > '9') return false;
        x = x * 10 + (w->text[i] - '0');
        if (x > most) return false;
    }
    *out = x;
    return w->n > 0;
}

static gw_status take_number(parser *p, const char *what, int64_t least, int64_t most, int *out) {
    int64_t x;
    if (!number_of(&p->now, most, &x) || x < least)
        return WRONG(p, &p->now, "expected %s, a number from %lld to %lld, not %s", what,
                     (long long)least, (long long)most, quoted(p, &p->now));
    *out = (int)x;
    advance(p);
    return GW_OK;
}

static gw_status take_name(parser *p, gw_arena *a, const char **out) {
    bool good = p->now.n >= 1 && p->now.n <= MOST_NAME;
    for (int64_t i = 0; good && i < p->now.n; i++) {
        char c = p->now.text[i];
        good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '_' || c == '-';
    }
    if (!good)
        return WRONG(p, &p->now, "expected a name of letters, digits, '.', '_' and '-', not %s",
                     quoted(p, &p->now));
    *out = gw_arena_strndup(a, p->now.text, (size_t)p->now.n);
    advance(p);
    return GW_OK;
}

static gw_status take_stages(parser *p, gw_arena *a, gw_schedule *s) {
    word key = p->now;
    GW_TRY(take_key(p, "stages"));
    int16_t *rank_of = gw_arena_new(&p->tmp, int16_t, GW_SCHED_MAX_STAGES);
    bool *holds = gw_arena_new(&p->tmp, bool, s->ranks);
    while (!is(p, "micro-batches")) {
        int rank;
        if (s->stages == GW_SCHED_MAX_STAGES)
            return WRONG(p, &p->now, "a schedule has at most %d stages", GW_SCHED_MAX_STAGES);
        GW_TRY(take_number(p, "the rank of a stage", 0, s->ranks - 1, &rank));
        rank_of[s->stages++] = (int16_t)rank;
        holds[rank] = true;
    }
    for (int rank = 0; rank < s->ranks; rank++)
        if (!holds[rank]) return WRONG(p, &key, "rank %d holds no stage", rank);
    s->rank_of = gw_arena_dup(a, rank_of, s->stages * (int64_t)sizeof *rank_of);
    return GW_OK;
}

static gw_status parse_heads(parser *p, gw_arena *a, gw_schedule *s) {
    GW_TRY(take_key(p, "schedule"));
    GW_TRY(take_name(p, a, &s->name));
    GW_TRY(take_key(p, "ranks"));
    GW_TRY(take_number(p, "how many ranks", 1, GW_SCHED_MAX_RANKS, &s->ranks));
    GW_TRY(take_stages(p, a, s));
    GW_TRY(take_key(p, "micro-batches"));
    return take_number(p, "how many micro-batches", 1,
                       GW_MIN(GW_SCHED_MAX_MICRO, GW_SCHED_MAX_PAIRS / s->stages),
                       &s->micro_batches);
}

/* ---- lists ---- */

static void add_token(parser *p, gw_action x, int rank) {
    if (p->ntokens == p->room) {
        int64_t room = p->room ? 2 * p->room : 256;
        gw_sched_token *more = gw_arena_new(&p->tmp, gw_sched_token, room);
        if (p->ntokens) memcpy(more, p->tokens, (size_t)p->ntokens * sizeof *more);
        p->tokens = more;
        p->room = room;
    }
    p->tokens[p->ntokens++] =
        (gw_sched_token){.action = x, .rank = rank, .line = p->now.line, .column = p->now.column};
}

static void no_action(parser *p) {
    if (p->problems++ >= MOST_PROBLEMS) return;
    gw_diag *g = gw_diag_add(p->dg, GW_ERROR, GW_ERR_CONFIG, "schedule-text", here(p, &p->now),
                             "%s is not an action", quoted(p, &p->now));
    gw_diag_hint(p->dg, g,
                 "F B I W sF rF sB rB with stage and micro-batch (F0.3), R with the stage (R0), S");
}

static gw_status parse_list(parser *p, gw_sched_builder *b, gw_where *ranks) {
    int rank;
    word key = p->now;
    GW_TRY(take_key(p, "rank"));
    word number = p->now;
    int64_t any;
    if (number_of(&number, INT32_MAX, &any) && any >= b->s->ranks)
        return WRONG(p, &number, "there is no rank %lld: 'ranks' says %d, from 0", (long long)any,
                     b->s->ranks);
    GW_TRY(take_number(p, "a rank", 0, b->s->ranks - 1, &rank));
    if (ranks[rank].line)
        return WRONG(p, &number, "rank %d has a list already, on line %d", rank, ranks[rank].line);
    ranks[rank] = here(p, &key);
    GW_TRY(take_key(p, ":"));
    for (; p->now.n > 0 && !is(p, "rank"); advance(p)) {
        gw_action x;
        if (!gw_action_parse(p->now.text, p->now.n, &x)) {
            no_action(p);
            continue;
        }
        add_token(p, x, rank);
        gw_sched_add(b, rank, (gw_act)x.act, x.stage, x.micro);
    }
    return GW_OK;
}

/* Bytes 0 would end what messages quote; they stand in no text. */
static gw_status check_is_text(parser *p) {
    const char *zero = memchr(p->text, 0, (size_t)p->n);
    if (!zero) return GW_OK;
    gw_where w = {.file = p->file, .line = 1, .column = 1};
    for (const char *c = p->text; c < zero; c++) {
        w.column = *c == '\n' ? 1 : w.column + 1;
        w.line += *c == '\n';
    }
    return gw_fail_at(p->dg, GW_ERR_CONFIG, "schedule-text", w,
                      "a byte 0: this is no schedule's text");
}

/* The mark with which some editors begin a file in UTF-8. */
static void skip_mark(parser *p) {
    if (p->n < 3 || memcmp(p->text, "\xef\xbb\xbf", 3) != 0) return;
    p->at = p->line_start = 3;
}

static gw_status parse(parser *p, gw_arena *a, gw_schedule *s) {
    GW_TRY(check_is_text(p));
    skip_mark(p);
    advance(p);
    GW_TRY(parse_heads(p, a, s));
    gw_where *ranks = gw_arena_new(&p->tmp, gw_where, s->ranks);
    gw_sched_builder b = {.a = &p->tmp,
                          .s = s,
                          .lists = gw_arena_new(&p->tmp, gw_actions, s->ranks),
                          .room = gw_arena_new(&p->tmp, int64_t, s->ranks)};
    s->lists = b.lists;
    while (p->now.n > 0) GW_TRY(parse_list(p, &b, ranks));
    if (p->problems) return GW_ERR_CONFIG;
    for (int rank = 0; rank < s->ranks; rank++)
        if (!ranks[rank].line) return WRONG(p, &p->now, "there is no list of rank %d", rank);
    gw_schedule_complete(s, a);
    gw_sched_source src = {.file = p->file, .tokens = p->tokens, .n = p->ntokens, .ranks = ranks};
    return gw_schedule_check_at(s, &(gw_sched_checks){.places = 1}, &src, p->dg);
}

gw_status gw_schedule_parse(const char *text, int64_t n, const char *file, gw_arena *a,
                            gw_schedule *out, gw_diags *dg) {
    *out = (gw_schedule){0};
    parser p = {.text = text, .n = n, .line = 1, .file = file, .dg = dg};
    gw_status st = parse(&p, a, out);
    gw_arena_release(&p.tmp);
    return st;
}

gw_status gw_schedule_read(const char *path, gw_arena *a, gw_schedule *out, gw_diags *dg) {
    gw_str text = {0};
    gw_status st = gw_file_read(path, MOST_BYTES, &text, dg);
    if (st == GW_OK) st = gw_schedule_parse(gw_str_c(&text), (int64_t)text.len, path, a, out, dg);
    gw_str_release(&text);
    return st;
}
