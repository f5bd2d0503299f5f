// SPDX-License-Identifier: Apache-2.0
// What tests/file has: the maker of GGUF files, and the writer it uses.
#include "../file/damage.c"
#include "../file/gguf_maker.c"
