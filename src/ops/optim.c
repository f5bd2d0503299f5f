// SPDX-License-Identifier: Apache-2.0
// What optimizer ops share: the checks of their operands, their scalars, their cases (ops/optim.h).
//
// Nothing here knows how a parameter is updated; that is each op's own page. The scalars are data,
// not attributes, so that one program serves every step of a schedule.
#include "ops/optim.h"

#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ref.h"   /* gw_ref_get */

gw_status gw_optim_infer(gw_infer *f, int nstates, bool with_step) {
    for (int i = 0; i < 2 + nstates; i++) {
        GW_TRY(gw_infer_want_float(f, i));
        GW_TRY(gw_infer_want_same_dims(f, i, 0));
    }
    for (int i = 2 + nstates; i < 5 + nstates; i++) GW_TRY(gw_infer_want_scalar(f, i));
    if (with_step) {
        GW_TRY(gw_infer_want_int(f, 5 + nstates));
        GW_TRY(gw_infer_want_ndim(f, 5 + nstates, 0, 0));
    }
    for (int i = 0; i <= nstates; i++) {
        const gw_type *t = gw_infer_in(f, i ? i + 1 : 0);
        f->out[i] = gw_type_plain(t, (gw_dtype)t->dtype);
    }
    return GW_OK;
}

gw_optim_scalars gw_optim_read(const gw_kargs *k, int nstates) {
    const gw_tensor *t = k->in + 2 + nstates;
    bool counts = k->nin > 5 + nstates && !gw_dtype_is_float(t[3].dtype);
    return (gw_optim_scalars){.factor = gw_ref_get(&t[0], 0),
                              .ok = gw_ref_get(&t[1], 0) != 0,
                              .lr = gw_ref_get(&t[2], 0),
                              .step = counts ? gw_ref_int(&t[3], 0) : 0};
}

gw_case *gw_optim_case_begin(gw_cases *cs, const gw_optim_case *o, gw_vid *in, int *nin) {
    gw_case *c = gw_case_begin(cs, o->name);
    gw_dtype stat = cs->dtype == GW_F64 ? GW_F64 : GW_F32;
    gw_dtype t = o->float_states ? stat : cs->dtype;
    int n = 0;
    in[n++] = gw_case_value(c, o->dims, true, GW_FILL_NORMAL, 1, 0);
    in[n++] = gw_case_fixed(c, t, o->dims, GW_FILL_NORMAL, 0.5, 0);
    if (o->nstates > 0) in[n++] = gw_case_fixed(c, t, o->dims, GW_FILL_NORMAL, 0.3, 0);
    if (o->nstates > 1) in[n++] = gw_case_fixed(c, t, o->dims, GW_FILL_UNIFORM, 0, 0.2);
    in[n++] = gw_case_fixed(c, stat, "", GW_FILL_CONST, o->factor, 0);
    in[n++] = gw_case_fixed(c, stat, "", GW_FILL_CONST, o->ok, 0);
    in[n++] = gw_case_fixed(c, stat, "", GW_FILL_CONST, o->lr, 0);
    if (o->with_step) in[n++] = gw_case_fixed(c, GW_I64, "", GW_FILL_CONST, (double)o->step, 0);
    *nin = n;
    return c;
}
