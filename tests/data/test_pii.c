// SPDX-License-Identifier: Apache-2.0
// Personal things in text: what is found, what is left, and what is written instead.
//
// E-mail and IP: expected results are those of datatrove's PIIFormatter (its regular expressions by
// hand for single cases; bench/filters compares 40,000 texts with the library). Cards: numbers that
// payment services publish for testing. Telephones: numbers reserved for fiction.
#include "data/text/pii.h" /* gw_pii */

#include <string.h>

#include "base/arena.h" /* gw_mem_count */
#include "base/rng.h"   /* gw_rng_u32 */
#include "base/str.h"   /* gw_str */
#include "harness.h"    /* TEST, CHECK */

static gw_pii_options only(gw_pii_kind k, gw_pii_how how) {
    gw_pii_options o = {0};
    o.how[k] = how;
    return o;
}

static void expect(const gw_pii_options *o, const char *in, const char *out) {
    gw_pii *p = gw_pii_new();
    gw_pii_counts counts = {0};
    gw_str s = {0};
    gw_str_add(&s, in);
    gw_pii_mark(p, o, &s, &counts);
    CHECK_STR(gw_str_c(&s), out);
    gw_str_release(&s);
    gw_pii_free(p);
}

TEST(pii_email_is_what_datatrove_replaces) {
    gw_pii_options o = only(GW_PII_EMAIL, GW_PII_MARK);
    expect(&o, "write to john.doe+x@mail.example.co.uk.", "write to <EMAIL>.");
    expect(&o, "a@b.c", "<EMAIL>");
    expect(&o, "a@b, a@b., @b.com, a@-b.com", "a@b, a@b., @b.com, a@-b.com");
    expect(&o, "a..b@c.de", "a..<EMAIL>");
    expect(&o, "a@b-.com a@b.c-", "a@b-.com <EMAIL>-");
    expect(&o, "a@b.c.d.", "<EMAIL>.");
    expect(&o, "aé@b.com", "aé@b.com"); /* no boundary before @ */
    expect(&o, "éa@b.com é!a@b.com", "éa@b.com é<EMAIL>");
    expect(&o, "x@[1.2.3.4] x@[1.2.3.ab-c:] x@[1.2.3.400]", "<EMAIL> <EMAIL> x@[1.2.3.400]");
}

TEST(pii_replaces_in_turn) {
    gw_pii_options o = gw_pii_defaults();
    expect(&o, "a@b.c d@e.f g@h.i 8.8.8.8 9.9.9.9",
           "email@example.com firstname.lastname@example.org email@example.com 22.214.171.124 "
           "126.96.36.199");
    /* Each text begins with the first replacement, unless they go on as over a worker's texts. */
    static const char *const want[2][3] = {
        {"email@example.com", "email@example.com", "email@example.com"},
        {"email@example.com", "firstname.lastname@example.org", "email@example.com"},
    };
    for (int go_on = 0; go_on < 2; go_on++) {
        gw_pii *p = gw_pii_new();
        gw_pii_counts counts = {0};
        gw_str s = {0};
        gw_pii_continue(p, go_on);
        for (int i = 0; i < 3; i++) {
            gw_str_clear(&s);
            gw_str_add(&s, "x@y.z");
            gw_pii_mark(p, &o, &s, &counts);
            CHECK_STR(gw_str_c(&s), want[go_on][i]);
        }
        CHECK_EQ(counts.found[GW_PII_EMAIL], 3);
        gw_str_release(&s);
        gw_pii_free(p);
    }
}

TEST(pii_ip_leaves_what_is_not_public) {
    gw_pii_options o = only(GW_PII_IP, GW_PII_MARK);
    expect(&o, "93.184.216.34:80", "<IP>:80");
    static const char local[] = "10.1.2.3 172.16.0.1 192.168.1.1 127.0.0.1 169.254.3.4 100.64.9.9 "
                                "0.1.2.3 198.18.0.1 203.0.113.7 240.0.0.1 255.255.255.255";
    expect(&o, local, local);
    expect(&o, "1.2.3 256.1.1.1.1 01.2.3.4 1.2.3.04", "1.2.3 2<IP>.1 01.2.3.4 1.2.3.04");
    expect(&o, "1234.5.6.7 999.1.2.3 1.2.3.4567", "1<IP> 9<IP> <IP>67");
    o.all_ips = true;
    expect(&o, "at 10.1.2.3", "at <IP>");
}

TEST(pii_phone) {
    gw_pii_options o = only(GW_PII_PHONE, GW_PII_MARK);
    expect(&o, "call +1 (202) 555-0143, +44 20 7946 0958 or +49-30-23125-0.",
           "call <PHONE>, <PHONE> or <PHONE>.");
    expect(&o, "(202) 555-0143, 202-555-0143, 202.555.0143, 1-202-555-0143",
           "<PHONE>, <PHONE>, <PHONE>, <PHONE>");
    static const char others[] =
        "2024-05-17 12:30:45, 1.2.3-456-7890, ISBN 978-0-306-40615-7, 0306406152, v202.555.0143, "
        "202-555-01431, 123-456-7890, UTC+0200, 1+2025550143, a202-555-0143, 3.14159265358979, "
        "192.168.100.200, 1,234,567,890, 5f2025550143b, 202-155-0143, 10-202-555-0143";
    expect(&o, others, others);
}

TEST(pii_card) {
    gw_pii_options o = only(GW_PII_CARD, GW_PII_MARK);
    expect(&o, "4242 4242 4242 4242; 5555-5555-5555-4444; 378282246310005; 3782 822463 10005",
           "<CARD>; <CARD>; <CARD>; <CARD>");
    expect(&o, "6011111111111117, 30569309025904, 4222222222222", "<CARD>, <CARD>, <CARD>");
    static const char others[] =
        "4242 4242 4242 4243, 424242424242424, 9780306406157, 1234567890123452, "
        "0000000000000000, 42424242424242424, a4242424242424242, 4242424242424242b, 4242.4242";
    expect(&o, others, others);
}

TEST(pii_secret) {
    gw_pii_options o = only(GW_PII_SECRET, GW_PII_MARK);
    expect(&o, "key AKIAIOSFODNN7EXAMPLE.", "key <SECRET>.");
    expect(&o, "ghp_0123456789abcdefghijABCDEFGHIJ012345", "<SECRET>");
    expect(&o, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P!",
           "<SECRET>!");
    expect(&o, "api_key = \"9f8Kq2Lx7Zp4Rt1Wv6Yb3Nc5\"", "api_key = \"<SECRET>\"");
    expect(&o, "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\nb",
           "a\n<SECRET>\nb");
    static const char others[] =
        "AKIAI, XAKIAIOSFODNN7EXAMPLE, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c, "
        "token: the_user_interface_token, password = ********************, "
        "task-management-and-project-planning-tools-for-everyone, -----BEGIN CERTIFICATE-----, "
        "secret: see the section on keys";
    expect(&o, others, others);
}

TEST(pii_kinds_do_not_disturb_each_other) {
    gw_pii_options o = {0};
    for (int k = 0; k < GW_PII_KINDS; k++) o.how[k] = GW_PII_MARK;
    expect(&o, "8.8.8.8@x.com 8.8.8.8 4242424242424242 +442079460958 q@w.er",
           "<EMAIL> <IP> <CARD> <PHONE> <EMAIL>");
}

/* Nothing is lost around a find, spans are sound, a second pass over marks finds nothing. */
TEST(pii_on_any_bytes) {
    static const char alphabet[] = "ab12@.-_+() \n=:'\"eyJAKIAghp4242\xc3\xa9\xff";
    gw_pii_options o = {0};
    for (int k = 0; k < GW_PII_KINDS; k++) o.how[k] = GW_PII_MARK;
    gw_pii *p = gw_pii_new();
    gw_rng_key key = gw_rng_key_named(1, "pii");
    gw_pii_span spans[64];
    gw_str s = {0};
    uint64_t draw = 0;
    for (int round = 0; round < 4000; round++) {
        gw_str_clear(&s);
        int n = (int)(gw_rng_u32(key, draw++) % 120);
        for (int i = 0; i < n; i++)
            gw_str_add_char(&s, alphabet[gw_rng_u32(key, draw++) % (sizeof alphabet - 1)]);
        int64_t found = gw_pii_find(p, &o, gw_str_c(&s), n, spans, 64), at = 0, bytes = n;
        for (int64_t i = 0; i < found && i < 64; i++) {
            CHECK(spans[i].offset >= at && spans[i].bytes > 0);
            at = spans[i].offset + spans[i].bytes;
            CHECK(at <= n);
            bytes += (int64_t)strlen(gw_pii_kind_name(spans[i].kind)) + 2 - spans[i].bytes;
        }
        gw_pii_counts counts = {0};
        gw_pii_mark(p, &o, &s, &counts);
        CHECK_EQ(s.len, bytes);
    }
    int64_t before = gw_mem_count();
    for (int i = 0; i < 100; i++) gw_pii_find(p, &o, gw_str_c(&s), (int64_t)s.len, NULL, 0);
    CHECK_EQ(gw_mem_count(), before);
    gw_str_release(&s);
    gw_pii_free(p);
}
