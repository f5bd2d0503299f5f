// SPDX-License-Identifier: Apache-2.0
// What object stores say, fed with damaged inputs: lists, uploads and errors in XML, header lines,
// the configuration files of the AWS tools. What is accepted holds what store.h promises of it.
#include <string.h>

#include "file/store_impl.h" /* gw_store_reply_header, gw_store_ini_find */
#include "file/store_xml.h"  /* gw_s3_xml_list */
#include "fuzz.h"
#include "harness.h"

static const char *const xml_words[] = {"<Contents>",
                                        "</Contents>",
                                        "<Key>",
                                        "</Key>",
                                        "<Size>",
                                        "</Size>",
                                        "<Size>-1</Size>",
                                        "<IsTruncated>true</IsTruncated>",
                                        "<NextContinuationToken>t</NextContinuationToken>",
                                        "<EncodingType>url</EncodingType>",
                                        "%2F",
                                        "%00",
                                        "%",
                                        "&amp;",
                                        "&#0;",
                                        "&x;",
                                        "<!DOCTYPE a [<!ENTITY x 'yy'>]>",
                                        "<![CDATA[",
                                        "]]>",
                                        "<!--",
                                        "xmlns=\"u\"",
                                        "\xff",
                                        "<Upload>",
                                        "<UploadId>",
                                        "9223372036854775808",
                                        NULL};

static gw_status refuse(gw_diags *dg, const char *why) {
    CHECK(why && *why);
    return GW_FAIL(dg, GW_ERR_FORMAT, "store-response", "%s", why);
}

static gw_status read_list(const void *bytes, size_t n, gw_diags *dg) {
    gw_arena a = {0};
    gw_s3_page page;
    const char *why = NULL;
    bool ok = gw_s3_xml_list(bytes, n, &a, &page, &why);
    for (int64_t i = 0; ok && i < page.count; i++) {
        const gw_s3_object *o = &page.objects[i];
        CHECK(o->key && *o->key && o->bytes >= 0 && o->etag);
        CHECK(i == 0 || strcmp(page.objects[i - 1].key, o->key) <= 0);
    }
    if (ok) CHECK(page.truncated == (page.token != NULL) && (!page.token || *page.token));
    gw_arena_release(&a);
    return ok ? GW_OK : refuse(dg, why);
}

static gw_status read_uploads(const void *bytes, size_t n, gw_diags *dg) {
    gw_arena a = {0};
    gw_s3_uploads page;
    const char *why = NULL;
    bool ok = gw_s3_xml_uploads(bytes, n, &a, &page, &why);
    for (int64_t i = 0; ok && i < page.count; i++)
        CHECK(*page.uploads[i].key && *page.uploads[i].id);
    if (ok) CHECK(!page.truncated || *page.key_marker);
    gw_arena_release(&a);
    return ok ? GW_OK : refuse(dg, why);
}

/* Header lines, then a body: whatever they say, no byte is put outside of its place. */
static gw_status read_reply(const void *bytes, size_t n, gw_diags *dg) {
    const char *p = bytes, *end = p + n;
    gw_store_reply r;
    uint8_t to[64];
    gw_store_reply_init(&r);
    while (p < end) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        size_t k = (size_t)((eol ? eol + 1 : end) - p);
        gw_store_reply_header(&r, p, k);
        p += k;
    }
    memset(to, 0xee, sizeof to);
    gw_store_body b = {.reply = &r, .offset = 10, .want = 20, .etag = "\"v1\"", .to = to};
    gw_store_body_begin(&b);
    for (int i = 0; i < 10 && gw_store_body_take(&b, "0123456789abcdefg", 17); i++) continue;
    CHECK(b.got >= 0 && b.got <= 20);
    for (size_t i = 20; i < sizeof to; i++) CHECK(to[i] == 0xee);
    bool taken = b.kind == GW_BODY_TAKEN;
    if (taken && r.status == 206) CHECK(r.first == 10 && r.last < 30);
    if (taken && *r.etag) CHECK_STR(r.etag, "\"v1\"");
    gw_store_reply_release(&r);
    return taken ? GW_OK : refuse(dg, "another answer");
}

static gw_status read_ini(const void *bytes, size_t n, gw_diags *dg) {
    static const char *const keys[] = {"aws_access_key_id", "region", "addressing_style"};
    gw_arena a = {0};
    bool found = false;
    for (size_t i = 0; i < GW_COUNT(keys); i++) {
        const char *v =
            gw_store_ini_find(bytes, n, "profile work", i == 2 ? "s3" : NULL, keys[i], &a);
        found |= v != NULL;
        if (v) CHECK(strchr(v, '\n') == NULL && strlen(v) <= n);
    }
    gw_arena_release(&a);
    return found ? GW_OK : refuse(dg, "no key");
}

static void seed_text(fuzz *f, const char *text) { fuzz_seed(f, text, strlen(text)); }

static void run_list(int64_t rounds) {
    fuzz f = {.name = "store_list", .target = read_list, .words = xml_words};
    seed_text(&f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                  "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                  "<Name>b</Name><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
                  "<NextContinuationToken>1ue==</NextContinuationToken>"
                  "<Contents><Key>a%3Db/c+d</Key><LastModified>2026-11-30T12:00:00.000Z"
                  "</LastModified><ETag>&quot;9b2c&quot;</ETag><Size>434</Size></Contents>"
                  "<Contents><Key>b</Key><Size>0</Size></Contents>"
                  "<CommonPrefixes><Prefix>x%2F</Prefix></CommonPrefixes></ListBucketResult>");
    seed_text(&f, "<ListBucketResult><Contents><Key>k</Key><Size>1</Size></Contents>"
                  "</ListBucketResult>");
    fuzz_run(&f, rounds);
}

static void run_uploads(int64_t rounds) {
    fuzz f = {.name = "store_uploads", .target = read_uploads, .words = xml_words};
    seed_text(&f,
              "<ListMultipartUploadsResult><EncodingType>url</EncodingType>"
              "<NextKeyMarker>m</NextKeyMarker><NextUploadIdMarker>7</NextUploadIdMarker>"
              "<IsTruncated>true</IsTruncated><Upload><Key>a%2Fb</Key><UploadId>VXB.x</UploadId>"
              "<Initiated>2026-11-30T12:00:00.000Z</Initiated></Upload>"
              "</ListMultipartUploadsResult>");
    fuzz_run(&f, rounds);
}

static void run_reply(int64_t rounds) {
    static const char *const words[] = {"HTTP/1.1 206 OK\r\n",
                                        "HTTP/1.1 200 OK\r\n",
                                        "Content-Range: bytes 10-29/100\r\n",
                                        "Content-Range: bytes */100\r\n",
                                        "Content-Length: 20\r\n",
                                        "ETag: \"v1\"\r\n",
                                        "ETag: \"v2\"\r\n",
                                        "x-amz-request-id: ",
                                        "9223372036854775808",
                                        "-",
                                        "/",
                                        NULL};
    fuzz f = {.name = "store_reply", .target = read_reply, .words = words};
    seed_text(&f, "HTTP/1.1 206 Partial Content\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\n"
                  "ETag: \"v1\"\r\nContent-Range: bytes 10-29/100\r\nContent-Length: 20\r\n"
                  "x-amz-request-id: 4442587FB7D0A2F9\r\nx-amz-bucket-region: eu-west-1\r\n\r\n");
    seed_text(&f, "HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n");
    fuzz_run(&f, rounds);
}

static void run_ini(int64_t rounds) {
    static const char *const words[] = {"[profile work]\n",
                                        "[default]\n",
                                        "s3 =\n",
                                        "  ",
                                        "region = x\n",
                                        "#",
                                        " ;",
                                        "=",
                                        "[",
                                        "]",
                                        "\r",
                                        NULL};
    fuzz f = {.name = "store_ini", .target = read_ini, .words = words};
    seed_text(&f, "[default]\nregion = eu-west-1\n[profile work]\naws_access_key_id = AKIA # no\n"
                  "region=us-east-2\ns3 =\n    addressing_style = path\n");
    fuzz_run(&f, rounds);
}

TEST(fuzz_store_list) { run_list(2000); }
TEST(fuzz_store_uploads) { run_uploads(1000); }
TEST(fuzz_store_reply) { run_reply(4000); }
TEST(fuzz_store_ini) { run_ini(4000); }
TEST_LONG(fuzz_store_long) {
    run_list(100000);
    run_uploads(50000);
    run_reply(200000);
    run_ini(200000);
}
