// SPDX-License-Identifier: Apache-2.0
// What calibrate measures of data: a rate for each, below what memory moves and above what a script
// in an interpreter does; nothing is left behind.
#include <dirent.h>

#include "cli/calibrate_data.h" /* what is tested */
#include "harness.h"

TEST(calibrate_measures_data) {
    gw_diags dg;
    gw_data_rates r;
    gw_diags_init(&dg);
    CHECK_OK(gw_calib_data_rates(test_tmpdir(), &r, &dg), &dg);
    test_note("tokenize %.3g B/s, pipeline %.3g B/s, loader %.3g tokens/s", r.tokenize_bytes_per_s,
              r.pipeline_bytes_per_s, r.loader_tokens_per_s);
    CHECK(r.tokenize_bytes_per_s > 1e5 && r.tokenize_bytes_per_s < 20e9);
    CHECK(r.pipeline_bytes_per_s > 1e4 && r.pipeline_bytes_per_s < r.tokenize_bytes_per_s * 10);
    CHECK(r.loader_tokens_per_s > 1e5 && r.loader_tokens_per_s < 20e9);
    int entries = 0;
    DIR *d = opendir(test_tmpdir());
    CHECK(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) entries += e->d_name[0] != '.';
    closedir(d);
    CHECK_EQ(entries, 0);
    gw_diags_release(&dg);
}
