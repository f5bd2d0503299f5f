// SPDX-License-Identifier: Apache-2.0
// Makers of seeds that other folders' tests have: compiled programs, GGUF files.
#include "../file/damage.c"
#include "../file/gguf_maker.c"
#include "../pass/programs.c"
