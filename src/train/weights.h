// SPDX-License-Identifier: Apache-2.0
// Parameters of an executor: made from a seed, read from public files, written to them.
#ifndef GW_TRAIN_WEIGHTS_H
#define GW_TRAIN_WEIGHTS_H

#include "base/diag.h"   /* gw_status, gw_diags */
#include "file/gguf.h"   /* gw_ggml_type */
#include "model/model.h" /* gw_model, gw_param */
#include "run/exec.h"    /* gw_exec */

/* Fills every parameter that the program has by its init rule: a pure function of (seed, tensor
 * name, element index), whatever the number of threads. */
void gw_weights_init(gw_exec *x, const gw_param *params, int n, uint64_t seed, int threads);

/* The parameters that the program has, from a Hugging Face directory, a .safetensors file or a
 * .gguf file (by the name's ending). Names with and without the model's prefix are found; fused,
 * transposed and interleaved forms are undone. Missing or misshapen tensors are errors that name
 * them all; tensors nothing reads give one warning. Values are rounded to the parameters' dtype. */
GW_WARN_UNUSED gw_status gw_weights_load(gw_exec *x, const gw_model *m, const gw_param *params,
                                         int n, const char *path, gw_diags *dg);

/* Special tokens as config.json names them; -1 is none. */
enum { GW_TOKEN_IDS_EOS = 16 };
typedef struct gw_token_ids {
    int64_t bos, pad;
    int64_t eos[GW_TOKEN_IDS_EOS];
    int neos;
} gw_token_ids;

/* Of a file of an export, unless asked otherwise. */
#define GW_WEIGHTS_SHARD_BYTES INT64_C(5000000000)

/* Writes model.safetensors (sharded past max_shard_bytes) and config.json into `dir`.
 * dtype: GW_F32, GW_BF16 or GW_F16. */
GW_WARN_UNUSED gw_status gw_weights_export(const gw_exec *x, const gw_model *m,
                                           const gw_param *params, int n, const char *dir,
                                           gw_dtype dtype, int64_t max_shard_bytes,
                                           const gw_token_ids *ids, gw_diags *dg);

/* A net for images: model.safetensors (sharded likewise) with torchvision's names and shapes,
 * running statistics included (those of rank 0 where each rank kept its own), for load_state_dict.
 * Statistics stay float32. */
GW_WARN_UNUSED gw_status gw_weights_export_net(const gw_exec *x, const gw_model *m,
                                               const gw_param *params, int n, const char *dir,
                                               gw_dtype dtype, int64_t max_shard_bytes,
                                               gw_diags *dg);

/* Writes a GGUF file: F32, F16, BF16 or Q8_0. `tokenizer`: the run's tokenizer.json, or NULL for a
 * file without one. GW_ERR_UNSUPPORTED: what the format cannot say. */
GW_WARN_UNUSED gw_status gw_weights_export_gguf(const gw_exec *x, const gw_model *m,
                                                const gw_param *params, int n, const char *path,
                                                gw_ggml_type type, const char *tokenizer,
                                                const gw_token_ids *ids, gw_diags *dg);

/* n elements of a float dtype to and from float32. */
void gw_floats_to(gw_dtype t, const float *src, int64_t n, void *dst);
void gw_floats_from(gw_dtype t, const void *src, int64_t n, float *dst);

#endif
