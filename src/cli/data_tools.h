// SPDX-License-Identifier: Apache-2.0
// The verbs of `gradwright data` that look at what there is.
#ifndef GW_CLI_DATA_TOOLS_H
#define GW_CLI_DATA_TOOLS_H

#include <stdint.h>

#include "base/diag.h"   /* gw_status */
#include "cli/command.h" /* gw_cli */

/* What a path is to these verbs. */
typedef enum gw_data_kind {
    GW_DATA_BUILT,    /* a folder with manifest.json, or with work/ of a build */
    GW_DATA_TABLE,    /* unit-NNNNN.docs, .keep, .toks */
    GW_DATA_MDS,      /* a folder with index.json */
    GW_DATA_MEGATRON, /* PREFIX, PREFIX.bin or PREFIX.idx */
    GW_DATA_SOURCE    /* WARC, JSONL, HTML, text */
} gw_data_kind;

gw_data_kind gw_data_kind_of(gw_cli *cli, const char *path);
/* The path without ".bin" or ".idx". */
const char *gw_data_prefix(gw_cli *cli, const char *path);
/* Is there such a thing? PREFIX of PREFIX.idx counts. */
GW_WARN_UNUSED gw_status gw_data_need(gw_cli *cli, const char *path);
/* Tables of a kind (".docs") under DIR/work or DIR, sorted; or the table itself. *n of them. */
const char **gw_data_tables(gw_cli *cli, const char *path, const char *ending, int64_t *n);

/* Each takes the paths after the verb. */
GW_WARN_UNUSED gw_status gw_data_inspect(gw_cli *cli, int n, const char *const *paths);
GW_WARN_UNUSED gw_status gw_data_verify(gw_cli *cli, int n, const char *const *paths);
GW_WARN_UNUSED gw_status gw_data_sample(gw_cli *cli, int n, const char *const *paths);
GW_WARN_UNUSED gw_status gw_data_stats(gw_cli *cli, int n, const char *const *paths);

#endif
