// SPDX-License-Identifier: Apache-2.0
// A small op table for testing the IR by itself: one op for each thing a descriptor can say.
//
//   mix a, b?            {n=3 flag=false scale=1.5 label="" to=f32}   one attribute of each kind
//   gemm x[b d], w[v d]  -> y[b v]                                     contracts d
//   accum x, acc?        -> y                                          an accumulator
//   update p, g          -> p'                                         tied to input 0
//   move x               -> y                                          may run in place
//   split x              -> y, z                                       two outputs
//   join a, ...          -> y                                          variadic
//   signal x             ->                                            no output
#ifndef GW_TESTS_IR_TABLE_H
#define GW_TESTS_IR_TABLE_H

#include "ir/opdef.h" /* gw_optable */

enum { OP_MIX, OP_GEMM, OP_ACCUM, OP_UPDATE, OP_MOVE, OP_SPLIT, OP_JOIN, OP_SIGNAL };

const gw_optable *test_table(void);
/* Parses; the test fails if the text does not. */
gw_graph test_graph(const char *text);

#endif
