// SPDX-License-Identifier: Apache-2.0
// Weights that torch.save wrote (pytorch_model.bin, .pt, .pth), as tensors in place.
#ifndef GW_FILE_PYTORCH_H
#define GW_FILE_PYTORCH_H

#include "base/diag.h"        /* gw_status, gw_diags */
#include "file/safetensors.h" /* gw_st_tensor */

typedef struct gw_torch gw_torch;

/* Opens a file (a zip of a pickle and storages, as PyTorch writes since 1.6), a directory with
 * pytorch_model.bin or pytorch_model.bin.index.json and its parts, or an index by its own name.
 * The pickle is read without executing it (file/pickle.h); data stays in the file until it is
 * looked at. The tensors are those of the dict that is saved, or of its member state_dict, model,
 * module or weights where it has none itself; what else it holds is passed over. Every tensor lies
 * within its storage, row-major; others are refused by name. */
GW_WARN_UNUSED gw_status gw_torch_open(const char *path, gw_torch **out, gw_diags *dg);
void gw_torch_free(gw_torch *t);

int64_t gw_torch_count(const gw_torch *t);
const gw_st_tensor *gw_torch_get(const gw_torch *t, int64_t i);
const gw_st_tensor *gw_torch_find(const gw_torch *t, const char *name); /* NULL when absent */

/* Does `path` name such a file by its ending, or a directory of them without safetensors? */
bool gw_torch_is(const char *path);

#endif
