// SPDX-License-Identifier: Apache-2.0
// A small object store on loopback that misbehaves on demand: for tests and benchmarks of what
// reads and writes over a network. It speaks enough of S3 (path style, any signature) and of plain
// HTTP with ranges. Objects are in memory, or made of noise on the fly.
#ifndef GW_TESTS_STORE_SERVER_H
#define GW_TESTS_STORE_SERVER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct store_server store_server;

typedef struct store_server_options {
    double first_byte_s;           /* before each answer */
    double bytes_per_s;            /* of the link that all connections share; 0: no limit */
    double connection_bytes_per_s; /* of each connection; 0: no limit */
    int port;                      /* 0: any */
} store_server_options;

typedef enum store_fault_kind {
    FAULT_STATUS, /* answers `status` with S3 code `text`, and Retry-After of whole `seconds` */
    FAULT_ANSWER, /* answers `status` with the body `text` */
    FAULT_DELAY,  /* the first byte comes `seconds` later */
    FAULT_STALL,  /* after `at` bytes of the body nothing for `seconds`, then the end; of a */
                  /* write nothing is done, and no answer comes */
    FAULT_DRIP,   /* after `at` bytes of the body, one byte each `seconds` */
    FAULT_RESET,  /* after `at` bytes of the body the connection is reset */
    FAULT_CLOSE,  /* after `at` bytes of the body it is closed, as if all had been sent */
    FAULT_SHIFT_RANGE, /* bytes and Content-Range are those `at` further */
    FAULT_NO_RANGE,    /* a range is answered by the whole object */
    FAULT_FLIP,        /* byte `at` of the object is another */
    FAULT_CHANGE,      /* just before answering, the object becomes another version */
    FAULT_LOST,        /* does what is asked for, then resets instead of answering */
    FAULT_GARBAGE      /* answers something that is no HTTP */
} store_fault_kind;

typedef struct store_fault {
    store_fault_kind kind;
    const char *method; /* "GET" ...; NULL: any */
    const char *path;   /* a piece of "path?query"; NULL: any */
    int skip, count;    /* passes over `skip` such requests, then acts on `count`; 0: on all */
    int64_t at;
    double seconds;
    int status;
    const char *text;
} store_fault;

typedef struct store_server_stats {
    int64_t requests, connections, bytes_sent, puts, throttled;
    int most_at_once; /* requests that were being answered at the same time */
} store_server_stats;

store_server *store_server_start(
    const store_server_options *o); /* fails the program if it cannot */
void store_server_stop(store_server *s);
/* "http://127.0.0.1:PORT" */
const char *store_server_url(const store_server *s);
/* s3:// is this one from here on, in this process and its children; no configuration is read. */
void store_server_use(const store_server *s);
/* Sets an object, "/bucket/key"; bytes are copied. /noise/SEED/BYTES are there by themselves. */
void store_server_set(store_server *s, const char *path, const void *bytes, int64_t n);
/* The bytes of an object, to free(); NULL where there is none. */
uint8_t *store_server_get(store_server *s, const char *path, int64_t *n);
/* Faults are looked at in the order in which they were added; the first that fits acts. */
void store_server_fault(store_server *s, const store_fault *f);
/* Its clock, by which objects are dated and answers too, goes so much before this machine's. */
void store_server_set_clock(store_server *s, double ahead_s);
void store_server_no_faults(store_server *s);
void store_server_get_stats(store_server *s, store_server_stats *out);
/* Multipart uploads that are under way. */
int store_server_uploads(store_server *s);
/* Byte i of a noise object. */
uint8_t store_server_noise(uint64_t seed, int64_t i);
/* Its first n bytes, to be freed with gw_mem_free. */
uint8_t *store_server_noise_bytes(int64_t n, uint64_t seed);

#endif
