// SPDX-License-Identifier: Apache-2.0
// The key table as arrays, and finding in it: exact, near, and by the names of other trainers.
//
// runfile.def is expanded here into rows. That a row's TYPE fits its field is checked at compile
// time by _Generic, so that a wrong cast cannot hide. A name that is no key gets one hint, from the
// first of these that has an answer: the alias table, the same leaf in another section, the nearest
// leaf of the same section, the nearest leaf anywhere. A word such as "type" or "name" is no reason
// to point at another section: there it is the name of something else.
#include "train/runfile_key.h" /* gw_rf_key */

#include <string.h> /* strrchr */

// ------------------------------------------------------------------ enumerations

static const gw_rf_name gw_rf_family_names[] = {
    {"gpt2", GW_RF_GPT2},           {"llama", GW_RF_LLAMA},
    {"qwen2", GW_RF_QWEN2},         {"qwen3", GW_RF_QWEN3},
    {"mistral", GW_RF_MISTRAL},     {"mixtral", GW_RF_MIXTRAL},
    {"qwen3_moe", GW_RF_QWEN3_MOE}, {"deepseek", GW_RF_DEEPSEEK},
    {"resnet18", GW_RF_RESNET18},   {"resnet34", GW_RF_RESNET34},
    {"resnet50", GW_RF_RESNET50},   {"resnet101", GW_RF_RESNET101},
    {"resnet152", GW_RF_RESNET152}, {NULL, 0}};
static const gw_rf_name gw_rf_busy_names[] = {
    {"wait", GW_RF_BUSY_WAIT}, {"skip", GW_RF_BUSY_SKIP}, {0}};
static const gw_rf_name gw_rf_replicas_names[] = {
    {"check", GW_RF_CHECK}, {"all", GW_RF_CHECK_ALL}, {"trust", GW_RF_TRUST}, {0}};
static const gw_rf_name gw_rf_batchnorm_names[] = {
    {"local", GW_RF_BATCHNORM_LOCAL}, {"sync", GW_RF_BATCHNORM_SYNC}, {NULL, 0}};
static const gw_rf_name gw_rf_rope_names[] = {{"none", GW_RF_ROPE_NONE},
                                              {"linear", GW_RF_ROPE_LINEAR},
                                              {"llama3", GW_RF_ROPE_LLAMA3},
                                              {"yarn", GW_RF_ROPE_YARN},
                                              {NULL, 0}};
static const gw_rf_name gw_rf_score_names[] = {
    {"softmax", GW_RF_SOFTMAX}, {"sigmoid", GW_RF_SIGMOID}, {NULL, 0}};
static const gw_rf_name gw_rf_balance_names[] = {{"none", GW_RF_BALANCE_NONE},
                                                 {"sequence", GW_RF_BALANCE_SEQUENCE},
                                                 {"batch", GW_RF_BALANCE_BATCH},
                                                 {"bias", GW_RF_BALANCE_BIAS},
                                                 {NULL, 0}};
static const gw_rf_name gw_rf_drop_names[] = {
    {"position", GW_RF_DROP_POSITION}, {"score", GW_RF_DROP_SCORE}, {NULL, 0}};
static const gw_rf_name gw_rf_optimizer_names[] = {
    {"adamw", GW_RF_ADAMW}, {"sgd", GW_RF_SGD}, {"muon", GW_RF_MUON}, {NULL, 0}};
static const gw_rf_name gw_rf_schedule_names[] = {{"constant", GW_RF_CONSTANT},
                                                  {"linear", GW_RF_LINEAR},
                                                  {"cosine", GW_RF_COSINE},
                                                  {"wsd", GW_RF_WSD},
                                                  {NULL, 0}};
static const gw_rf_name gw_rf_compute_names[] = {{"fp32", GW_RF_FP32},
                                                 {"bf16", GW_RF_BF16},
                                                 {"fp16", GW_RF_FP16},
                                                 {"float32", GW_RF_FP32},
                                                 {"bfloat16", GW_RF_BF16},
                                                 {"float16", GW_RF_FP16},
                                                 {NULL, 0}};
static const gw_rf_name gw_rf_products_names[] = {{"compute", GW_RF_PRODUCTS_COMPUTE},
                                                  {"fp8", GW_RF_PRODUCTS_FP8},
                                                  {"fp8_pow2", GW_RF_PRODUCTS_FP8_POW2},
                                                  {NULL, 0}};
static const gw_rf_name gw_rf_kept_names[] = {{"float32", GW_RF_STORE_FLOAT32},
                                              {"compute", GW_RF_STORE_COMPUTE},
                                              {"fp32", GW_RF_STORE_FLOAT32},
                                              {NULL, 0}};
static const gw_rf_name gw_rf_master_names[] = {{"float32", GW_RF_STORE_FLOAT32},
                                                {"none", GW_RF_STORE_NONE},
                                                {"fp32", GW_RF_STORE_FLOAT32},
                                                {NULL, 0}};
static const gw_rf_name gw_rf_recompute_names[] = {
    {"none", GW_RF_RECOMPUTE_NONE},     {"selective", GW_RF_RECOMPUTE_SELECTIVE},
    {"full", GW_RF_RECOMPUTE_FULL},     {"ops", GW_RF_RECOMPUTE_OPS},
    {"budget", GW_RF_RECOMPUTE_BUDGET}, {NULL, 0}};

static const gw_rf_name gw_rf_reshard_names[] = {{"auto", GW_RF_RESHARD_AUTO},
                                                 {"true", GW_RF_RESHARD_TRUE},
                                                 {"false", GW_RF_RESHARD_FALSE},
                                                 {NULL, 0}};
static const gw_rf_name gw_rf_reduce_names[] = {{"auto", GW_RF_REDUCE_AUTO},
                                                {"last", GW_RF_REDUCE_LAST},
                                                {"each", GW_RF_REDUCE_EACH},
                                                {NULL, 0}};
static const gw_rf_name gw_rf_cp_mode_names[] = {{"ring", GW_RF_CP_RING},
                                                 {"ulysses", GW_RF_CP_ULYSSES},
                                                 {"hybrid", GW_RF_CP_HYBRID},
                                                 {"allgather", GW_RF_CP_ALLGATHER},
                                                 {NULL, 0}};
static const gw_rf_name gw_rf_norm_names[] = {
    {"exact", GW_RF_NORM_EXACT}, {"deferred", GW_RF_NORM_DEFERRED}, {NULL, 0}};
static const gw_rf_name gw_rf_mix_names[] = {
    {"exact", GW_RF_MIX_EXACT}, {"megatron", GW_RF_MIX_MEGATRON}, {NULL, 0}};
static const gw_rf_name gw_rf_packing_names[] = {
    {"contiguous", GW_RF_PACKING_CONTIGUOUS}, {"best_fit", GW_RF_PACKING_BEST_FIT}, {NULL, 0}};
static const gw_rf_name gw_rf_shuffle_names[] = {{"auto", GW_RF_SHUFFLE_AUTO},
                                                 {"documents", GW_RF_SHUFFLE_DOCUMENTS},
                                                 {"blocks", GW_RF_SHUFFLE_BLOCKS},
                                                 {"none", GW_RF_SHUFFLE_NONE},
                                                 {NULL, 0}};
static const gw_rf_name gw_rf_mem_names[] = {
    {"device", GW_MEM_DEVICE}, {"host", GW_MEM_HOST}, {"disk", GW_MEM_DISK}, {NULL, 0}};
static const gw_rf_name gw_rf_weight_wire_names[] = {
    {"same", GW_WIRE_SAME}, {"bf16", GW_WIRE_BF16}, {"int8", GW_WIRE_INT8}, {NULL, 0}};
static const gw_rf_name gw_rf_gradient_wire_names[] = {{"same", GW_WIRE_SAME},
                                                       {"bf16", GW_WIRE_BF16},
                                                       {"int8", GW_WIRE_INT8},
                                                       {"int4", GW_WIRE_INT4},
                                                       {NULL, 0}};

// ------------------------------------------------------------------ rows

#define ANY                                                                                        \
    { .names = NULL }
#define RANGE(low, high)                                                                           \
    { .bounded = true, .lo = (low), .hi = (high) }
#define ABOVE(low, high)                                                                           \
    { .bounded = true, .lo_open = true, .lo = (low), .hi = (high) }
#define RANGE_OR(w, low, high)                                                                     \
    { .bounded = true, .lo = (low), .hi = (high), .word = (w) }
#define CHOICE(list, type)                                                                         \
    { .names = (list) }

#define GW_GROUP(path, meaning)
#define GW_KEY(field, TYPE, fallback_, check_, unit_, when_, only_, meaning_)                      \
    {.path = #field,                                                                               \
     .offset = offsetof(gw_runfile, field),                                                        \
     .type = GW_RF_T_##TYPE,                                                                       \
     .fallback = (fallback_),                                                                      \
     .check = check_,                                                                              \
     .unit = (unit_),                                                                              \
     .only = (only_),                                                                              \
     .meaning = (meaning_)},
const gw_rf_key gw_rf_keys[] = {
#include "train/runfile.def"
};
#undef GW_GROUP
#undef GW_KEY

#define GW_GROUP(path_, meaning_) {(path_), (meaning_)},
#define GW_KEY(field, TYPE, fallback, check, unit, when, only, meaning)
const gw_rf_group gw_rf_groups[] = {
#include "train/runfile.def"
};
#undef GW_GROUP
#undef GW_KEY

const int gw_rf_nkeys = (int)GW_COUNT(gw_rf_keys);
const int gw_rf_ngroups = (int)GW_COUNT(gw_rf_groups);

/* The field's C type is the one that TYPE says. */
#define IS_BOOL(x)    _Generic((x), bool : 1, default : 0)
#define IS_INT(x)     _Generic((x), int64_t : 1, default : 0)
#define IS_BYTES(x)   IS_INT(x)
#define IS_REAL(x)    _Generic((x), double : 1, default : 0)
#define IS_TEXT(x)    _Generic((x), const char * : 1, default : 0)
#define IS_LIST(x)    _Generic((x), gw_rf_strings : 1, default : 0)
#define IS_PAIR(x)    _Generic((x), gw_rf_pair : 1, default : 0)
#define IS_MAP(x)     _Generic((x), gw_rf_map : 1, default : 0)
#define IS_COUNTS(x)  _Generic((x), gw_rf_counts : 1, default : 0)
#define IS_MIXTURE(x) _Generic((x), gw_rf_mixture : 1, default : 0)
#define IS_STAGES(x)  _Generic((x), gw_rf_stages : 1, default : 0)
#define IS_ENUM(x)    (sizeof(x) == sizeof(int) && !IS_BOOL(x))
#define GW_GROUP(path, meaning)
#define GW_KEY(field, TYPE, fallback, check, unit, when, only, meaning)                            \
    _Static_assert(IS_##TYPE(((gw_runfile *)0)->field), "type of " #field);
#include "train/runfile.def"
#undef GW_GROUP
#undef GW_KEY

#define GW_ALIAS(name_, key_, note_) {(name_), (key_), (note_)},
#define GW_ALIAS_SECTION(name, section)
const gw_rf_alias gw_rf_aliases[] = {
#include "train/runfile_alias.def"
};
#undef GW_ALIAS
#undef GW_ALIAS_SECTION
const int gw_rf_naliases = (int)GW_COUNT(gw_rf_aliases);

#define GW_ALIAS(name_, key_, note_)
#define GW_ALIAS_SECTION(name_, section_) {(name_), (section_), ""},
static const gw_rf_alias section_aliases[] = {
#include "train/runfile_alias.def"
};
#undef GW_ALIAS
#undef GW_ALIAS_SECTION

// ------------------------------------------------------------------ finding

int gw_rf_key_find(const char *path) {
    for (int i = 0; i < gw_rf_nkeys; i++)
        if (gw_str_eq(gw_rf_keys[i].path, path)) return i;
    return -1;
}

int gw_rf_group_find(const char *path) {
    for (int i = 0; i < gw_rf_ngroups; i++)
        if (gw_str_eq(gw_rf_groups[i].path, path)) return i;
    return -1;
}

const char *gw_rf_leaf(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

size_t gw_rf_group_length(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? (size_t)(dot - path) : 0;
}

bool gw_rf_is_derived(const gw_rf_key *k) { return k->fallback[0] == '='; }

const char *const *gw_runfile_keys(int *n) {
#define GW_GROUP(path, meaning)
#define GW_KEY(field, TYPE, fallback, check, unit, when, only, meaning) #field,
    static const char *const names[] = {
#include "train/runfile.def"
    };
#undef GW_GROUP
#undef GW_KEY
    *n = (int)GW_COUNT(names);
    return names;
}

// ------------------------------------------------------------------ hints

static char fold(char c) {
    if (c >= 'A' && c <= 'Z') return (char)(c - 'A' + 'a');
    return c == '-' ? '_' : c;
}

static bool same_name(const char *a, const char *b) {
    for (; *a && *b; a++, b++)
        if (fold(*a) != fold(*b)) return false;
    return *a == *b;
}

/* "section.name" says more than "name" alone. */
static const gw_rf_alias *find_alias(const char *section, const char *name) {
    const gw_rf_alias *bare = NULL;
    size_t n = strlen(section);
    for (int i = 0; i < gw_rf_naliases; i++) {
        const char *a = gw_rf_aliases[i].name;
        if (n && strncmp(a, section, n) == 0 && a[n] == '.' && same_name(a + n + 1, name))
            return &gw_rf_aliases[i];
        if (!bare && same_name(a, name)) bare = &gw_rf_aliases[i];
    }
    return bare;
}

static void hint_alias(const gw_rf_alias *a, gw_str *out) {
    if (!*a->key) {
        gw_str_add(out, a->note);
        return;
    }
    gw_str_printf(out, "here it is %s", a->key);
    if (*a->note) gw_str_printf(out, " (%s)", a->note);
}

/* Words so common that the same one in another section says nothing. */
static bool is_generic(const char *name) {
    static const char *const words[] = {"name", "type",  "path",  "factor", "policy",  "compute",
                                        "ops",  "train", "valid", "every",  "schedule"};
    for (size_t i = 0; i < GW_COUNT(words); i++)
        if (same_name(words[i], name)) return true;
    return false;
}

/* The key with this leaf in another section, or the section itself. */
static bool hint_same_leaf(const char *name, gw_str *out) {
    if (is_generic(name)) return false;
    for (int i = 0; i < gw_rf_nkeys; i++) {
        if (!same_name(gw_rf_leaf(gw_rf_keys[i].path), name)) continue;
        gw_str_printf(out, "its place is %s", gw_rf_keys[i].path);
        return true;
    }
    for (int i = 0; i < gw_rf_ngroups; i++) {
        if (!same_name(gw_rf_leaf(gw_rf_groups[i].path), name)) continue;
        gw_str_printf(out, "its place is %s", gw_rf_groups[i].path);
        return true;
    }
    return false;
}

typedef struct nearest {
    const char *path;
    int distance;
} nearest;

static void consider(nearest *best, const char *path, const char *name, int handicap) {
    int d = gw_str_distance(gw_rf_leaf(path), name);
    if (d >= 64) return;
    d += handicap;
    if (d < best->distance) *best = (nearest){path, d};
}

static bool hint_nearest(const char *section, const char *name, gw_str *out) {
    int limit = (int)strlen(name) / 3 + 1;
    nearest best = {NULL, limit + 1};
    for (int i = 0; i < gw_rf_nkeys; i++) {
        size_t n = gw_rf_group_length(gw_rf_keys[i].path);
        bool here = n == strlen(section) && memcmp(gw_rf_keys[i].path, section, n) == 0;
        if (!here && is_generic(gw_rf_leaf(gw_rf_keys[i].path))) continue;
        consider(&best, gw_rf_keys[i].path, name, here ? 0 : 1);
    }
    for (int i = 0; i < gw_rf_ngroups; i++)
        consider(&best, gw_rf_groups[i].path, name, *section ? 1 : 0);
    if (!best.path) return false;
    gw_str_printf(out, "did you mean %s?", best.path);
    return true;
}

bool gw_rf_hint(const char *section, const char *name, gw_str *out) {
    if (gw_rf_key_find(name) >= 0) { /* "train.steps: 5": the path belongs on a command line */
        gw_str_printf(out, "write '%s' below '%.*s:'; %s is how --set names it", gw_rf_leaf(name),
                      (int)gw_rf_group_length(name), name, name);
        return true;
    }
    const gw_rf_alias *key = find_alias(section, name), *place = NULL;
    for (size_t i = 0; i < GW_COUNT(section_aliases) && !*section; i++)
        if (same_name(section_aliases[i].name, name)) place = &section_aliases[i];
    if (key) hint_alias(key, out);
    if (place) gw_str_printf(out, "%shere the section is '%s'", key ? "; " : "", place->key);
    if (key || place) return true;
    if (hint_same_leaf(name, out)) return true;
    if (hint_nearest(section, name, out)) return true;
    if (*section) {
        gw_str_printf(out, "its keys:");
        const char *sep = " ";
        for (int i = 0; i < gw_rf_nkeys; i++) {
            size_t n = gw_rf_group_length(gw_rf_keys[i].path);
            if (n != strlen(section) || memcmp(gw_rf_keys[i].path, section, n) != 0) continue;
            gw_str_printf(out, "%s%s", sep, gw_rf_leaf(gw_rf_keys[i].path));
            sep = ", ";
        }
        return true;
    }
    gw_str_add(out, "sections: model, data, train, optimizer, precision, layout, recompute, "
                    "checkpoint");
    return true;
}
