// SPDX-License-Identifier: Apache-2.0
// The loopback object store of the tests as a program: a link of a set rate behind a set time to
// the first byte, for benchmarks of what reads over a network.
//
//   store_server [--first-byte MS] [--rate MB/S] [--connection-rate MB/S] [--port N] [--seconds S]
//
// Prints its URL and serves until its standard input ends, or for S seconds. /noise/SEED/BYTES are
// objects of any size. At the end it prints what it sent.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/store_server/server.c"

int main(int argc, char **argv) {
    store_server_options o = {0};
    int seconds = 3600;
    for (int i = 1; i + 1 < argc; i += 2) {
        double v = strtod(argv[i + 1], NULL);
        if (strcmp(argv[i], "--first-byte") == 0)
            o.first_byte_s = v * 1e-3;
        else if (strcmp(argv[i], "--rate") == 0)
            o.bytes_per_s = v * 1e6;
        else if (strcmp(argv[i], "--connection-rate") == 0)
            o.connection_bytes_per_s = v * 1e6;
        else if (strcmp(argv[i], "--port") == 0)
            o.port = (int)v;
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = (int)v;
        else
            return fprintf(stderr, "store_server: unknown option %s\n", argv[i]), 2;
    }
    store_server *s = store_server_start(&o);
    store_server_stats st;
    printf("%s\n", store_server_url(s));
    fflush(stdout);
    struct pollfd in = {.fd = 0, .events = POLLIN};
    for (int i = 0; i < seconds * 10; i++) {
        char byte;
        if (poll(&in, 1, 100) > 0 && read(0, &byte, 1) <= 0) break;
    }
    store_server_get_stats(s, &st);
    printf("sent %.3f GB in %lld requests over %lld connections, %d at once\n",
           (double)st.bytes_sent * 1e-9, (long long)st.requests, (long long)st.connections,
           st.most_at_once);
    store_server_stop(s);
    return 0;
}
