// SPDX-License-Identifier: Apache-2.0
// What generate and export take: a run directory, a Hugging Face directory, a GGUF file, or a run
// file that starts from the weights of one of the latter.
#ifndef GW_CLI_SOURCE_H
#define GW_CLI_SOURCE_H

#include "cli/command.h"   /* gw_cli */
#include "train/session.h" /* gw_session */

typedef struct gw_source_options {
    const char *compute;   /* "fp32" or "bf16", of a public model; NULL: not asked for (fp32) */
    const char *tokenizer; /* instead of the source's own, or NULL */
    bool need_tokenizer;   /* a source without one is an error */
} gw_source_options;

/* Opens the parameters of `path`:
 *   a run directory, or the config.yaml inside one: its newest complete checkpoint
 *   RUN/checkpoints/step-00000040: that one
 *   s3://BUCKET/PREFIX, or .../checkpoints/step-00000040 there, or such a directory without a run
 *   around it: likewise, with the run file of the manifest
 *   a directory with config.json, or a .gguf file: its weights, in the dtype o->compute
 *   a run file: the weights of its model.path
 * A run file without weights is refused: what stands in it is a run that has not begun. rf and s
 * are released by the caller (gw_session_close, gw_runfile_release), also on failure. */
GW_WARN_UNUSED gw_status gw_cli_open_source(gw_cli *cli, const char *path,
                                            const gw_source_options *o, gw_runfile *rf,
                                            gw_session *s);

#endif
