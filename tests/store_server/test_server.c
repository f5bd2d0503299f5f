// SPDX-License-Identifier: Apache-2.0
// The misbehaving store itself: its link is as slow as it says, since benchmarks divide by that.
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h" /* gw_clock_ns */
#include "file/store.h" /* gw_store_get */
#include "harness.h"
#include "server.h" /* what is tested */

typedef struct reader {
    pthread_t thread;
    gw_store *store;
    uint8_t bytes[1000000];
    bool ok;
} reader;

static void *read_one(void *user) {
    reader *r = user;
    r->ok = gw_store_get(r->store, "4/1000000", NULL, 0, 1000000, r->bytes, NULL) == GW_OK;
    return NULL;
}

/* Three connections read 1 MB each over 10 MB/s, 100 ms to the first byte: not sooner than 0.38 s
 * (20 ms of lateness are forgiven), and the bytes are the noise. */
TEST(server_link_is_shared) {
    gw_diags dg;
    gw_store *s;
    reader *r = calloc(3, sizeof *r);
    gw_diags_init(&dg);
    store_server *server =
        store_server_start(&(store_server_options){.first_byte_s = 0.1, .bytes_per_s = 10e6});
    gw_store_options o = {.endpoint = store_server_url(server), .anonymous = true};
    CHECK_OK(gw_store_open("s3://noise", &o, &s, &dg), &dg);
    int64_t begun = gw_clock_ns();
    for (int i = 0; i < 3; i++) {
        r[i].store = s;
        CHECK(pthread_create(&r[i].thread, NULL, read_one, &r[i]) == 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(r[i].thread, NULL);
    double took = (double)(gw_clock_ns() - begun) * 1e-9;
    /* the last step of each connection need not be waited for once it is handed over */
    CHECK_MSG(took > 0.1 + 0.3 - 0.02 - 3 * 0.0132, "%.3f s", took);
    for (int i = 0; i < 3; i++) {
        CHECK(r[i].ok);
        for (int64_t k = 0; k < 1000000; k += 997) CHECK(r[i].bytes[k] == store_server_noise(4, k));
    }
    gw_store_free(s);
    store_server_stop(server);
    free(r);
    gw_diags_release(&dg);
}
