// SPDX-License-Identifier: Apache-2.0
// Between a public configuration (file/hf_config.h) and a model (model/model.h).
#ifndef GW_TRAIN_HF_MODEL_H
#define GW_TRAIN_HF_MODEL_H

#include "file/hf_config.h" /* gw_hf_config */
#include "model/model.h"    /* gw_model */

/* `file` names the source in errors: an activation that the family does not use is refused. */
GW_WARN_UNUSED gw_status gw_model_from_hf(const gw_hf_config *c, const char *file, gw_model *m,
                                          gw_diags *dg);
/* bos and eos ids: -1 none. dtype: "float32", "bfloat16", "float16". */
void gw_model_to_hf(const gw_model *m, int64_t bos, int64_t eos, const char *dtype,
                    gw_hf_config *c);

#endif
