// SPDX-License-Identifier: Apache-2.0
// The misbehaving object store, which other folders' tests and benchmarks have too.
#include "../store_server/server.c"
