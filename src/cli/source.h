// SPDX-License-Identifier: Apache-2.0
// What generate and export take: a run directory, a run file, a Hugging Face directory or a GGUF
// file.
#ifndef GW_CLI_SOURCE_H
#define GW_CLI_SOURCE_H

#include "cli/command.h"   /* gw_cli */
#include "train/session.h" /* gw_session */

/* Opens the parameters of `path`:
 *   a run directory    its config.yaml and newest complete checkpoint
 *   a run file         model.path's weights, or weights from the seed
 *   a directory with config.json, or a .gguf file: its weights, in the dtype `compute` ("fp32" or
 * "bf16") rf and s are released by the caller (gw_session_close, gw_runfile_release), also on
 * failure. */
GW_WARN_UNUSED gw_status gw_cli_open_source(gw_cli *cli, const char *path, const char *compute,
                                            bool need_tokenizer, gw_runfile *rf, gw_session *s);

#endif
