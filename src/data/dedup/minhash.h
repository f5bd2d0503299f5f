// SPDX-License-Identifier: Apache-2.0
// MinHash signatures of texts, by the recipes of the projects that publish them.
#ifndef GW_DATA_DEDUP_MINHASH_H
#define GW_DATA_DEDUP_MINHASH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"       /* gw_status, gw_diags */
#include "base/hash.h"       /* gw_hash128 */
#include "base/str.h"        /* gw_str */
#include "data/text/words.h" /* gw_splitter */

/* What a shingle is hashed by. SHA1: the first 8 (or 4) bytes of the digest, little-endian. XXH:
 * XXH64 (or XXH32) with seed 0. */
typedef enum gw_shingle_hash { GW_SHINGLE_SHA1, GW_SHINGLE_XXH } gw_shingle_hash;

/* Which text is cut. DATATROVE: simplify_text of datatrove with its defaults (simplify.h).
 * LOWER: Unicode lower case only. NONE: as it stands. REDPAJAMA: as RedPajama-V2's normalize, lower
 * case in normal form D without ASCII punctuation. */
typedef enum gw_minhash_text {
    GW_MINHASH_TEXT_DATATROVE,
    GW_MINHASH_TEXT_LOWER,
    GW_MINHASH_TEXT_NONE,
    GW_MINHASH_TEXT_REDPAJAMA
} gw_minhash_text;

/* Everything that decides a signature. bands * rows <= GW_MINHASH_MAX. */
typedef struct gw_minhash_recipe {
    const char *name;
    int bands, rows;
    int shingle; /* words, or characters where `chars` */
    bool chars;  /* shingles of characters (code points) instead of words */
    int bits;    /* 64 or 32: of the shingle's hash, and of the values */
    gw_shingle_hash hash;
    gw_minhash_text text;
    gw_splitter splitter; /* of words */
    bool fields;          /* instead: cut at each character that is no letter, mark, digit or
                             connector, so that two in a row leave an empty word between them */
    uint32_t seed;        /* of numpy's RandomState, from which the permutations come */
    bool pairs;           /* a and b of each permutation drawn in turn, not all a first */
    const char *equal_to; /* the project whose values are bit-equal, or NULL */
    const char *about;
} gw_minhash_recipe;

enum { GW_MINHASH_MAX = 65536 };

/* Recipes by name, i from 0; NULL after the last. "fineweb", "fineweb-xxh" (datatrove's default
 * hash), "redpajama-v2-0.7" -0.8 -0.9 -1.0, "nemo", "refinedweb", "text-dedup". "redpajama-v2"
 * means 0.8, its usual one. */
const gw_minhash_recipe *gw_minhash_recipe_at(int i);
const gw_minhash_recipe *gw_minhash_recipe_find(const char *name);
/* GW_ERR_CONFIG with what is wrong: sizes below 1, too many values, bits. */
GW_WARN_UNUSED gw_status gw_minhash_recipe_check(const gw_minhash_recipe *r, gw_diags *dg);
/* The chance that two documents of Jaccard similarity s share a band: 1 - (1 - s^rows)^bands. */
double gw_minhash_match(const gw_minhash_recipe *r, double s);
/* Equal for recipes that make equal signatures: what a file of keys is tagged with. */
uint64_t gw_minhash_recipe_tag(const gw_minhash_recipe *r);

/* One thread's scratch and the permutations of a recipe, which is copied. */
typedef struct gw_minhash gw_minhash;
GW_WARN_UNUSED gw_status gw_minhash_open(const gw_minhash_recipe *r, gw_minhash **out,
                                         gw_diags *dg);
void gw_minhash_free(gw_minhash *m);
const gw_minhash_recipe *gw_minhash_recipe_of(const gw_minhash *m);
int gw_minhash_values(const gw_minhash *m); /* bands * rows */

/* signature[bands * rows], band by band. False, and nothing written, where the text has no shingle
 * (fewer words than one takes). text: valid UTF-8. Allocates nothing once the longest text has been
 * seen. */
bool gw_minhash_sign(gw_minhash *m, const char *text, int64_t n, uint64_t *signature);
/* The same from words that the caller has cut already. */
bool gw_minhash_sign_words(gw_minhash *m, const char *text, const gw_word *words, int64_t nwords,
                           uint64_t *signature);
/* The hashes of the shingles of a text, in order, repeats included; borrowed until the next call.
 * Sets *count. */
const uint64_t *gw_minhash_shingles(gw_minhash *m, const char *text, int64_t n, int64_t *count);
/* The signature of given shingles (count > 0). */
void gw_minhash_of_shingles(const gw_minhash *m, const uint64_t *shingles, int64_t count,
                            uint64_t *signature);
/* keys[bands]: a 128-bit hash of each band's rows. Two documents are candidates where one of their
 * keys is equal. */
void gw_minhash_keys(const gw_minhash *m, const uint64_t *signature, gw_hash128 *keys);

/* True Jaccard similarity of two sets of shingles; sorts both in place. */
double gw_jaccard(uint64_t *a, int64_t na, uint64_t *b, int64_t nb);

/* ---- inside, for tests and tables ---- */

/* numpy's RandomState(seed).randint(1, M, n) then randint(0, M, n), as uint64 (legacy MT19937,
 * masked rejection). M = 2^61 - 1. pairs: one of each in turn. */
void gw_minhash_parameters(uint32_t seed, bool pairs, int64_t n, uint64_t *a, uint64_t *b);
/* Which loop signs here: "avx512", "avx2", "plain". */
const char *gw_minhash_kernel(const gw_minhash *m);
/* Takes another one; false where the machine has not got it. */
bool gw_minhash_use_kernel(gw_minhash *m, const char *name);

#endif
