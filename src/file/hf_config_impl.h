// SPDX-License-Identifier: Apache-2.0
// What the readers of config.json share: getters that go on after a fault, so that all faults of a
// file are told at once.
#ifndef GW_FILE_HF_CONFIG_IMPL_H
#define GW_FILE_HF_CONFIG_IMPL_H

#include "file/hf_config.h" /* gw_hf_config, json_t */

typedef struct gw_hf_reader {
    const json_t *obj;
    const char *file;
    gw_diags *dg;
    gw_status status; /* of the first fault */
} gw_hf_reader;

void gw_hf_reader_note(gw_hf_reader *r, gw_status s);

#define GW_HF_REFUSE(r, code, ...)                                                                 \
    gw_hf_reader_note((r), gw_fail_at((r)->dg, (code), "model-config",                             \
                                      (gw_where){.file = (r)->file}, __VA_ARGS__))

/* The value, or `def` where the key is absent or null. */
int64_t gw_hf_read_i64(gw_hf_reader *r, const char *key, int64_t def);
double gw_hf_read_f64(gw_hf_reader *r, const char *key, double def);
bool gw_hf_read_bool(gw_hf_reader *r, const char *key, bool def);
const char *gw_hf_read_str(gw_hf_reader *r, const char *key); /* or NULL */
/* A size that must be given, under its own name or another (or NULL). */
int64_t gw_hf_read_size(gw_hf_reader *r, const char *key, const char *other);
/* True when the key is there and not null. */
bool gw_hf_reader_has(const gw_hf_reader *r, const char *key);

/* hf_config_moe.c: experts and latent attention. */
bool gw_hf_moe_family(gw_hf_family f);
bool gw_hf_latent_family(gw_hf_family f);
void gw_hf_moe_defaults(gw_hf_config *c);
/* Does a family with experts read this key? */
bool gw_hf_moe_reads(gw_hf_family f, const char *key);
void gw_hf_moe_read(gw_hf_reader *r, gw_hf_config *c);
void gw_hf_moe_check(gw_hf_reader *r, const gw_hf_config *c);
/* What the family's class cannot say of them, or NULL. */
const char *gw_hf_moe_inexpressible(const gw_hf_config *c);
void gw_hf_moe_put(json_t *o, const gw_hf_config *c);

#endif
