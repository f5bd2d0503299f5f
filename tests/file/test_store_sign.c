// SPDX-License-Identifier: Apache-2.0
// Signatures: AWS's own test vectors, the examples of S3's documentation, and botocore's for odd
// keys.
#include <stdlib.h>
#include <string.h>

#include "file/json.h"    /* gw_json_read_file */
#include "file/s3_sign.h" /* what is tested */
#include "harness.h"

/* --- AWS's test suite for Signature Version 4 ------------------------------------------------- */

typedef struct vector {
    const char *name, *method, *path;
    gw_s3_pair query[3], headers[5]; /* beside host and x-amz-date */
    const char *body, *signed_headers, *signature;
} vector;

#define UNRESERVED "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/* Those whose path has no "." or "..", which S3 does not resolve. */
static const vector vectors[] = {
    {"get-vanilla",
     "GET",
     "/",
     {{0}},
     {{0}},
     "",
     "host;x-amz-date",
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-header-key-duplicate",
     "GET",
     "/",
     {{0}},
     {{"My-Header1", "value2"}, {"My-Header1", "value2"}, {"My-Header1", "value1"}},
     "",
     "host;my-header1;x-amz-date",
     "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
    {"get-header-value-multiline",
     "GET",
     "/",
     {{0}},
     {{"My-Header1", "value1,value2,value3"}},
     "",
     "host;my-header1;x-amz-date",
     "ba17b383a53190154eb5fa66a1b836cc297cc0a3d70a5d00705980573d8ff790"},
    {"get-header-value-order",
     "GET",
     "/",
     {{0}},
     {{"My-Header1", "value4"},
      {"My-Header1", "value1"},
      {"My-Header1", "value3"},
      {"My-Header1", "value2"}},
     "",
     "host;my-header1;x-amz-date",
     "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
    {"get-header-value-trim",
     "GET",
     "/",
     {{0}},
     {{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}},
     "",
     "host;my-header1;my-header2;x-amz-date",
     "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
    {"get-unreserved",
     "GET",
     "/" UNRESERVED,
     {{0}},
     {{0}},
     "",
     "host;x-amz-date",
     "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
    {"get-utf8",
     "GET",
     "/\u1234",
     {{0}},
     {{0}},
     "",
     "host;x-amz-date",
     "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
    {"get-vanilla-empty-query-key",
     "GET",
     "/",
     {{"Param1", "value1"}},
     {{0}},
     "",
     "host;x-amz-date",
     "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
    {"get-vanilla-query-order-key-case",
     "GET",
     "/",
     {{"Param2", "value2"}, {"Param1", "value1"}},
     {{0}},
     "",
     "host;x-amz-date",
     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
    {"get-vanilla-query-unreserved",
     "GET",
     "/",
     {{UNRESERVED, UNRESERVED}},
     {{0}},
     "",
     "host;x-amz-date",
     "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
    {"get-vanilla-utf8-query",
     "GET",
     "/",
     {{"\u1234", "bar"}},
     {{0}},
     "",
     "host;x-amz-date",
     "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
    {"post-header-key-case",
     "POST",
     "/",
     {{0}},
     {{0}},
     "",
     "host;x-amz-date",
     "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
    {"post-header-key-sort",
     "POST",
     "/",
     {{0}},
     {{"My-Header1", "value1"}},
     "",
     "host;my-header1;x-amz-date",
     "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
    {"post-header-value-case",
     "POST",
     "/",
     {{0}},
     {{"My-Header1", "VALUE1"}},
     "",
     "host;my-header1;x-amz-date",
     "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
    {"post-vanilla-query",
     "POST",
     "/",
     {{"Param1", "value1"}},
     {{0}},
     "",
     "host;x-amz-date",
     "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
    {"post-vanilla-query-nonunreserved",
     "POST",
     "/",
     {{"@#$%^", ""}, {"+", "/,?><`\";:\\|][{}"}},
     {{0}},
     "",
     "host;x-amz-date",
     "66c82657c86e26fb25238d0e69f011edc4c6df5ae71119d7cb98ed9b87393c1e"},
    {"post-vanilla-query-space",
     "POST",
     "/",
     {{"p", ""}},
     {{0}},
     "",
     "host;x-amz-date",
     "e71688addb58a26418614085fb730ba3faa623b461c17f48f2fbdb9361b94a9b"},
    {"post-x-www-form-urlencoded",
     "POST",
     "/",
     {{0}},
     {{"Content-Type", "application/x-www-form-urlencoded"}},
     "Param1=value1",
     "content-type;host;x-amz-date",
     "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
};

TEST(store_sign_aws_vectors) {
    for (size_t i = 0; i < GW_COUNT(vectors); i++) {
        const vector *v = &vectors[i];
        gw_s3_pair headers[8] = {{"Host", "example.amazonaws.com"},
                                 {"X-Amz-Date", "20150830T123600Z"}};
        int nquery = 0, n = 2;
        char hex[65];
        gw_str got = {0}, want = {0};
        while (nquery < 3 && v->query[nquery].name) nquery++;
        for (int k = 0; k < 5 && v->headers[k].name; k++) headers[n++] = v->headers[k];
        gw_sha256_hex(hex, v->body, strlen(v->body));
        gw_s3_scope scope = {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1",
                             "service", "20150830T123600Z"};
        gw_s3_request r = {v->method, v->path, v->query, nquery, headers, n, hex};
        gw_s3_authorization(&got, &scope, &r);
        gw_str_printf(&want,
                      "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/"
                      "aws4_request, SignedHeaders=%s, Signature=%s",
                      v->signed_headers, v->signature);
        test_note("%s", v->name);
        CHECK_STR(got.data, want.data);
        gw_str_release(&got);
        gw_str_release(&want);
    }
}

/* --- the examples in "Authenticating Requests: Using the Authorization Header", S3 reference ---
 */

TEST(store_sign_s3_examples) {
    static const struct {
        const char *method, *path, *body;
        gw_s3_pair query[2], headers[2];
        const char *signature;
    } cases[] = {
        {"GET",
         "/test.txt",
         "",
         {{0}},
         {{"Range", "bytes=0-9"}},
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
        {"PUT",
         "/test$file.text",
         "Welcome to Amazon S3.",
         {{0}},
         {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
        {"GET",
         "/",
         "",
         {{"lifecycle", ""}},
         {{0}},
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
        {"GET",
         "/",
         "",
         {{"max-keys", "2"}, {"prefix", "J"}},
         {{0}},
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        char hex[65];
        gw_str got = {0};
        gw_sha256_hex(hex, cases[i].body, strlen(cases[i].body));
        gw_s3_pair headers[6] = {{"Host", "examplebucket.s3.amazonaws.com"},
                                 {"x-amz-content-sha256", hex},
                                 {"x-amz-date", "20130524T000000Z"}};
        int n = 3, nquery = 0;
        for (int k = 0; k < 2 && cases[i].headers[k].name; k++) headers[n++] = cases[i].headers[k];
        while (nquery < 2 && cases[i].query[nquery].name) nquery++;
        gw_s3_scope scope = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                             "us-east-1", "s3", "20130524T000000Z"};
        gw_s3_request r = {cases[i].method, cases[i].path, cases[i].query, nquery, headers, n, hex};
        gw_s3_authorization(&got, &scope, &r);
        CHECK_MSG(strstr(got.data, cases[i].signature), "%s", got.data);
        gw_str_release(&got);
    }
}

/* --- botocore --------------------------------------------------------------------------------- */

static int take_pairs(const json_t *list, gw_s3_pair *out) {
    int n = (int)json_array_size(list);
    for (int i = 0; i < n; i++) {
        const json_t *p = json_array_get(list, (size_t)i);
        out[i] = (gw_s3_pair){json_string_value(json_array_get(p, 0)),
                              json_string_value(json_array_get(p, 1))};
    }
    return n;
}

static const char *text_at(const json_t *c, const char *key) {
    return json_string_value(json_object_get(c, key));
}

/* tests/golden/make_s3_sign.py: '=' '+' ' ' '~' '%' and bytes beyond ASCII in keys, queries with
 * empty values, repeated and unsorted names (curl#13754, curl#11794). */
TEST(store_sign_like_botocore) {
    gw_diags dg;
    json_t *cases;
    gw_diags_init(&dg);
    CHECK_OK(gw_json_read_file(test_source_path("golden/s3_sign.json"), 0, &cases, &dg), &dg);
    CHECK(json_array_size(cases) >= 90);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        gw_s3_pair query[6], headers[8];
        char hex[65];
        gw_str got = {0};
        const char *body = text_at(c, "body"), *token = text_at(c, "token");
        int nquery = take_pairs(json_object_get(c, "query"), query);
        int n = take_pairs(json_object_get(c, "headers"), headers);
        gw_sha256_hex(hex, body, strlen(body));
        headers[n++] = (gw_s3_pair){"host", "bucket.s3.eu-central-1.amazonaws.com"};
        headers[n++] = (gw_s3_pair){"x-amz-content-sha256", hex};
        headers[n++] = (gw_s3_pair){"x-amz-date", "20261130T123456Z"};
        if (*token) headers[n++] = (gw_s3_pair){"x-amz-security-token", token};
        gw_s3_scope scope = {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                             "eu-central-1", "s3", "20261130T123456Z"};
        gw_s3_request r = {
            text_at(c, "method"), text_at(c, "path"), query, nquery, headers, n, hex};
        gw_s3_authorization(&got, &scope, &r);
        test_note("%s %s", text_at(c, "method"), text_at(c, "path"));
        CHECK_STR(got.data, text_at(c, "authorization"));
        gw_str_release(&got);
    }
    json_decref(cases);
    gw_diags_release(&dg);
}
