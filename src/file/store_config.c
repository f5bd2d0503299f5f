// SPDX-License-Identifier: Apache-2.0
// Credentials, region and endpoint, as the AWS tools have them.
//
// The environment comes first, then the section of the profile in the credentials file ("[name]"),
// then in the config file ("[profile name]", or "[default]"). Both files are lines of "key =
// value"; a line that is indented belongs to the key above it, a nested list ("s3 ="). Lines that
// begin with
// '#' or ';' are comments, and so is what follows " #" or " ;". What is not understood is passed
// over, as the AWS tools do: the files hold settings of many programs.
//
// Access key, secret and token are taken together from one place: a token from the environment
// never meets a key from a file. A profile that was asked for by name and stands in neither file is
// an error, since signing as somebody else is worse than not starting.
#include "file/store_config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/io.h" /* gw_file_read, gw_path_exists */

#define MAX_CONFIG_BYTES (1 << 20)

/* --- the files' text -------------------------------------------------------------------------- */

typedef struct span {
    const char *p;
    size_t n;
} span;

static span trim(span s) {
    while (s.n > 0 && isspace((unsigned char)s.p[0])) s.p++, s.n--;
    while (s.n > 0 && isspace((unsigned char)s.p[s.n - 1])) s.n--;
    return s;
}

static bool span_is(span s, const char *text) {
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

static span uncomment(span s) {
    for (size_t i = 1; i < s.n; i++)
        if ((s.p[i] == '#' || s.p[i] == ';') && isspace((unsigned char)s.p[i - 1]))
            return (span){s.p, i};
    return s;
}

/* Splits at the first '='. */
static bool split(span line, span *key, span *value) {
    const char *eq = line.n ? memchr(line.p, '=', line.n) : NULL;
    if (!eq) return false;
    *key = trim((span){line.p, (size_t)(eq - line.p)});
    *value = trim(uncomment((span){eq + 1, line.n - (size_t)(eq - line.p) - 1}));
    return true;
}

/* "[profile  x]" and "[x]" with one space. */
static bool is_section(span line, const char *section) {
    const char *end = memchr(line.p, ']', line.n);
    if (!end) return false;
    span name = trim((span){line.p + 1, (size_t)(end - line.p) - 1});
    if (span_is(name, section)) return true;
    if (strncmp(section, "profile ", 8) != 0 || name.n < 8 || memcmp(name.p, "profile", 7) != 0 ||
        !isspace((unsigned char)name.p[7]))
        return false;
    return span_is(trim((span){name.p + 7, name.n - 7}), section + 8);
}

const char *gw_store_ini_find(const char *text, size_t n, const char *section, const char *sub,
                              const char *want, gw_arena *a) {
    const char *found = NULL, *end = text + n;
    bool in_section = false, in_sub = false;
    while (text < end) {
        const char *eol = memchr(text, '\n', (size_t)(end - text));
        span line = {text, (size_t)((eol ? eol : end) - text)}, key, value;
        text = eol ? eol + 1 : end;
        bool indented = line.n > 0 && isspace((unsigned char)line.p[0]);
        line = trim(line);
        if (line.n == 0 || line.p[0] == '#' || line.p[0] == ';') continue;
        if (!indented && line.p[0] == '[') {
            in_section = is_section(line, section);
            in_sub = false;
            continue;
        }
        if (!in_section || !split(line, &key, &value)) continue;
        if (!indented) in_sub = sub && span_is(key, sub) && value.n == 0;
        if (indented != (sub != NULL) || (sub && !in_sub) || !span_is(key, want)) continue;
        found = gw_arena_strndup(a, value.p, value.n);
    }
    return found;
}

static bool has_section(const gw_str *text, const char *section) {
    const char *p = gw_str_c(text), *end = p + text->len;
    while (p < end) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        span line = {p, (size_t)((eol ? eol : end) - p)};
        if (line.n > 0 && line.p[0] == '[' && is_section(line, section)) return true;
        p = eol ? eol + 1 : end;
    }
    return false;
}

/* --- where to look ---------------------------------------------------------------------------- */

typedef struct places {
    gw_arena *a;
    const char *profile;
    bool profile_asked;
    const char *credentials_path, *config_path;
    gw_str credentials, config; /* the files' text; empty where there is none */
    const char *config_section;
} places;

static const char *env(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static bool is_true(const char *v) {
    return v && (strcasecmp(v, "true") == 0 || strcasecmp(v, "yes") == 0 || strcmp(v, "1") == 0);
}

static const char *path_of(gw_arena *a, const char *variable, const char *below_home) {
    const char *v = env(variable), *home = env("HOME");
    if (v && v[0] == '~' && v[1] == '/' && home) return gw_path_join(a, home, v + 2);
    if (v) return v;
    return home ? gw_path_join(a, home, below_home) : NULL;
}

static gw_status read_if_there(const char *path, gw_str *out, gw_diags *dg) {
    if (!path || !gw_path_exists(path)) return GW_OK;
    return gw_file_read(path, MAX_CONFIG_BYTES, out, dg);
}

static gw_status places_open(places *p, const gw_store_options *o, gw_arena *a, gw_diags *dg) {
    *p = (places){.a = a, .profile = o->profile ? o->profile : env("AWS_PROFILE")};
    p->profile_asked = p->profile != NULL;
    if (!p->profile) p->profile = "default";
    p->config_section = strcmp(p->profile, "default") == 0
                            ? "default"
                            : gw_arena_printf(a, "profile %s", p->profile);
    p->credentials_path = path_of(a, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    p->config_path = path_of(a, "AWS_CONFIG_FILE", ".aws/config");
    GW_TRY(read_if_there(p->credentials_path, &p->credentials, dg));
    GW_TRY(read_if_there(p->config_path, &p->config, dg));
    if (!p->profile_asked || has_section(&p->credentials, p->profile) ||
        has_section(&p->config, p->config_section))
        return GW_OK;
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "store-profile", (gw_where){0},
                             "no AWS profile '%s'", p->profile);
    gw_diag_detail(dg, g, "neither in '%s' nor in '%s'",
                   p->credentials_path ? p->credentials_path : "~/.aws/credentials",
                   p->config_path ? p->config_path : "~/.aws/config");
    gw_diag_hint(dg, g, "look at the name in AWS_PROFILE");
    return GW_ERR_CONFIG;
}

static void places_release(places *p) {
    if (p->credentials.data) explicit_bzero(p->credentials.data, p->credentials.len);
    if (p->config.data) explicit_bzero(p->config.data, p->config.len);
    gw_str_release(&p->credentials);
    gw_str_release(&p->config);
}

static const char *in_config(places *p, const char *sub, const char *key) {
    const char *v =
        gw_store_ini_find(gw_str_c(&p->config), p->config.len, p->config_section, sub, key, p->a);
    return v && *v ? v : NULL;
}

static bool keys_from(places *p, const gw_str *text, const char *section, const char *source,
                      gw_store_config *out) {
    const char *t = gw_str_c(text);
    const char *id = gw_store_ini_find(t, text->len, section, NULL, "aws_access_key_id", p->a);
    const char *key = gw_store_ini_find(t, text->len, section, NULL, "aws_secret_access_key", p->a);
    if (!id || !key || !*id || !*key) return false;
    const char *token = gw_store_ini_find(t, text->len, section, NULL, "aws_session_token", p->a);
    out->access_key = id;
    out->secret_key = key;
    out->session_token = token && *token ? token : NULL;
    out->source = source;
    return true;
}

static gw_status no_credentials(const places *p, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "store-credentials", (gw_where){0},
                             "no credentials for S3");
    gw_diag_detail(dg, g,
                   "looked at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and at profile '%s' in "
                   "'%s' and '%s'",
                   p->profile, p->credentials_path ? p->credentials_path : "~/.aws/credentials",
                   p->config_path ? p->config_path : "~/.aws/config");
    gw_diag_hint(dg, g,
                 "set the two variables (and AWS_SESSION_TOKEN for temporary keys; `aws configure "
                 "export-credentials --format env` prints them), or AWS_NO_SIGN_REQUEST=true for a "
                 "public bucket");
    return GW_ERR_CONFIG;
}

/* A profile that was named goes before keys in the environment only where it was an option: the AWS
 * tools let the variables win over AWS_PROFILE. */
static gw_status find_keys(places *p, const gw_store_options *o, gw_store_config *out,
                           gw_diags *dg) {
    if (o->anonymous || is_true(env("AWS_NO_SIGN_REQUEST"))) {
        out->source = "anonymous";
        return GW_OK;
    }
    const char *id = env("AWS_ACCESS_KEY_ID"), *key = env("AWS_SECRET_ACCESS_KEY");
    if (!o->profile && id && key) {
        out->access_key = id;
        out->secret_key = key;
        out->session_token = env("AWS_SESSION_TOKEN");
        out->source = "the environment";
        return GW_OK;
    }
    if (keys_from(p, &p->credentials, p->profile, p->credentials_path, out)) return GW_OK;
    if (keys_from(p, &p->config, p->config_section, p->config_path, out)) return GW_OK;
    return no_credentials(p, dg);
}

static const char *first_of(const char *a, const char *b, const char *c, const char *d) {
    return a ? a : b ? b : c ? c : d;
}

static void keep(gw_arena *a, const char **text) {
    if (*text) *text = gw_arena_strdup(a, *text);
}

gw_status gw_store_config_find(const gw_store_options *o, gw_arena *a, gw_store_config *out,
                               gw_diags *dg) {
    places p;
    *out = (gw_store_config){0};
    gw_status s = places_open(&p, o, a, dg);
    if (s == GW_OK) s = find_keys(&p, o, out, dg);
    if (s == GW_OK) {
        out->region = first_of(o->region, env("AWS_REGION"), env("AWS_DEFAULT_REGION"),
                               first_of(in_config(&p, NULL, "region"), "us-east-1", NULL, NULL));
        out->endpoint = first_of(o->endpoint, env("AWS_ENDPOINT_URL_S3"), env("AWS_ENDPOINT_URL"),
                                 first_of(in_config(&p, "s3", "endpoint_url"),
                                          in_config(&p, NULL, "endpoint_url"), NULL, NULL));
        out->ca_bundle =
            first_of(env("AWS_CA_BUNDLE"), in_config(&p, NULL, "ca_bundle"), NULL, NULL);
        const char *style = in_config(&p, "s3", "addressing_style");
        out->force_path = style && strcmp(style, "path") == 0;
        out->force_virtual = style && strcmp(style, "virtual") == 0;
        const char *sums =
            first_of(env("AWS_REQUEST_CHECKSUM_CALCULATION"),
                     in_config(&p, NULL, "request_checksum_calculation"), NULL, NULL);
        out->bare_checksums = sums && strcasecmp(sums, "when_required") == 0;
        keep(a, &out->access_key), keep(a, &out->secret_key), keep(a, &out->session_token);
        keep(a, &out->region), keep(a, &out->endpoint), keep(a, &out->ca_bundle);
    }
    places_release(&p);
    return s;
}
