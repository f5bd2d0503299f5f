// SPDX-License-Identifier: Apache-2.0
// Reads objects of noise from a store as a loader would: in order, far ahead, and prints how fast.
//
//   fetch ENDPOINT OBJECTS BYTES [--rate MB/S] [--in-flight N] [--piece BYTES] [--buffer BYTES]
//
// One line of JSON: seconds, bytes, MB/s, share of --rate, processor seconds for a gigabyte,
// requests, retries, hedges, the greatest number in flight. The first fifth of the objects is
// warm-up (finding the link) and counted apart; `share_with_warm_up` is of the whole run,
// connecting included.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h" /* gw_clock_ns */
#include "file/fetch.h" /* what is measured */

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int fail(gw_diags *dg) {
    gw_diags_print(dg, stderr, false);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "fetch ENDPOINT OBJECTS BYTES [options]\n"), 2;
    int64_t n = strtoll(argv[2], NULL, 10), bytes = strtoll(argv[3], NULL, 10);
    gw_fetch_options o = {0};
    double rate = 0;
    for (int i = 4; i + 1 < argc; i += 2) {
        double v = strtod(argv[i + 1], NULL);
        if (strcmp(argv[i], "--rate") == 0)
            rate = v * 1e6;
        else if (strcmp(argv[i], "--in-flight") == 0)
            o.fixed_in_flight = (int)v;
        else if (strcmp(argv[i], "--piece") == 0)
            o.piece_bytes = (int64_t)v;
        else if (strcmp(argv[i], "--buffer") == 0)
            o.buffer_bytes = (int64_t)v;
        else
            return fprintf(stderr, "fetch: unknown option %s\n", argv[i]), 2;
    }
    gw_diags dg;
    gw_store *store;
    gw_fetch *f;
    gw_fetch_stats s;
    gw_diags_init(&dg);
    gw_store_options so = {.endpoint = argv[1], .anonymous = true};
    if (gw_store_open("s3://noise", &so, &store, &dg) != GW_OK) return fail(&dg);
    if (gw_fetch_open(store, &o, &f, &dg) != GW_OK) return fail(&dg);
    gw_fetch_ticket *t = gw_mem_alloc(sizeof *t * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        char key[64];
        snprintf(key, sizeof key, "%lld/%lld", (long long)i, (long long)bytes);
        gw_fetch_item item = {.key = key, .bytes = bytes};
        if (gw_fetch_submit(f, &item, &t[i], &dg) != GW_OK) return fail(&dg);
    }
    int64_t begun = gw_clock_ns(), warm_ns = begun, warm_bytes = 0;
    double warm_cpu = cpu_seconds();
    for (int64_t i = 0; i < n; i++) {
        gw_fetch_block b;
        if (i == n / 5) {
            warm_ns = gw_clock_ns();
            warm_cpu = cpu_seconds();
            gw_fetch_get_stats(f, &s);
            warm_bytes = s.network_bytes;
        }
        if (gw_fetch_wait(f, t[i], &b, &dg) != GW_OK) return fail(&dg);
        gw_fetch_release(f, &b);
    }
    int64_t end = gw_clock_ns();
    gw_fetch_get_stats(f, &s);
    /* What came over the network since: blocks that waited in the buffers do not count. */
    double took = (double)(end - warm_ns) * 1e-9, moved = (double)(s.network_bytes - warm_bytes);
    printf("{\"seconds\": %.3f, \"warm_up_s\": %.3f, \"bytes\": %.0f, \"mb_per_s\": %.2f, ", took,
           (double)(warm_ns - begun) * 1e-9, moved, moved / took * 1e-6);
    if (rate > 0)
        printf("\"share_of_link\": %.4f, \"share_with_warm_up\": %.4f, ", moved / took / rate,
               (double)s.bytes / ((double)(end - begun) * 1e-9) / rate);
    printf("\"cpu_s_per_gb\": %.3f, \"requests\": %lld, \"retries\": %lld, \"hedges\": %lld, "
           "\"hedges_won\": %lld, \"target\": %d, \"peak_buffer_mb\": %.1f, \"p50_ms\": %.1f, "
           "\"p95_ms\": %.1f}\n",
           (cpu_seconds() - warm_cpu) / (moved * 1e-9), (long long)s.requests, (long long)s.retries,
           (long long)s.hedges, (long long)s.hedges_won, s.in_flight_target,
           (double)s.buffered_peak_bytes * 1e-6, s.first_byte_p50_s * 1e3,
           s.first_byte_p95_s * 1e3);
    gw_mem_free(t);
    gw_fetch_close(f);
    gw_store_free(store);
    gw_diags_release(&dg);
    return 0;
}
