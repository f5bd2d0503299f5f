// SPDX-License-Identifier: Apache-2.0
// What cannot be is refused, and all that is wrong is said at once: machines nobody knows, worlds
// that do not divide, layouts and faults that cannot act, in one line and in several at a time.
#include <string.h>

#include "command.h" /* command_run */
#include "harness.h"

enum { MOST_WORDS = 5 };

/* RUN stands for a run file of a llama with 8 layers and 8 heads, MOE for one with 8 experts. */
static const struct {
    const char *args;
    const char *says[MOST_WORDS]; /* each in a message of its own */
} cases[] = {
    {"RUN --hardware nonsense", {"'nonsense' is no machine"}},
    {"RUN --hardware nonsense --world 10 --set layout.tp=4 --faults foo=1",
     {"'nonsense' is no machine", "layout.tp 4 does not divide the 10 ranks", "'foo=1'"}},
    {"RUN --hardware h100 --world 10 --set layout.tp=4", {"8 or 12 is nearest"}},
    {"RUN --hardware h100 --world 3 --set layout.pp=4", {"4 is nearest"}},
    {"RUN --hardware h100 --world 0", {"--world takes a number"}},
    {"RUN --hardware h100 --world -8", {"--world takes a number"}},
    {"RUN --hardware h100 --world 2000000", {"--world takes a number"}},
    {"RUN --hardware nonsense --world 0 --set train.seqlen=3",
     {"no machine", "--world takes a number", "no key 'seqlen'"}},
    {"RUN --hardware h100 --world many", {"--world must be an integer"}},
    {"RUN --hardware h100 --world 8 --ranks 8", {"--world and --ranks"}},
    {"RUN --hardware link=300GB/s", {"states no peak"}},
    {"RUN --hardware flops=312e12 --world 8", {"states no link"}},
    {"RUN --hardware flops=1e14,link=3e11,reach=8 --world 64", {"links among 8 ranks"}},
    {"RUN --hardware h100,mfu=2", {"at most 1"}},
    {"RUN --hardware h100,speed=2", {"no such key"}},
    {"RUN --hardware h100,flops=fast", {"no number above 0"}},
    {"RUN --hardware h100,speed=2,mass=3",
     {"'speed=2' has no such key", "'mass=3' has no such key"}},
    {"RUN --hardware h100,link=1e9,link=2e9", {"'link=2e9' says a second time"}},
    {"RUN --html ''", {"--html"}},
    {"RUN --hardware ''", {"is no machine"}},
    {"RUN --hardware h100 --faults slow-link=0.5", {"layout.dp is 1"}},
    {"RUN --hardware h100 --faults hot-expert=2", {"experts across ranks"}},
    {"MOE --hardware h100 --world 8 --set layout.ep=4 --faults hot-expert=9", {"4 times the mean"}},
    {"RUN --hardware h100 --faults straggler=0.5,jitter=-1,slow",
     {"'straggler=0.5'", "'jitter=-1'", "'slow'"}},
    {"RUN --hardware h100 --faults straggler-rank=1,seed=3", {"straggler=X", "jitter=X"}},
    {"RUN --hardware h100 --faults straggler=2,straggler-rank=4", {"straggler-rank 4 of 1"}},
    {"RUN --hardware h100 --faults jitter=0.1,jitter=0.2", {"given twice"}},
    {"RUN --hardware a100-80g --faults restart=60", {"states no failures storage"}},
    {"RUN --faults stall=1", {"give the machine with --hardware"}},
    {"RUN --trace t.json --timeline --json",
     {"give the machine with --hardware", "--json and --why do not"}},
    {"RUN --hardware h100 --memory 0", {"--memory takes a size"}},
    {"RUN --hardware h100 --world 8 --set layout.ep=8", {"no experts"}},
    {"MOE --hardware h100 --world 8 --set layout.ep=3", {"layout.ep 3 does not divide"}},
    {"RUN --hardware h100 --world 16 --set layout.pp=16", {"layers"}},
    {"RUN --hardware h100 --world 15 --set layout.tp=2 --set 'layout.shard={nothing.*: d}'",
     {"layout.tp 2 does not divide the 15 ranks", "'nothing.*'"}},
    {"RUN --hardware h100 --world 64 --set layout.dp=7", {"layout.dp is 7, and there are 64"}},
    {"RUN --hardware h100 --world 6 --set layout.cp=6 --set layout.cp_mode=ulysses",
     {"8 heads cannot be exchanged evenly over 6"}},
    {"RUN --hardware h100 --world 8 --set train.global_batch=13", {"global_batch is 13"}},
    {"resnet50 --hardware h100 --world 8 --set layout.tp=2", {"net for images"}},
    {"nomodel --hardware nonsense --world 0",
     {"'nomodel' is no run file", "no machine", "--world takes"}},
};

static const char *write_run(const char *name, const char *family) {
    gw_str text = {0};
    gw_str_printf(&text,
                  "model: {%s, layers: 8, hidden: 64, heads: 8, kv_heads: 8, ffn: 128, vocab: "
                  "320}\ntrain: {seq_len: 64, micro_batch: 1}\n",
                  family);
    const char *path = command_file(name, gw_str_c(&text));
    gw_str_release(&text);
    return path;
}

/* The first word is a run file. */
static void add_args(const char *args, gw_str *out) {
    gw_str_clear(out);
    if (strncmp(args, "RUN ", 4) == 0)
        gw_str_printf(out, "%s %s", write_run("run.yaml", "family: llama"), args + 4);
    else if (strncmp(args, "MOE ", 4) == 0)
        gw_str_printf(out, "%s %s",
                      write_run("moe.yaml", "family: mixtral, moe: {experts: 8, top: 2, ffn: 32}"),
                      args + 4);
    else
        gw_str_add(out, args);
}

static int count(const char *text, const char *word) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++) n++;
    return n;
}

TEST_WITHIN(what_cannot_be_is_refused_with_all_reasons_at_once, 300) {
    gw_str args = {0}, out = {0};
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        int reasons = 0;
        add_args(cases[i].args, &args);
        /* 2: the line or the configuration is at fault, nothing ran. */
        CHECK_EQ(command_run_both(&out, "plan %s", gw_str_c(&args)), 2);
        for (; reasons < MOST_WORDS && cases[i].says[reasons]; reasons++)
            CHECK_MSG(strstr(gw_str_c(&out), cases[i].says[reasons]), "%s: nowhere '%s'",
                      cases[i].args, cases[i].says[reasons]);
        int errors = count(gw_str_c(&out), "error: ");
        CHECK_MSG(errors >= reasons && errors <= reasons + 1, "%s: %d messages for %d reasons",
                  cases[i].args, errors, reasons);
        CHECK(!strstr(gw_str_c(&out), "verdict"));
    }
    gw_str_release(&args);
    gw_str_release(&out);
}

/* --world is stronger than the run file's layout.dp, --set is stronger than --world. */
TEST(world_leaves_the_rest_to_dp) {
    gw_str out = {0};
    const char *run = write_run("run.yaml", "family: llama");
    static const char *const sets[] = {"", "--set layout.tp=2",
                                       "--set layout.tp=2 --set layout.pp=2"};
    static const char *const says[] = {"16 chips: dp 16", "16 chips: dp 8 × tp 2",
                                       "16 chips: pp 2 × dp 4 × tp 2"};
    for (size_t i = 0; i < GW_COUNT(sets); i++) {
        CHECK_EQ(command_run_both(&out, "plan %s --hardware h100 --world 16 %s", run, sets[i]), 0);
        CHECK_MSG(strstr(gw_str_c(&out), says[i]), "nowhere '%s'", says[i]);
        CHECK(!strstr(gw_str_c(&out), "--world N says"));
    }
    CHECK_EQ(command_run_both(&out, "plan %s --hardware h100 --set layout.tp=4", run), 0);
    CHECK(strstr(gw_str_c(&out), "4 chips: tp 4") && strstr(gw_str_c(&out), "--world N says"));
    const char *text = "model: {family: llama, layers: 2, hidden: 64, heads: 4, ffn: 128, vocab: "
                       "320}\ntrain: {seq_len: 64}\nlayout: {dp: 2, tp: 2}\n";
    const char *fixed = command_file("fixed.yaml", text);
    CHECK_EQ(command_run_both(&out, "plan %s --hardware h100 --world 32", fixed), 0);
    CHECK(strstr(gw_str_c(&out), "32 chips: dp 16 × tp 2"));
    gw_str_release(&out);
}
