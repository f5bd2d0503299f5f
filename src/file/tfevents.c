// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files, written without protobuf or TensorFlow.
//
// A file is a sequence of TFRecords: u64 length, masked CRC-32C of those eight bytes, the payload,
// masked CRC-32C of the payload. The payload is an Event message; of its fields a scalar needs
// four:
//
//   Event   1 double wall_time   2 int64 step   3 string file_version   5 Summary summary
//   Summary 1 repeated Value     Value  1 string tag   2 float simple_value
//
// Each field is a key (number << 3 | wire type) and its bytes: wire type 0 is a varint, 1 eight
// bytes, 2 a length and bytes, 5 four bytes. The first record holds file_version "brain.Event:2".
// TensorBoard reads a growing file and stops at an incomplete record until more arrives, so records
// leave in whole buffers and a crash costs at most the unflushed tail.
//
// The checksum is rotated and offset (masked) because a CRC of data that holds CRCs is weak.
#include "file/tfevents.h" /* this module's contract */

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"  /* gw_dir_make, gw_fd_write_all */
#include "base/str.h" /* gw_str */

enum { BUFFER = 1 << 16 };

struct gw_tfevents {
    gw_arena arena;
    const char *path;
    int fd;
    gw_str pending;                /* whole records */
    gw_str record, summary, inner; /* scratch: Event, Summary, Value */
};

/* --- checksum -------------------------------------------------------------------------------- */

/* CRC of each nibble by the reflected polynomial 0x82F63B78. */
static const uint32_t crc_nibble[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t gw_crc32c(const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        c = c >> 4 ^ crc_nibble[c & 15];
        c = c >> 4 ^ crc_nibble[c & 15];
    }
    return ~c;
}

uint32_t gw_crc32c_masked(const void *bytes, size_t n) {
    uint32_t c = gw_crc32c(bytes, n);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* --- messages -------------------------------------------------------------------------------- */

static void add_varint(gw_str *s, uint64_t x) {
    for (; x >= 0x80; x >>= 7) gw_str_add_char(s, (char)(x | 0x80));
    gw_str_add_char(s, (char)x);
}

static void add_double(gw_str *s, int field, double x) {
    add_varint(s, (uint64_t)field << 3 | 1);
    gw_str_add_n(s, &x, sizeof x);
}

static void add_float(gw_str *s, int field, float x) {
    add_varint(s, (uint64_t)field << 3 | 5);
    gw_str_add_n(s, &x, sizeof x);
}

static void add_bytes(gw_str *s, int field, const void *bytes, size_t n) {
    add_varint(s, (uint64_t)field << 3 | 2);
    add_varint(s, n);
    gw_str_add_n(s, bytes, n);
}

/* Frames `record` onto what is pending. */
static void add_record(gw_tfevents *t) {
    uint64_t n = t->record.len;
    uint32_t length_crc = gw_crc32c_masked(&n, sizeof n);
    uint32_t data_crc = gw_crc32c_masked(t->record.data, t->record.len);
    gw_str_add_n(&t->pending, &n, sizeof n);
    gw_str_add_n(&t->pending, &length_crc, sizeof length_crc);
    gw_str_add_n(&t->pending, t->record.data, t->record.len);
    gw_str_add_n(&t->pending, &data_crc, sizeof data_crc);
}

/* --- the file -------------------------------------------------------------------------------- */

/* Opens a name that nobody has: two runs in one second and process still get their own files. */
static gw_status create(gw_tfevents *t, const char *dir, double wall, gw_diags *dg) {
    char host[256] = "localhost";
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
        snprintf(host, sizeof host, "localhost");
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '_';
    for (int n = 0; n < 1000; n++) {
        char *name = gw_arena_printf(&t->arena, "events.out.tfevents.%010lld.%s.%ld.%d",
                                     (long long)wall, host, (long)getpid(), n);
        t->path = gw_path_join(&t->arena, dir, name);
        t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (t->fd >= 0) return GW_OK;
        if (errno != EEXIST) break;
    }
    return gw_fail_at(dg, GW_ERR_IO, "file-write", (gw_where){.file = t->path},
                      "cannot create the file: %s", strerror(errno));
}

static void release(gw_tfevents *t) {
    if (t->fd >= 0) close(t->fd);
    gw_str_release(&t->pending);
    gw_str_release(&t->record);
    gw_str_release(&t->summary);
    gw_str_release(&t->inner);
    gw_arena_release(&t->arena);
    gw_mem_free(t);
}

gw_status gw_tfevents_open(const char *dir, double wall, gw_tfevents **out, gw_diags *dg) {
    static const char version[] = "brain.Event:2";
    *out = NULL;
    gw_tfevents *t = gw_mem_zalloc(sizeof *t);
    gw_arena_init(&t->arena);
    t->fd = -1;
    gw_str_reserve(&t->pending, BUFFER + 4096);
    gw_status s = gw_dir_make(dir, dg);
    if (s == GW_OK) s = create(t, dir, wall, dg);
    if (s == GW_OK) {
        add_double(&t->record, 1, wall);
        add_bytes(&t->record, 3, version, sizeof version - 1);
        add_record(t);
        s = gw_tfevents_flush(t, dg);
    }
    if (s != GW_OK) {
        release(t);
        return s;
    }
    *out = t;
    return GW_OK;
}

gw_status gw_tfevents_scalar(gw_tfevents *t, const char *tag, int64_t step, double value,
                             double wall, gw_diags *dg) {
    gw_str_clear(&t->inner);
    add_bytes(&t->inner, 1, tag, strlen(tag));
    add_float(&t->inner, 2, (float)value);
    gw_str_clear(&t->record);
    add_double(&t->record, 1, wall);
    add_varint(&t->record, 2 << 3 | 0);
    add_varint(&t->record, (uint64_t)step);
    gw_str_clear(&t->summary);
    add_bytes(&t->summary, 1, t->inner.data, t->inner.len);
    add_bytes(&t->record, 5, t->summary.data, t->summary.len);
    add_record(t);
    return t->pending.len >= BUFFER ? gw_tfevents_flush(t, dg) : GW_OK;
}

gw_status gw_tfevents_flush(gw_tfevents *t, gw_diags *dg) {
    if (t->pending.len == 0) return GW_OK;
    gw_status s = gw_fd_write_all(t->fd, t->pending.data, (int64_t)t->pending.len, t->path, dg);
    gw_str_clear(&t->pending);
    return s;
}

const char *gw_tfevents_path(const gw_tfevents *t) { return t->path; }

gw_status gw_tfevents_close(gw_tfevents *t, gw_diags *dg) {
    if (!t) return GW_OK;
    gw_status s = gw_tfevents_flush(t, dg);
    release(t);
    return s;
}
