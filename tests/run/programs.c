// SPDX-License-Identifier: Apache-2.0
// The tests of passes and of the executor make their programs the same way.
#include "../pass/programs.c"
