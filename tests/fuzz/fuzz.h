// SPDX-License-Identifier: Apache-2.0
// Feeding parsers with damaged copies of good inputs.
//
// A target reads bytes and uses everything it got; it must return a status and, with an error, at
// least one diagnostic. Whatever the bytes, it must not crash, hang, leak or allocate without
// bound. Inputs are a pure function of (target name, seeds, round), so a failure repeats: the
// report names the round.
#ifndef GW_TESTS_FUZZ_FUZZ_H
#define GW_TESTS_FUZZ_FUZZ_H

#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/str.h"  /* gw_str */

typedef gw_status fuzz_target(const void *bytes, size_t n, gw_diags *dg);

typedef struct fuzz {
    const char *name;
    fuzz_target *target;
    const char *const
        *words;       /* NULL-ended: pieces of the format's language, or NULL for binary formats */
    int64_t hot;      /* changes are made in the first so many bytes; 0 = anywhere */
    gw_str seeds[16]; /* each must be accepted as it stands */
    int nseeds;
} fuzz;

void fuzz_seed(fuzz *f, const void *bytes, size_t n);
/* A file below tests/. */
void fuzz_seed_file(fuzz *f, const char *below);
/* Runs the seeds, then `rounds` damaged inputs, in a child process that an input may kill: then the
 * test fails, names the round, and leaves the input as $GW_FUZZ_KEEP/NAME-ROUND if that is set. At
 * least one input in a thousand must be accepted and one refused (a target that does neither tests
 * nothing). Releases the seeds. */
void fuzz_run(fuzz *f, int64_t rounds);

#endif
