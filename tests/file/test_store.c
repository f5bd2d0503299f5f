// SPDX-License-Identifier: Apache-2.0
// Stores: URLs, keys, credentials, and a directory as a store.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"           /* gw_file_write_atomic */
#include "file/store.h"        /* what is tested */
#include "file/store_config.h" /* gw_store_ini_find */
#include "file/store_impl.h"   /* where requests would go */
#include "harness.h"

/* --- URLs and credentials --------------------------------------------------------------------- */

static void clean_environment(void) {
    static const char *const names[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_S3",
                                        "AWS_PROFILE",
                                        "AWS_NO_SIGN_REQUEST",
                                        "AWS_CA_BUNDLE",
                                        "AWS_REQUEST_CHECKSUM_CALCULATION"};
    for (size_t i = 0; i < GW_COUNT(names); i++) unsetenv(names[i]);
    setenv("AWS_CONFIG_FILE", test_tmp_path("config"), 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", test_tmp_path("credentials"), 1);
}

TEST(store_urls) {
    static const struct {
        const char *url, *fault; /* NULL: fine */
    } cases[] = {
        {"s3://bucket", NULL},
        {"s3://bucket/", NULL},
        {"s3://bucket/a/b/", NULL},
        {"http://host", NULL},
        {"https://user:pass@host:8443/a%20b?sig=x", NULL},
        {"dir/sub", NULL},
        {"/", NULL},
        {"s3://", "no bucket"},
        {"s3:///x", "no bucket"},
        {"s3://bucket//x", "two slashes"},
        {"s3://buc ket/x", "letters"},
        {"http://", "no host"},
        {"http:///x", "no host"},
        {"ftp://host/x", "scheme"},
        {"gs://bucket", "scheme"},
        {"s3://bucket/\n", "control"},
        {"", "empty"},
    };
    gw_diags dg;
    gw_diags_init(&dg);
    clean_environment();
    setenv("AWS_NO_SIGN_REQUEST", "true", 1);
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_store *s = NULL;
        test_note("%s", cases[i].url);
        if (cases[i].fault) {
            CHECK_FAILS(gw_store_open(cases[i].url, NULL, &s, &dg), &dg, cases[i].fault);
            CHECK(s == NULL);
        } else {
            CHECK_OK(gw_store_open(cases[i].url, NULL, &s, &dg), &dg);
        }
        gw_store_free(s);
        gw_diags_clear(&dg);
    }
    gw_diags_release(&dg);
}

static void check_address(const char *url, const char *region, const char *endpoint,
                          const char *base, const char *path) {
    gw_diags dg;
    gw_store *s;
    gw_diags_init(&dg);
    CHECK_OK(
        gw_store_open(url, &(gw_store_options){.region = region, .endpoint = endpoint}, &s, &dg),
        &dg);
    CHECK_STR(s->base, base);
    CHECK_STR(s->path, path);
    gw_store_free(s);
    gw_diags_release(&dg);
}

/* Path style with an endpoint of one's own, the bucket as a host name otherwise: as botocore does.
 */
TEST(store_addresses) {
    clean_environment();
    setenv("AWS_NO_SIGN_REQUEST", "1", 1);
    check_address("s3://bucket/x", "eu-west-1", NULL, "https://bucket.s3.eu-west-1.amazonaws.com",
                  "");
    check_address("s3://with.dots/x", "us-east-1", NULL, "https://s3.us-east-1.amazonaws.com",
                  "/with.dots");
    check_address("s3://Upper", "us-east-1", NULL, "https://s3.us-east-1.amazonaws.com", "/Upper");
    check_address("s3://b-1", "cn-north-1", NULL, "https://b-1.s3.cn-north-1.amazonaws.com.cn", "");
    check_address("s3://bucket", "r", "http://127.0.0.1:9000/", "http://127.0.0.1:9000", "/bucket");
    check_address("s3://bucket", "r", "https://s3.example.org:443", "https://s3.example.org",
                  "/bucket");
    CHECK_OK(gw_file_write_atomic(test_tmp_path("config"),
                                  "[default]\ns3 =\n    addressing_style = virtual\n", 46, NULL),
             NULL);
    check_address("s3://bucket", "r", "http://store.example:9000",
                  "http://bucket.store.example:9000", "");
}

static void check_config(const gw_store_options *o, const char *key, const char *token,
                         const char *region) {
    gw_diags dg;
    gw_arena a = {0};
    gw_store_config c;
    gw_diags_init(&dg);
    CHECK_OK(gw_store_config_find(o, &a, &c, &dg), &dg);
    CHECK_STR(c.access_key, key);
    CHECK_STR(c.session_token, token);
    CHECK_STR(c.region, region);
    gw_arena_release(&a);
    gw_diags_release(&dg);
}

TEST(store_credentials) {
    static const char credentials[] = "# comment\n[default]\naws_access_key_id = D1\n"
                                      "aws_secret_access_key=s/e=c ; note\n\n"
                                      "[work]\naws_access_key_id=W1\naws_secret_access_key=w\n"
                                      "aws_session_token = WT==\n[half]\naws_access_key_id=H\n";
    static const char config[] = "[default]\nregion = eu-north-1\n"
                                 "[profile work]\nregion=ap-south-1\ns3 =\n  x = y\n"
                                 "endpoint_url = http://work.example\n"
                                 "[profile  inline]\naws_access_key_id=I\n"
                                 "aws_secret_access_key=i\n[work]\nregion = wrong\n";
    gw_diags dg;
    gw_arena a = {0};
    gw_store_config c;
    gw_store_options none = {0}, work = {.profile = "work"};
    gw_diags_init(&dg);
    clean_environment();
    CHECK_FAILS(gw_store_config_find(&none, &a, &c, &dg), &dg, "store-credentials");
    CHECK_OK(gw_file_write_atomic(test_tmp_path("credentials"), credentials, sizeof credentials - 1,
                                  &dg),
             &dg);
    CHECK_OK(gw_file_write_atomic(test_tmp_path("config"), config, sizeof config - 1, &dg), &dg);
    check_config(&none, "D1", NULL, "eu-north-1");
    check_config(&work, "W1", "WT==", "ap-south-1");
    check_config(&(gw_store_options){.profile = "inline"}, "I", NULL, "us-east-1");
    CHECK_OK(gw_store_config_find(&work, &a, &c, &dg), &dg);
    CHECK_STR(c.endpoint, "http://work.example");
    CHECK_FAILS(gw_store_config_find(&(gw_store_options){.profile = "half"}, &a, &c, &dg), &dg,
                "store-credentials");
    CHECK_FAILS(gw_store_config_find(&(gw_store_options){.profile = "typo"}, &a, &c, &dg), &dg,
                "no AWS profile 'typo'");
    setenv("AWS_PROFILE", "work", 1);
    check_config(&none, "W1", "WT==", "ap-south-1");
    /* Keys from the environment come without a file's token. */
    setenv("AWS_ACCESS_KEY_ID", "E1", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "e", 1);
    check_config(&none, "E1", NULL, "ap-south-1");
    setenv("AWS_SESSION_TOKEN", "ET", 1);
    setenv("AWS_REGION", "sa-east-1", 1);
    check_config(&none, "E1", "ET", "sa-east-1");
    check_config(&work, "W1", "WT==", "sa-east-1");
    check_config(&(gw_store_options){.anonymous = true}, NULL, NULL, "sa-east-1");
    gw_arena_release(&a);
    gw_diags_release(&dg);
}

/* The password of a URL is in no message. */
TEST(store_hides_passwords) {
    gw_diags dg;
    gw_store *s;
    char byte;
    gw_diags_init(&dg);
    CHECK_OK(gw_store_open("http://me:hunter2@127.0.0.1:9/x?sig=hunter2",
                           &(gw_store_options){.tries = 1}, &s, &dg),
             &dg);
    CHECK(strstr(gw_store_get_url(s), "hunter2") == NULL);
    CHECK_STR(s->user, "me");
    CHECK_STR(s->password, "hunter2");
    CHECK(gw_store_get(s, "k", NULL, 0, 1, &byte, &dg) != GW_OK);
    CHECK(strstr(gw_diags_first_error(&dg), "hunter2") == NULL);
    gw_store_free(s);
    gw_diags_release(&dg);
}

/* --- keys ------------------------------------------------------------------------------------- */

TEST(store_keys_stay_inside) {
    static const char *const bad[] = {"",    "/etc/passwd", "..",   "a/../b", "../x", "a/..",
                                      "./a", "a/./b",       "a\nb", "a//b",   "a/"};
    gw_diags dg;
    gw_store *s;
    gw_str text = {0};
    gw_diags_init(&dg);
    CHECK_OK(gw_store_open(test_tmp_path("root"), NULL, &s, &dg), &dg);
    for (size_t i = 0; i < GW_COUNT(bad); i++) {
        test_note("'%s'", bad[i]);
        CHECK_FAILS(gw_store_put(s, bad[i], "x", 1, &dg), &dg, "store-key");
        CHECK_FAILS(gw_store_read(s, bad[i], 0, &text, &dg), &dg, "store-key");
        CHECK_FAILS(gw_store_delete(s, bad[i], &dg), &dg, "store-key");
    }
    CHECK_OK(gw_store_put(s, "..a/b..", "x", 1, &dg), &dg);
    gw_store_free(s);
    gw_diags_release(&dg);
}

/* --- a directory ------------------------------------------------------------------------------ */

static gw_store *open_dir(const char *name) {
    gw_diags dg;
    gw_store *s;
    gw_diags_init(&dg);
    CHECK_OK(gw_store_open(test_tmp_path(name), NULL, &s, &dg), &dg);
    CHECK_EQ(gw_store_get_kind(s), GW_STORE_DIRECTORY);
    gw_diags_release(&dg);
    return s;
}

TEST(store_dir_put_get) {
    gw_store *s = open_dir("d");
    gw_diags dg;
    gw_arena a = {0};
    gw_str text = {0};
    gw_store_entry e;
    bool found, won;
    char part[4] = {0};
    gw_diags_init(&dg);
    CHECK_OK(gw_store_put(s, "a/b/c", "hello", 5, &dg), &dg);
    CHECK_OK(gw_store_read(s, "a/b/c", 0, &text, &dg), &dg);
    CHECK_STR(gw_str_c(&text), "hello");
    CHECK_OK(gw_store_stat(s, "a/b/c", &a, &e, &found, &dg), &dg);
    CHECK(found && e.bytes == 5);
    CHECK_OK(gw_store_get(s, "a/b/c", e.etag, 1, 3, part, &dg), &dg);
    CHECK_STR(part, "ell");
    CHECK_FAILS(gw_store_get(s, "a/b/c", NULL, 4, 2, part, &dg), &dg, "ends at byte 5");
    CHECK_OK(gw_store_put(s, "a/b/c", "HELLO", 5, &dg), &dg);
    CHECK_FAILS(gw_store_get(s, "a/b/c", e.etag, 1, 3, part, &dg), &dg, "store-changed");
    CHECK_OK(gw_store_stat(s, "a/b", &a, &e, &found, &dg), &dg);
    CHECK(!found); /* a directory is no object */
    CHECK_FAILS(gw_store_read(s, "a/x", 0, &text, &dg), &dg, "store-missing");
    CHECK_OK(gw_store_put_new(s, "new", "1", 1, &won, &dg), &dg);
    CHECK(won);
    CHECK_OK(gw_store_put_new(s, "new", "2", 1, &won, &dg), &dg);
    CHECK(!won);
    CHECK_OK(gw_store_copy(s, "new", "deep/copy", &dg), &dg);
    CHECK_OK(gw_store_rename(s, "new", "deep/er/moved", &dg), &dg);
    gw_str_clear(&text);
    CHECK_OK(gw_store_read(s, "deep/er/moved", 0, &text, &dg), &dg);
    CHECK_OK(gw_store_read(s, "deep/copy", 0, &text, &dg), &dg);
    CHECK_STR(gw_str_c(&text), "11");
    CHECK_OK(gw_store_delete(s, "deep/copy", &dg), &dg);
    CHECK_OK(gw_store_delete(s, "deep/copy", &dg), &dg);
    gw_str_release(&text);
    gw_arena_release(&a);
    gw_diags_release(&dg);
    gw_store_free(s);
}

/* The same keys in the order in which S3 would list them, and temporary files in no list. */
TEST(store_dir_lists) {
    static const char *const keys[] = {"a",     "a-b/x", "a.txt", "a/b",  "a/c/d",
                                       "a/c/e", "a/c0",  "b",     "z/y/x"};
    gw_store *s = open_dir("d");
    gw_diags dg;
    gw_arena a = {0};
    gw_store_list list;
    gw_store_writer *w;
    gw_diags_init(&dg);
    CHECK_OK(gw_store_list_all(s, "", false, &a, &list, &dg), &dg);
    CHECK_EQ(list.count, 0);
    for (size_t i = 1; i < GW_COUNT(keys); i++)
        CHECK_OK(gw_store_put(s, keys[i], "x", 1, &dg), &dg);
    CHECK_OK(gw_store_write_open(s, "a/unfinished", 0, &w, &dg), &dg);
    CHECK_OK(gw_store_list_all(s, "", false, &a, &list, &dg), &dg);
    CHECK_EQ(list.count, GW_COUNT(keys) - 1); /* "a" is a directory here */
    for (int64_t i = 0; i < list.count; i++) CHECK_STR(list.entries[i].key, keys[i + 1]);
    CHECK_OK(gw_store_list_all(s, "a/c", false, &a, &list, &dg), &dg);
    CHECK_EQ(list.count, 3);
    CHECK_OK(gw_store_list_all(s, "a/", true, &a, &list, &dg), &dg);
    CHECK_EQ(list.count, 3);
    CHECK_STR(list.entries[1].key, "a/c/");
    CHECK(list.entries[1].is_folder);
    CHECK_OK(gw_store_list_all(s, "nothing", false, &a, &list, &dg), &dg);
    CHECK_EQ(list.count, 0);
    gw_store_write_abort(w);
    gw_arena_release(&a);
    gw_diags_release(&dg);
    gw_store_free(s);
}

/* A writer shows nothing before finish; what a killed one leaves is swept. */
TEST(store_dir_writer) {
    gw_store *s = open_dir("d");
    gw_diags dg;
    gw_arena a = {0};
    gw_str text = {0};
    gw_store_entry e;
    gw_store_writer *w;
    bool found;
    int64_t removed;
    gw_diags_init(&dg);
    CHECK_OK(gw_store_write_open(s, "x/y", 0, &w, &dg), &dg);
    for (int i = 0; i < 1000; i++) CHECK_OK(gw_store_write(w, "0123456789", 10, &dg), &dg);
    CHECK_OK(gw_store_stat(s, "x/y", &a, &e, &found, &dg), &dg);
    CHECK(!found);
    CHECK_OK(gw_store_write_finish(w, &dg), &dg);
    CHECK_OK(gw_store_read(s, "x/y", 0, &text, &dg), &dg);
    CHECK_EQ(text.len, 10000);
    CHECK_OK(gw_file_write_atomic(test_tmp_path("d/x/y.tmp-1-ab12-0"), "left", 4, &dg), &dg);
    CHECK_OK(gw_store_sweep(s, "", 3600, &removed, &dg), &dg);
    CHECK_EQ(removed, 0);
    CHECK_OK(gw_store_sweep(s, "other", -10, &removed, &dg), &dg);
    CHECK_EQ(removed, 0);
    CHECK_OK(gw_store_sweep(s, "x/", -10, &removed, &dg), &dg);
    CHECK_EQ(removed, 1);
    CHECK(gw_path_exists(test_tmp_path("d/x/y")));
    gw_str_release(&text);
    gw_arena_release(&a);
    gw_diags_release(&dg);
    gw_store_free(s);
}
