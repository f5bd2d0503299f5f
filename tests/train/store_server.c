// SPDX-License-Identifier: Apache-2.0
// The misbehaving object store of tests/store_server.
#include "../store_server/server.c"
