// SPDX-License-Identifier: Apache-2.0
// Ranks as processes, as the tests of src/comm start them.
#include "../comm/rig.c"
