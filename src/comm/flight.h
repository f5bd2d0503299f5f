// SPDX-License-Identifier: Apache-2.0
// The flight recorder of one rank: its last collectives, or its last messages, readable while they
// are written.
#ifndef GW_COMM_FLIGHT_H
#define GW_COMM_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "comm/transport.h" /* gw_coll_mark */

enum { GW_FLIGHT_ENTRIES = 64, GW_FLIGHT_WORDS = 18 };

/* What is kept of one collective. */
typedef struct gw_flight_mark {
    uint64_t seq, signature, group; /* group: hash of its ranks */
    int64_t start_ns, end_ns;       /* end_ns 0: it has not ended */
    char text[104];
} gw_flight_mark;

/* One writer, any readers, in one process or several. Zeroed memory is an empty recorder. */
typedef struct gw_flight {
    _Atomic uint64_t count; /* collectives begun so far; the latest has this number */
    struct {
        _Atomic uint64_t version; /* 2 * number, less one while it is written */
        _Atomic uint64_t words[GW_FLIGHT_WORDS];
    } entries[GW_FLIGHT_ENTRIES];
} gw_flight;

/* Records the start of a collective, and the end of the latest one. Writer only; no allocation. */
void gw_flight_begin(gw_flight *f, const gw_coll_mark *m, uint64_t group, int64_t now_ns);
void gw_flight_end(gw_flight *f, int64_t now_ns);
/* Collectives begun so far; numbers go from 1. */
uint64_t gw_flight_count(const gw_flight *f);
/* Reads collective `number`; false when it is not (or no longer) there. */
bool gw_flight_read(const gw_flight *f, uint64_t number, gw_flight_mark *out);
/* A table of what is kept of a rank's collectives and of its messages (NULL: it has none), oldest
 * first, times as seconds before now. */
void gw_flight_print(const gw_flight *f, const gw_flight *messages, int rank, int64_t now_ns,
                     FILE *out);

/* Text that another process may read while it is rewritten: `words` 8-byte words, NUL-padded. A
 * reader may see a mixture of two texts, never bytes from outside. */
void gw_words_store(_Atomic uint64_t *to, int words, const char *text);
void gw_words_load(const _Atomic uint64_t *from, int words, char *text); /* [8 * words] */

#endif
