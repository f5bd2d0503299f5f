// SPDX-License-Identifier: Apache-2.0
// What a rank of a pipeline does in one step, one action after another.
//
// A pipeline cuts a model into stages; a rank holds one or several of them. Micro-batches go
// through the stages forward and come back backward, and a schedule says in which order each rank
// does its part. One list of these serves the checker, the simulator and the executor.
//
// In text an action is its letters, the stage and the micro-batch: F0.3, sF0.3, rB1.2, W1.0. R1
// (reduce) has no micro-batch, S (the optimizer's step) has neither.
#ifndef GW_IR_ACTION_H
#define GW_IR_ACTION_H

#include <stdbool.h>
#include <stdint.h>

/* X(enum, text). A backward pass is whole (B), or in two halves: what the stage before waits for
 * (I, gradients of the stage's input) and what nobody waits for (W, gradients of its weights).
 * Messages are named by the stage that computes with what they carry: sF2.0 sends what F2.0 made on
 * to stage 3, which takes it with rF3.0; sB2.0 sends the gradient of stage 2's input, made by B2.0
 * or I2.0, back to stage 1, which takes it with rB1.0. Stages on one rank send nothing. */
#define GW_ACTS(X)                                                                                 \
    X(F, "F")                                                                                      \
    X(B, "B")                                                                                      \
    X(I, "I")                                                                                      \
    X(W, "W")                                                                                      \
    X(SEND_F, "sF") X(RECV_F, "rF") X(SEND_B, "sB") X(RECV_B, "rB") X(REDUCE, "R") X(STEP, "S")
typedef enum gw_act {
#define X(id, text) GW_ACT_##id,
    GW_ACTS(X)
#undef X
        GW_ACT_COUNT
} gw_act;

typedef struct gw_action {
    uint8_t act;   /* gw_act */
    int16_t stage; /* of all stages, from 0; -1: none */
    int32_t micro; /* micro-batch of the step, from 0; -1: none */
} gw_action;

const char *gw_act_name(gw_act a);
/* Does an action of this kind belong to a micro-batch? */
bool gw_act_has_micro(gw_act a);
/* "rB1.2"; returns buf. */
#define GW_ACTION_TEXT 24
const char *gw_action_print(gw_action a, char buf[GW_ACTION_TEXT]);
/* Parses one, all of text[0..n). False for anything else. */
bool gw_action_parse(const char *text, int64_t n, gw_action *out);

/* The pieces of a stage's loop, in the order in which they stand in a program: an action runs the
 * piece of its name; B runs I and W; R runs what of I and W is at step rate. ALL: a program without
 * stages, whose loop is one piece. X(enum, text) */
#define GW_PARTS(X)                                                                                \
    X(ALL, "")                                                                                     \
    X(RECV_F, "rF")                                                                                \
    X(F, "F") X(SEND_F, "sF") X(RECV_B, "rB") X(I, "I") X(SEND_B, "sB") X(W, "W")
typedef enum gw_part {
#define X(id, text) GW_PART_##id,
    GW_PARTS(X)
#undef X
        GW_PART_COUNT
} gw_part;
const char *gw_part_name(gw_part p);

#endif
