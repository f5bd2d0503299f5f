// SPDX-License-Identifier: Apache-2.0
// What a checkpoint of a planned step takes.
//
// The parameters and states of each pipeline rank's program are listed as a run lists them, and the
// plan of who writes what is asked as a save asks it. So these are the sizes that a run writes, but
// for the headers of its files.
#include "cli/plan_checkpoint.h"

#include <inttypes.h>
#include <string.h>

#include "base/map.h"    /* gw_smap, GW_VEC */
#include "base/str.h"    /* gw_fmt_bytes */
#include "train/ranks.h" /* gw_ranks_list */

gw_ckpt_size gw_cli_plan_checkpoint(const gw_planned *p, gw_arena *a) {
    GW_VEC(gw_ckpt_item) items = {0};
    gw_smap seen = {0};
    for (int r = 0; r < p->n; r++) {
        gw_ranks_table t;
        uint32_t k;
        if (gw_ranks_list(NULL, &p->programs[r], a, &t, NULL) != GW_OK) continue;
        for (int i = 0; i < t.n; i++) {
            const gw_ranks_entry *e = &t.items[i];
            if (!e->leaf || gw_smap_find_c(&seen, e->name, &k)) continue;
            gw_smap_put_c(&seen, e->name, 0);
            gw_ckpt_item it = {.type = &e->type, .home = r, .name = e->name};
            gw_vec_push(&items, it);
        }
    }
    gw_ckpt_plan *plan = gw_ckpt_plan_new(items.items, (int)items.count, &p->programs[0].mesh);
    gw_ckpt_size z = gw_ckpt_plan_size(plan, a);
    gw_ckpt_plan_free(plan);
    gw_vec_release(&items);
    gw_smap_release(&seen);
    return z;
}

void gw_cli_plan_checkpoint_print(const gw_ckpt_size *z, FILE *out) {
    char all[32], most[32], least[32], manifest[32];
    fprintf(out,
            "\ncheckpoint\n  %s in %" PRId64 " file%s, %" PRId64
            " chunks; a rank writes %s (rank %" PRId64 ") to %s (rank %" PRId64
            "); manifest about %s\n",
            gw_fmt_bytes(all, z->bytes), z->files, z->files == 1 ? "" : "s", z->chunks,
            gw_fmt_bytes(least, z->smallest), z->smallest_rank, gw_fmt_bytes(most, z->largest),
            z->largest_rank, gw_fmt_bytes(manifest, z->manifest_bytes));
}

json_t *gw_cli_plan_checkpoint_json(const gw_ckpt_size *z) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)z->bytes,
                     "files", (json_int_t)z->files, "chunks", (json_int_t)z->chunks,
                     "largest_bytes", (json_int_t)z->largest, "largest_rank",
                     (json_int_t)z->largest_rank, "smallest_bytes", (json_int_t)z->smallest,
                     "smallest_rank", (json_int_t)z->smallest_rank, "manifest_bytes",
                     (json_int_t)z->manifest_bytes);
}
