// SPDX-License-Identifier: Apache-2.0
// Actions of a pipeline, printed and parsed.
//
// The text of an action is the letters of its kind, the stage, a point and the micro-batch; R has
// no micro-batch and S has nothing behind it. There is one spelling: no sign, no leading zero, no
// space, so that equal actions are equal text. The letters decide everything behind them: the
// longest kind whose letters begin the text is the one (S and sF differ in case).
#include "ir/action.h"

#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */

static const char *const act_names[] = {
#define X(id, text) text,
    GW_ACTS(X)
#undef X
};

static const char *const part_names[] = {
#define X(id, text) text,
    GW_PARTS(X)
#undef X
};

const char *gw_act_name(gw_act a) {
    GW_ASSERT((unsigned)a < GW_ACT_COUNT);
    return act_names[a];
}

const char *gw_part_name(gw_part p) {
    GW_ASSERT((unsigned)p < GW_PART_COUNT);
    return part_names[p];
}

bool gw_act_has_micro(gw_act a) {
    switch (a) {
    case GW_ACT_F:
    case GW_ACT_B:
    case GW_ACT_I:
    case GW_ACT_W:
    case GW_ACT_SEND_F:
    case GW_ACT_RECV_F:
    case GW_ACT_SEND_B:
    case GW_ACT_RECV_B: return true;
    case GW_ACT_REDUCE:
    case GW_ACT_STEP:
    case GW_ACT_COUNT: break;
    }
    return false;
}

const char *gw_action_print(gw_action a, char buf[GW_ACTION_TEXT]) {
    const char *name = a.act < GW_ACT_COUNT ? act_names[a.act] : "?";
    if (a.act == GW_ACT_STEP) {
        snprintf(buf, GW_ACTION_TEXT, "%s", name);
    } else if (a.act == GW_ACT_REDUCE) {
        snprintf(buf, GW_ACTION_TEXT, "%s%d", name, a.stage);
    } else {
        snprintf(buf, GW_ACTION_TEXT, "%s%d.%d", name, a.stage, a.micro);
    }
    return buf;
}

/* A number 0 .. most at text[*at); moves behind it. */
static bool number(const char *text, int64_t n, int64_t *at, int64_t most, int64_t *out) {
    int64_t i = *at, x = 0;
    for (; i < n && text[i] >= '0' && text[i] <= '9'; i++) {
        x = x * 10 + (text[i] - '0');
        if (x > most) return false;
    }
    if (i == *at || (text[*at] == '0' && i > *at + 1)) return false;
    *at = i;
    *out = x;
    return true;
}

bool gw_action_parse(const char *text, int64_t n, gw_action *out) {
    int act = -1;
    int64_t at = 0, stage = -1, micro = -1;
    for (int i = 0; i < GW_ACT_COUNT; i++) {
        int64_t len = (int64_t)strlen(act_names[i]);
        if (len <= n && len > at && memcmp(text, act_names[i], (size_t)len) == 0) {
            act = i;
            at = len;
        }
    }
    if (act < 0) return false;
    if (act != GW_ACT_STEP && !number(text, n, &at, INT16_MAX, &stage)) return false;
    if (gw_act_has_micro((gw_act)act)) {
        if (at == n || text[at] != '.') return false;
        at++;
        if (!number(text, n, &at, INT32_MAX, &micro)) return false;
    }
    if (at != n) return false;
    *out = (gw_action){.act = (uint8_t)act, .stage = (int16_t)stage, .micro = (int32_t)micro};
    return true;
}
