// SPDX-License-Identifier: Apache-2.0
// Who we are to S3: credentials, region and endpoint from the environment and the files of the AWS
// tools (~/.aws/credentials, ~/.aws/config).
#ifndef GW_FILE_STORE_CONFIG_H
#define GW_FILE_STORE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/diag.h"  /* gw_status, gw_diags */
#include "file/store.h" /* gw_store_options */

typedef struct gw_store_config {
    const char *access_key, *secret_key; /* NULL: anonymous */
    const char *session_token;           /* or NULL */
    const char *region;
    const char *endpoint;  /* or NULL: AWS */
    const char *ca_bundle; /* or NULL */
    const char *source;    /* where the credentials come from, for messages */
    bool force_path, force_virtual;
    bool bare_checksums; /* AWS_REQUEST_CHECKSUM_CALCULATION=when_required */
} gw_store_config;

/* Fills `out`, its text in `a`. Precedence: options, environment, credentials file, config file. No
 * credentials anywhere is an error "store-credentials" that lists where was looked, unless
 * anonymous. */
GW_WARN_UNUSED gw_status gw_store_config_find(const gw_store_options *o, gw_arena *a,
                                              gw_store_config *out, gw_diags *dg);

/* The value of a key in a section of an AWS configuration file's text, trimmed, in `a`; NULL where
 * there is none. `sub` names a nested list ("s3" of "s3 =\n  addressing_style = path") or is NULL.
 * Later settings of one name win. Any bytes are fine. */
const char *gw_store_ini_find(const char *text, size_t n, const char *section, const char *sub,
                              const char *key, gw_arena *a);

#endif
