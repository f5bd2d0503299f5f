// SPDX-License-Identifier: Apache-2.0
// Scripts of a shell, read and not run: words that know where they come from, variables, and which
// branch a line stands in. Used by convert_shell*.c alone.
#ifndef GW_TRAIN_CONVERT_SHELL_H
#define GW_TRAIN_CONVERT_SHELL_H

#include "base/map.h"           /* GW_VEC */
#include "train/convert_impl.h" /* gw_cv */

enum { GW_SH_MAX_WORDS = 20000, GW_SH_MAX_NESTED = 24, GW_SH_MAX_TEXT = 1 << 16 };

/* Ordered so that `and` is the smaller, `or` the larger, `not` 2 minus it. */
typedef enum gw_sh_truth { GW_SH_NO, GW_SH_MAYBE, GW_SH_YES } gw_sh_truth;

/* A stretch of a word's text that stands together in the script, from offset `at` on. */
typedef struct gw_sh_span {
    int64_t at;
    int line;         /* of its first character; line ends inside it count on */
    bool under;       /* written under a condition that is not decided */
    const char *open; /* why it is not known, or NULL */
} gw_sh_span;

typedef struct gw_sh_word {
    const char *text;
    const gw_sh_span *spans; /* by offset, at least one, the first at 0 */
    int nspans;
    const char *open; /* of any span */
    int line, column;
    bool quoted, under; /* under: any span */
} gw_sh_word;
typedef GW_VEC(gw_sh_word) gw_sh_words;

typedef struct gw_sh_variable {
    const char *name;
    gw_sh_word *items; /* in the arena */
    int64_t count;
    bool array;
} gw_sh_variable;

/* An if, a case or a loop that is open. */
typedef struct gw_sh_branch {
    char kind;           /* 'i', 'c', 'l' */
    gw_sh_truth outside; /* whether what stands around it is run */
    gw_sh_truth taken;   /* has one of its branches been taken? */
    gw_sh_truth cond;    /* of the condition or the patterns that are being read */
    bool reading;        /* the condition, or the patterns */
    bool has_subject;    /* case: its word is read */
    gw_sh_word subject;
} gw_sh_branch;

typedef struct gw_shell {
    gw_cv *c;
    const char *p, *end, *line_start;
    int line;
    int nested; /* of here-documents */
    GW_VEC(gw_sh_variable) variables;
    GW_VEC(gw_sh_branch) branches;
    gw_sh_truth now;       /* is the present branch run? */
    gw_sh_truth list;      /* value of the list `a && b || c` so far */
    gw_sh_truth chain;     /* is the present member of the list run? */
    char op;               /* the last operator of the list: '&', '|', or 0 at its beginning */
    bool exporting;        /* after export, declare, local */
    const char *assigning; /* the variable whose value is being read, or NULL */
    gw_sh_words statement;
    gw_sh_words command; /* the trainer's, once seen */
    int64_t flags;       /* in it */
    gw_sh_words loose;   /* words of statements that have flags and run no .py */
} gw_shell;

/* ---- convert_shell_word.c */
/* Past one character, counting lines. */
void gw_sh_step(gw_shell *s);
bool gw_sh_at(const gw_shell *s, const char *text);
bool gw_sh_is_name(char ch);
/* The variable as assigned last, or NULL. */
const gw_sh_variable *gw_sh_find(const gw_shell *s, const char *name, size_t n);
/* One word onto `to`, or several where a variable holds several; stops at what ends a word. */
void gw_sh_read_word(gw_shell *s, gw_sh_words *to);
void gw_sh_push(gw_sh_words *to, gw_sh_word w);
/* The words of a text with blanks in it, each with its own line, condition and reason. */
void gw_sh_push_split(gw_shell *s, gw_sh_words *to, const gw_sh_word *w);
/* Is what stands here run? */
gw_sh_truth gw_sh_runs(const gw_shell *s);
/* Are words that are written here under a condition? Not those of a condition itself: its value
 * hangs on what they hold alone. */
bool gw_sh_marks(const gw_shell *s);

/* ---- convert_shell_if.c */
/* Takes note of a keyword or of the word of a case, if the statement's only word is one, and clears
 * the statement. */
void gw_sh_take_keyword(gw_shell *s);
/* The end of a member of a list: `op` is '&' after &&, '|' after ||, 0 at the end of the list. */
void gw_sh_end_member(gw_shell *s, char op);
/* In a case: a pattern ends in ')' or '|'. Is one being read? */
bool gw_sh_end_pattern(gw_shell *s, char by);
/* ';;' */
void gw_sh_end_case(gw_shell *s);
/* Does `[[` stand open, so that operators are words? */
bool gw_sh_in_brackets(const gw_shell *s);

#endif
