// SPDX-License-Identifier: Apache-2.0
// Files of units: their names, and whether one still holds.
//
// A result is good if its footer is whole and its key is the one that would be written now. A key
// is a hash of everything the result depends on: contents of the files it was made from (by their
// content hashes, which do not know of times), and the options of its phase as text. So a change of
// an option or an input makes again exactly what hangs on it, and a phase that comes to the same
// rows as before leaves all that follows as it is.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"               /* gw_path_exists */
#include "data/build/build_impl.h" /* gw_databuild */

const char *gw_build_unit_path(const gw_databuild *b, gw_arena *a, gw_unit_kind kind,
                               int64_t unit) {
    static const char *const ends[] = {"docs", "keep", "toks"};
    return gw_arena_printf(a, "%s/unit-%05" PRId64 ".%s", b->work, unit, ends[kind]);
}

const char *gw_build_unit_name(void *build, int64_t unit) {
    const gw_databuild *b = build;
    return b->units.items[unit].files[0].path;
}

gw_build_key gw_build_key_of(const char *kind, const gw_hash128 *parts, int n) {
    gw_build_key key;
    gw_hasher *h = gw_hasher_new();
    gw_hasher_add(h, kind, strlen(kind) + 1);
    gw_hasher_add(h, parts, (size_t)n * sizeof *parts);
    gw_hash128_hex(key.text, gw_hasher_get(h));
    gw_hasher_free(h);
    return key;
}

gw_build_key gw_build_docs_key(const gw_databuild *b, int64_t unit) {
    gw_hash128 parts[2] = {gw_unit_hash(&b->units.items[unit]), b->map_options};
    return gw_build_key_of("docs 1", parts, 2);
}

gw_build_key gw_build_keep_key(const gw_databuild *b, gw_hash128 docs_content) {
    gw_hash128 parts[2] = {docs_content, b->decide_options};
    return gw_build_key_of("keep 1", parts, 2);
}

bool gw_build_has_key(const gw_columns *c, const gw_build_key *key) {
    return gw_str_eq(json_string_value(json_object_get(gw_columns_meta(c), "key")), key->text);
}

gw_columns *gw_build_open_if(const char *path, const gw_build_key *key) {
    gw_columns *c = NULL;
    if (!gw_path_exists(path)) return NULL;
    if (gw_columns_open(path, &c, NULL) != GW_OK) return NULL;
    if (gw_build_has_key(c, key)) return c;
    gw_columns_close(c);
    return NULL;
}

gw_status gw_build_open_unit(const gw_databuild *b, gw_unit_kind kind, int64_t unit,
                             gw_columns **out, gw_diags *dg) {
    gw_arena a;
    gw_arena_init(&a);
    gw_status st = gw_columns_open(gw_build_unit_path(b, &a, kind, unit), out, dg);
    gw_arena_release(&a);
    return st;
}
