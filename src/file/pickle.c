// SPDX-License-Identifier: Apache-2.0
// The stack machine of pickles, without its power.
//
// Opcodes are those of the public description in CPython's pickletools: each takes its argument
// from the bytes that follow and changes the stack or the memo. Values are nodes in an arena, so
// that what the memo shares is one node; nothing here goes down a value, so depth is no danger. A
// node is made by at least one byte of input, a list grows by at least one, so memory is in
// proportion to the input.
//
// What is known by name (torch/_utils.py, torch/serialization.py of the public PyTorch):
//   collections.OrderedDict, dict, list, tuple, set   containers
//   torch.*Storage                                    the dtype of a storage
//   torch._utils._rebuild_tensor_v2                   (storage, first, dims, strides, ...) ->
//   tensor torch._utils._rebuild_parameter                   (tensor, ...) -> that tensor
//   torch.Size                                        a tuple
// A persistent id ("storage", type, key, device, elements) stands for a storage.
#include "file/pickle.h"

#include <stdio.h> /* snprintf */
#include <string.h>

#include "base/compiler.h" /* GW_COUNT */
#include "base/map.h"      /* GW_VEC */

typedef gw_pickle_value value;

typedef struct machine {
    const char *name;
    const uint8_t *p;
    int64_t n, at;
    gw_arena *a;
    gw_diags *dg;
    GW_VEC(value *) stack;
    GW_VEC(int64_t) marks; /* heights of the stack */
    GW_VEC(value *) memo;
    gw_imap memo_of; /* a key of the memo, and where it is there */
} machine;

enum opcode {
    MARK = '(',
    STOP = '.',
    POP = '0',
    POP_MARK = '1',
    DUP = '2',
    BINFLOAT = 'G',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    NONE = 'N',
    BINPERSID = 'Q',
    REDUCE = 'R',
    BINSTRING = 'T',
    SHORT_BINSTRING = 'U',
    BINUNICODE = 'X',
    EMPTY_LIST = ']',
    APPEND = 'a',
    BUILD = 'b',
    GLOBAL = 'c',
    DICT = 'd',
    EMPTY_DICT = '}',
    APPENDS = 'e',
    BINGET = 'h',
    LONG_BINGET = 'j',
    LIST = 'l',
    EMPTY_TUPLE = ')',
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    SETITEM = 's',
    TUPLE = 't',
    SETITEMS = 'u',
    BINBYTES = 'B',
    SHORT_BINBYTES = 'C',
    PROTO = 0x80,
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8a,
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE8 = 0x8d,
    STACK_GLOBAL = 0x93,
    MEMOIZE = 0x94,
    FRAME = 0x95
};

static gw_status damaged(machine *m, const char *what) {
    return gw_fail_at(m->dg, GW_ERR_FORMAT, "pickle-damaged", (gw_where){.file = m->name},
                      "the pickle is damaged at byte %lld: %s", (long long)m->at, what);
}

static gw_status refused(machine *m, const char *what, const char *name) {
    gw_status st =
        gw_fail_at(m->dg, GW_ERR_UNSUPPORTED, "pickle-refused", (gw_where){.file = m->name},
                   "the pickle %s %s at byte %lld, which no plain set of tensors needs", what, name,
                   (long long)m->at);
    gw_diag_hint(m->dg, m->dg ? m->dg->last : NULL,
                 "pickles are read without executing them; in a Python that you trust the file "
                 "with, save its state_dict alone, best as safetensors");
    return st;
}

static value *push(machine *m, gw_pickle_kind kind) {
    value *v = gw_arena_new(m->a, value, 1);
    v->kind = kind;
    gw_vec_push(&m->stack, v);
    return v;
}

/* The height below which nothing may be taken: the last mark. */
static int64_t floor_of(const machine *m) {
    return m->marks.count ? m->marks.items[m->marks.count - 1] : 0;
}

static value *pop(machine *m) {
    return m->stack.count > floor_of(m) ? m->stack.items[--m->stack.count] : NULL;
}

static value *top(const machine *m) {
    return m->stack.count > floor_of(m) ? m->stack.items[m->stack.count - 1] : NULL;
}

static bool number_of(machine *m, int bytes, uint64_t *out) {
    *out = 0;
    if (m->n - m->at < bytes) return false;
    for (int i = 0; i < bytes; i++) *out |= (uint64_t)m->p[m->at + i] << (8 * i);
    m->at += bytes;
    return true;
}

static gw_status push_int(machine *m, int bytes) {
    uint64_t x;
    if (!number_of(m, bytes, &x)) return damaged(m, "it ends within a number");
    push(m, GW_PICKLE_INT)->as.number = bytes == 4 ? (int64_t)(int32_t)(uint32_t)x : (int64_t)x;
    return GW_OK;
}

/* A number of so many bytes as two's complement; those past 64 bits are no size of ours. */
static gw_status push_long(machine *m) {
    uint64_t bytes, x = 0;
    if (!number_of(m, 1, &bytes)) return damaged(m, "it ends within a number");
    if (bytes > 8) return refused(m, "holds", "a whole number of more than 64 bits");
    if (!number_of(m, (int)bytes, &x)) return damaged(m, "it ends within a number");
    if (bytes > 0 && bytes < 8 && (x >> (8 * bytes - 1)) & 1) x |= ~UINT64_C(0) << (8 * bytes);
    push(m, GW_PICKLE_INT)->as.number = (int64_t)x;
    return GW_OK;
}

static gw_status push_float(machine *m) {
    uint64_t little, bits = 0;
    if (!number_of(m, 8, &little)) return damaged(m, "it ends within a number");
    for (int i = 0; i < 8; i++) bits |= (little >> (8 * i) & 0xff) << (8 * (7 - i));
    memcpy(&push(m, GW_PICKLE_FLOAT)->as.real, &bits, 8);
    return GW_OK;
}

static gw_status push_text(machine *m, int length_bytes) {
    uint64_t n;
    if (!number_of(m, length_bytes, &n) || n > (uint64_t)(m->n - m->at))
        return damaged(m, "it ends within a text");
    value *v = push(m, GW_PICKLE_STR);
    v->as.str.text = gw_arena_strndup(m->a, (const char *)m->p + m->at, (size_t)n);
    v->as.str.length = (int64_t)n;
    m->at += (int64_t)n;
    return GW_OK;
}

/* ---- names ---- */

static const struct {
    const char *name;
    gw_st_dtype dtype;
} storages[] = {{"torch FloatStorage", GW_ST_F32}, {"torch DoubleStorage", GW_ST_F64},
                {"torch HalfStorage", GW_ST_F16},  {"torch BFloat16Storage", GW_ST_BF16},
                {"torch LongStorage", GW_ST_I64},  {"torch IntStorage", GW_ST_I32},
                {"torch ShortStorage", GW_ST_I16}, {"torch CharStorage", GW_ST_I8},
                {"torch ByteStorage", GW_ST_U8},   {"torch BoolStorage", GW_ST_BOOL}};

static const char *const callables[] = {"collections OrderedDict",
                                        "torch._utils _rebuild_tensor_v2",
                                        "torch._utils _rebuild_parameter",
                                        "torch Size",
                                        "builtins dict",
                                        "builtins list",
                                        "builtins tuple",
                                        "builtins set",
                                        "__builtin__ dict",
                                        "__builtin__ list",
                                        "__builtin__ tuple",
                                        "__builtin__ set"};

static bool is_known(const char *name) {
    for (size_t i = 0; i < GW_COUNT(storages); i++)
        if (strcmp(storages[i].name, name) == 0) return true;
    for (size_t i = 0; i < GW_COUNT(callables); i++)
        if (strcmp(callables[i], name) == 0) return true;
    return false;
}

static gw_status push_name(machine *m, const char *module, size_t n, const char *name, size_t k) {
    const char *full = gw_arena_printf(m->a, "%.*s %.*s", (int)GW_MIN(n, (size_t)200), module,
                                       (int)GW_MIN(k, (size_t)200), name);
    if (n > 200 || k > 200 || !is_known(full)) return refused(m, "names", full);
    value *v = push(m, GW_PICKLE_GLOBAL);
    v->as.str.text = full;
    v->as.str.length = (int64_t)strlen(full);
    return GW_OK;
}

static gw_status push_global(machine *m) {
    const char *lines[2];
    size_t lengths[2];
    for (int i = 0; i < 2; i++) {
        const uint8_t *end = memchr(m->p + m->at, '\n', (size_t)(m->n - m->at));
        if (!end) return damaged(m, "it ends within a name");
        lines[i] = (const char *)m->p + m->at;
        lengths[i] = (size_t)(end - m->p - m->at);
        m->at = end - m->p + 1;
    }
    return push_name(m, lines[0], lengths[0], lines[1], lengths[1]);
}

static gw_status push_stack_global(machine *m) {
    const value *name = pop(m), *module = pop(m);
    if (!name || !module || name->kind != GW_PICKLE_STR || module->kind != GW_PICKLE_STR)
        return damaged(m, "a name is not made of two texts");
    return push_name(m, module->as.str.text, strlen(module->as.str.text), name->as.str.text,
                     strlen(name->as.str.text));
}

/* ---- containers ---- */

static void add(machine *m, value *list, value *item) {
    if (list->as.list.count == list->as.list.cap) {
        int64_t cap = GW_MAX(list->as.list.cap * 2, (int64_t)4);
        value **items = gw_arena_new(m->a, value *, cap);
        if (list->as.list.count)
            memcpy(items, list->as.list.items, (size_t)list->as.list.count * sizeof *items);
        list->as.list.items = items;
        list->as.list.cap = cap;
    }
    list->as.list.items[list->as.list.count++] = item;
}

/* What stands above the last mark goes to the end of `to`. */
static gw_status move_marked(machine *m, value *to) {
    int64_t from = floor_of(m);
    for (int64_t i = from; i < m->stack.count; i++) add(m, to, m->stack.items[i]);
    m->stack.count = from;
    m->marks.count--;
    return GW_OK;
}

static gw_status make_marked(machine *m, gw_pickle_kind kind) {
    if (!m->marks.count) return damaged(m, "a mark is missing");
    value *v = gw_arena_new(m->a, value, 1);
    v->kind = kind;
    GW_TRY(move_marked(m, v));
    if (kind == GW_PICKLE_DICT && v->as.list.count % 2) return damaged(m, "a key has no value");
    gw_vec_push(&m->stack, v);
    return GW_OK;
}

static gw_status make_tuple(machine *m, int n) {
    value *v = gw_arena_new(m->a, value, 1), *items[3];
    v->kind = GW_PICKLE_TUPLE;
    for (int i = n - 1; i >= 0; i--)
        if (!(items[i] = pop(m))) return damaged(m, "a tuple lacks a member");
    for (int i = 0; i < n; i++) add(m, v, items[i]);
    gw_vec_push(&m->stack, v);
    return GW_OK;
}

/* APPENDS, SETITEMS: what is marked goes into the container below the mark. */
static gw_status extend(machine *m, gw_pickle_kind kind) {
    if (!m->marks.count) return damaged(m, "a mark is missing");
    int64_t from = floor_of(m), below = m->marks.count > 1 ? m->marks.items[m->marks.count - 2] : 0;
    value *to = from > below ? m->stack.items[from - 1] : NULL;
    if (!to || to->kind != kind) return damaged(m, "items for something that takes none");
    if (kind == GW_PICKLE_DICT && (m->stack.count - from) % 2)
        return damaged(m, "a key has no value");
    return move_marked(m, to);
}

static gw_status set_item(machine *m) {
    value *v = pop(m), *k = pop(m), *to = top(m);
    if (!v || !k || !to || to->kind != GW_PICKLE_DICT) return damaged(m, "an item for no dict");
    add(m, to, k);
    add(m, to, v);
    return GW_OK;
}

static gw_status append(machine *m) {
    value *v = pop(m), *to = top(m);
    if (!v || !to || to->kind != GW_PICKLE_LIST) return damaged(m, "an item for no list");
    add(m, to, v);
    return GW_OK;
}

/* ---- the memo ---- */

static gw_status remember(machine *m, uint64_t key) {
    value *v = top(m);
    if (!v) return damaged(m, "nothing to remember");
    gw_imap_put(&m->memo_of, key, (uint32_t)m->memo.count);
    gw_vec_push(&m->memo, v);
    return GW_OK;
}

static gw_status remember_as(machine *m, int bytes) {
    uint64_t key;
    if (!number_of(m, bytes, &key)) return damaged(m, "it ends within a number");
    return remember(m, key);
}

static gw_status recall(machine *m, int bytes) {
    uint64_t key;
    uint32_t at;
    if (!number_of(m, bytes, &key)) return damaged(m, "it ends within a number");
    if (!gw_imap_find(&m->memo_of, key, &at)) return damaged(m, "it recalls what was not kept");
    gw_vec_push(&m->stack, m->memo.items[at]);
    return GW_OK;
}

/* ---- what is called ---- */

static const value *item(const value *v, int64_t i, gw_pickle_kind kind) {
    bool some = v && (v->kind == GW_PICKLE_TUPLE || v->kind == GW_PICKLE_LIST);
    if (!some || i >= v->as.list.count || v->as.list.items[i]->kind != kind) return NULL;
    return v->as.list.items[i];
}

static int numbers_of(const value *v, int64_t out[GW_PICKLE_DIMS]) {
    if (!v || (v->kind != GW_PICKLE_TUPLE && v->kind != GW_PICKLE_LIST) ||
        v->as.list.count > GW_PICKLE_DIMS)
        return -1;
    for (int64_t i = 0; i < v->as.list.count; i++) {
        const value *n = item(v, i, GW_PICKLE_INT);
        if (!n || n->as.number < 0) return -1;
        out[i] = n->as.number;
    }
    return (int)v->as.list.count;
}

static gw_status rebuild_tensor(machine *m, const value *args) {
    const value *storage = item(args, 0, GW_PICKLE_STORAGE), *first = item(args, 1, GW_PICKLE_INT);
    const value *dims = item(args, 2, GW_PICKLE_TUPLE), *strides = item(args, 3, GW_PICKLE_TUPLE);
    value *v = push(m, GW_PICKLE_TENSOR);
    gw_pickle_tensor *t = &v->as.tensor;
    if (!storage || !first || first->as.number < 0) return damaged(m, "a tensor without a storage");
    t->storage = &storage->as.storage;
    t->first = first->as.number;
    t->ndim = numbers_of(dims, t->dims);
    if (t->ndim < 0 || numbers_of(strides, t->strides) != t->ndim)
        return damaged(m, "a tensor of no shape");
    return GW_OK;
}

static gw_status call(machine *m) {
    value *args = pop(m);
    const value *f = pop(m);
    if (!f || !args || args->kind != GW_PICKLE_TUPLE) return damaged(m, "a call without a name");
    if (f->kind != GW_PICKLE_GLOBAL) return refused(m, "calls", "a value");
    const char *name = f->as.str.text;
    if (strcmp(name, "torch._utils _rebuild_tensor_v2") == 0) return rebuild_tensor(m, args);
    if (strcmp(name, "torch._utils _rebuild_parameter") == 0) {
        const value *t = item(args, 0, GW_PICKLE_TENSOR);
        if (!t) return damaged(m, "a parameter without a tensor");
        gw_vec_push(&m->stack, args->as.list.items[0]);
        return GW_OK;
    }
    bool empty = args->as.list.count == 0;
    if (strstr(name, "Dict") || strstr(name, " dict")) {
        if (!empty) return refused(m, "calls", name);
        push(m, GW_PICKLE_DICT);
        return GW_OK;
    }
    if (strcmp(name, "torch Size") == 0 || strstr(name, " list") || strstr(name, " tuple") ||
        strstr(name, " set")) {
        const value *of = empty ? args : args->as.list.items[0];
        if (of->kind != GW_PICKLE_TUPLE && of->kind != GW_PICKLE_LIST)
            return refused(m, "calls", name);
        push(m, strstr(name, " list") ? GW_PICKLE_LIST : GW_PICKLE_TUPLE)->as.list = of->as.list;
        return GW_OK;
    }
    return refused(m, "calls", name);
}

static gw_status take_storage(machine *m) {
    const value *id = pop(m), *type = item(id, 1, GW_PICKLE_GLOBAL);
    const value *tag = item(id, 0, GW_PICKLE_STR), *key = item(id, 2, GW_PICKLE_STR);
    const value *elems = item(id, 4, GW_PICKLE_INT);
    if (!tag || strcmp(tag->as.str.text, "storage") != 0 || !key || !elems)
        return refused(m, "refers to", "something that is no storage");
    for (size_t i = 0; type && i < GW_COUNT(storages); i++) {
        if (strcmp(storages[i].name, type->as.str.text) != 0) continue;
        push(m, GW_PICKLE_STORAGE)->as.storage =
            (gw_pickle_storage){storages[i].dtype, key->as.str.text, elems->as.number};
        return elems->as.number >= 0 ? GW_OK : damaged(m, "a storage of a negative size");
    }
    return refused(m, "holds a storage of", type ? type->as.str.text : "no type");
}

/* The state of an object: of a dict its attributes, which mean nothing here; nothing else has one.
 */
static gw_status build(machine *m) {
    const value *state = pop(m), *of = top(m);
    if (!state || !of) return damaged(m, "a state for nothing");
    return of->kind == GW_PICKLE_DICT ? GW_OK : refused(m, "sets the state of", "an object");
}

static gw_status repeat(machine *m) {
    value *v = top(m);
    if (!v) return damaged(m, "nothing to repeat");
    gw_vec_push(&m->stack, v);
    return GW_OK;
}

/* ---- the loop ---- */

/* One opcode per case: a dispatch. */
static gw_status step(machine *m, uint8_t op) {
    uint64_t skip;
    switch (op) {
    case PROTO:
        if (!number_of(m, 1, &skip)) return damaged(m, "it ends at once");
        return skip >= 2 && skip <= 5 ? GW_OK : refused(m, "has", "a protocol that is not 2 to 5");
    case FRAME: return number_of(m, 8, &skip) ? GW_OK : damaged(m, "it ends within a frame");
    case MARK: gw_vec_push(&m->marks, m->stack.count); return GW_OK;
    case POP: return pop(m) ? GW_OK : damaged(m, "nothing to drop");
    case POP_MARK:
        if (!m->marks.count) return damaged(m, "a mark is missing");
        m->stack.count = floor_of(m);
        m->marks.count--;
        return GW_OK;
    case DUP: return repeat(m);
    case NONE: push(m, GW_PICKLE_NONE); return GW_OK;
    case NEWTRUE:
    case NEWFALSE: push(m, GW_PICKLE_BOOL)->as.number = op == NEWTRUE; return GW_OK;
    case BININT: return push_int(m, 4);
    case BININT1: return push_int(m, 1);
    case BININT2: return push_int(m, 2);
    case LONG1: return push_long(m);
    case BINFLOAT: return push_float(m);
    case SHORT_BINUNICODE:
    case SHORT_BINSTRING:
    case SHORT_BINBYTES: return push_text(m, 1);
    case BINUNICODE:
    case BINSTRING:
    case BINBYTES: return push_text(m, 4);
    case BINUNICODE8: return push_text(m, 8);
    case GLOBAL: return push_global(m);
    case STACK_GLOBAL: return push_stack_global(m);
    case EMPTY_DICT: push(m, GW_PICKLE_DICT); return GW_OK;
    case EMPTY_LIST: push(m, GW_PICKLE_LIST); return GW_OK;
    case EMPTY_TUPLE: push(m, GW_PICKLE_TUPLE); return GW_OK;
    case TUPLE1: return make_tuple(m, 1);
    case TUPLE2: return make_tuple(m, 2);
    case TUPLE3: return make_tuple(m, 3);
    case TUPLE: return make_marked(m, GW_PICKLE_TUPLE);
    case LIST: return make_marked(m, GW_PICKLE_LIST);
    case DICT: return make_marked(m, GW_PICKLE_DICT);
    case APPENDS: return extend(m, GW_PICKLE_LIST);
    case SETITEMS: return extend(m, GW_PICKLE_DICT);
    case APPEND: return append(m);
    case SETITEM: return set_item(m);
    case BINPUT: return remember_as(m, 1);
    case LONG_BINPUT: return remember_as(m, 4);
    case MEMOIZE: return remember(m, (uint64_t)m->memo.count);
    case BINGET: return recall(m, 1);
    case LONG_BINGET: return recall(m, 4);
    case REDUCE: return call(m);
    case BINPERSID: return take_storage(m);
    case BUILD: return build(m);
    }
    char code[8];
    snprintf(code, sizeof code, "0x%02x", op);
    return refused(m, "has the opcode", code);
}

static gw_status run(machine *m, const gw_pickle_value **out) {
    while (m->at < m->n) {
        uint8_t op = m->p[m->at++];
        if (op == STOP) {
            *out = top(m);
            return *out ? GW_OK : damaged(m, "it ends with nothing");
        }
        GW_TRY(step(m, op));
    }
    return damaged(m, "it has no end");
}

gw_status gw_pickle_read(const char *name, const void *bytes, int64_t n, gw_arena *a,
                         const gw_pickle_value **out, gw_diags *dg) {
    machine m = {.name = name, .p = bytes, .n = n, .a = a, .dg = dg};
    *out = NULL;
    gw_status st = run(&m, out);
    gw_vec_release(&m.stack);
    gw_vec_release(&m.marks);
    gw_vec_release(&m.memo);
    gw_imap_release(&m.memo_of);
    return st;
}

const gw_pickle_value *gw_pickle_get(const gw_pickle_value *dict, const char *key) {
    if (!dict || dict->kind != GW_PICKLE_DICT) return NULL;
    const gw_pickle_value *found = NULL;
    for (int64_t i = 0; i + 1 < dict->as.list.count; i += 2) {
        const value *k = dict->as.list.items[i];
        if (k->kind == GW_PICKLE_STR && strcmp(k->as.str.text, key) == 0)
            found = dict->as.list.items[i + 1]; /* the last one counts, as in Python */
    }
    return found;
}
