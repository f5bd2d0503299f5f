// SPDX-License-Identifier: Apache-2.0
// What Unicode 15, 15.1, 16 and 17 added, from the Unicode Character Database (DerivedAge and
// general category): ranges of code points with version and category, ascending.
//
// A tokenizer must split text as the library that trained it did, whatever tables the libraries of
// this machine have. utf8proc and PCRE2 are therefore asked only about characters up to Unicode 14,
// which do not change; a newer character is replaced, for the question, by an older one of the same
// category and the same UTF-8 length, or by an unassigned one if the chosen version is older than
// the character.
#include "data/unicode_new.h" /* gw_uni_stand_in */

#include <stddef.h>

#include "base/compiler.h" /* GW_COUNT */

typedef enum cat {
    GW_CAT_LU,
    GW_CAT_LL,
    GW_CAT_LM,
    GW_CAT_LO,
    GW_CAT_MN,
    GW_CAT_MC,
    GW_CAT_ND,
    GW_CAT_NL,
    GW_CAT_NO,
    GW_CAT_PD,
    GW_CAT_PO,
    GW_CAT_SM,
    GW_CAT_SC,
    GW_CAT_SO,
    GW_CAT_CF,
} cat;

/* One character of Unicode 14 or earlier of 3 and of 4 bytes for each category; 0 = none is needed.
 */
static const uint32_t STAND_IN[][2] = {
    [GW_CAT_LU] = {0x1e00, 0x10400}, [GW_CAT_LL] = {0x1e01, 0x10428},
    [GW_CAT_LM] = {0x1d2c, 0x16b40}, [GW_CAT_LO] = {0x0904, 0x10450},
    [GW_CAT_MN] = {0x0901, 0x1d167}, [GW_CAT_MC] = {0x0903, 0x11000},
    [GW_CAT_ND] = {0x0966, 0x1d7ce}, [GW_CAT_NL] = {0x2160, 0x10140},
    [GW_CAT_NO] = {0x2070, 0x1d360}, [GW_CAT_PD] = {0x2010, 0x10ead},
    [GW_CAT_PO] = {0x2016, 0x10a50}, [GW_CAT_SM] = {0x2044, 0x1d6c1},
    [GW_CAT_SC] = {0x20a0, 0x1e2ff}, [GW_CAT_SO] = {0x2100, 0x1f300},
    [GW_CAT_CF] = {0x200b, 0x1d173},
};
enum { UNASSIGNED_3 = 0x2fe0, UNASSIGNED_4 = 0x50000, IDEOGRAPH = 0x20000 };

static const struct range {
    uint32_t first, last;
    uint8_t version, cat;
} RANGES[] = {
    {0x88f, 0x88f, 17, GW_CAT_LO},     {0x897, 0x897, 16, GW_CAT_MN},
    {0xc5c, 0xc5c, 17, GW_CAT_LO},     {0xcdc, 0xcdc, 17, GW_CAT_LO},
    {0xcf3, 0xcf3, 15, GW_CAT_MC},     {0xece, 0xece, 15, GW_CAT_MN},
    {0x1acf, 0x1add, 17, GW_CAT_MN},   {0x1ae0, 0x1aeb, 17, GW_CAT_MN},
    {0x1b4e, 0x1b4f, 16, GW_CAT_PO},   {0x1b7f, 0x1b7f, 16, GW_CAT_PO},
    {0x1c89, 0x1c89, 16, GW_CAT_LU},   {0x1c8a, 0x1c8a, 16, GW_CAT_LL},
    {0x20c1, 0x20c1, 17, GW_CAT_SC},   {0x2427, 0x2429, 16, GW_CAT_SO},
    {0x2b96, 0x2b96, 17, GW_CAT_SO},   {0x2ffc, 0x2fff, 16, GW_CAT_SO},
    {0x31e4, 0x31e5, 16, GW_CAT_SO},   {0x31ef, 0x31ef, 16, GW_CAT_SO},
    {0xa7cb, 0xa7cc, 16, GW_CAT_LU},   {0xa7cd, 0xa7cd, 16, GW_CAT_LL},
    {0xa7ce, 0xa7ce, 17, GW_CAT_LU},   {0xa7cf, 0xa7cf, 17, GW_CAT_LL},
    {0xa7d2, 0xa7d2, 17, GW_CAT_LU},   {0xa7d4, 0xa7d4, 17, GW_CAT_LU},
    {0xa7da, 0xa7da, 16, GW_CAT_LU},   {0xa7db, 0xa7db, 16, GW_CAT_LL},
    {0xa7dc, 0xa7dc, 16, GW_CAT_LU},   {0xa7f1, 0xa7f1, 17, GW_CAT_LM},
    {0xfbc3, 0xfbd2, 17, GW_CAT_SO},   {0xfd90, 0xfd91, 17, GW_CAT_SO},
    {0xfdc8, 0xfdce, 17, GW_CAT_SO},   {0x105c0, 0x105f3, 16, GW_CAT_LO},
    {0x10940, 0x10959, 17, GW_CAT_LO}, {0x10d40, 0x10d49, 16, GW_CAT_ND},
    {0x10d4a, 0x10d4d, 16, GW_CAT_LO}, {0x10d4e, 0x10d4e, 16, GW_CAT_LM},
    {0x10d4f, 0x10d4f, 16, GW_CAT_LO}, {0x10d50, 0x10d65, 16, GW_CAT_LU},
    {0x10d69, 0x10d6d, 16, GW_CAT_MN}, {0x10d6e, 0x10d6e, 16, GW_CAT_PD},
    {0x10d6f, 0x10d6f, 16, GW_CAT_LM}, {0x10d70, 0x10d85, 16, GW_CAT_LL},
    {0x10d8e, 0x10d8f, 16, GW_CAT_SM}, {0x10ec2, 0x10ec4, 16, GW_CAT_LO},
    {0x10ec5, 0x10ec5, 17, GW_CAT_LM}, {0x10ec6, 0x10ec7, 17, GW_CAT_LO},
    {0x10ed0, 0x10ed0, 17, GW_CAT_PO}, {0x10ed1, 0x10ed8, 17, GW_CAT_SO},
    {0x10efa, 0x10efb, 17, GW_CAT_MN}, {0x10efc, 0x10efc, 16, GW_CAT_MN},
    {0x10efd, 0x10eff, 15, GW_CAT_MN}, {0x1123f, 0x11240, 15, GW_CAT_LO},
    {0x11241, 0x11241, 15, GW_CAT_MN}, {0x11380, 0x11389, 16, GW_CAT_LO},
    {0x1138b, 0x1138b, 16, GW_CAT_LO}, {0x1138e, 0x1138e, 16, GW_CAT_LO},
    {0x11390, 0x113b5, 16, GW_CAT_LO}, {0x113b7, 0x113b7, 16, GW_CAT_LO},
    {0x113b8, 0x113ba, 16, GW_CAT_MC}, {0x113bb, 0x113c0, 16, GW_CAT_MN},
    {0x113c2, 0x113c2, 16, GW_CAT_MC}, {0x113c5, 0x113c5, 16, GW_CAT_MC},
    {0x113c7, 0x113ca, 16, GW_CAT_MC}, {0x113cc, 0x113cd, 16, GW_CAT_MC},
    {0x113ce, 0x113ce, 16, GW_CAT_MN}, {0x113cf, 0x113cf, 16, GW_CAT_MC},
    {0x113d0, 0x113d0, 16, GW_CAT_MN}, {0x113d1, 0x113d1, 16, GW_CAT_LO},
    {0x113d2, 0x113d2, 16, GW_CAT_MN}, {0x113d3, 0x113d3, 16, GW_CAT_LO},
    {0x113d4, 0x113d5, 16, GW_CAT_PO}, {0x113d7, 0x113d8, 16, GW_CAT_PO},
    {0x113e1, 0x113e2, 16, GW_CAT_MN}, {0x116d0, 0x116e3, 16, GW_CAT_ND},
    {0x11b00, 0x11b09, 15, GW_CAT_PO}, {0x11b60, 0x11b60, 17, GW_CAT_MN},
    {0x11b61, 0x11b61, 17, GW_CAT_MC}, {0x11b62, 0x11b64, 17, GW_CAT_MN},
    {0x11b65, 0x11b65, 17, GW_CAT_MC}, {0x11b66, 0x11b66, 17, GW_CAT_MN},
    {0x11b67, 0x11b67, 17, GW_CAT_MC}, {0x11bc0, 0x11be0, 16, GW_CAT_LO},
    {0x11be1, 0x11be1, 16, GW_CAT_PO}, {0x11bf0, 0x11bf9, 16, GW_CAT_ND},
    {0x11db0, 0x11dd8, 17, GW_CAT_LO}, {0x11dd9, 0x11dd9, 17, GW_CAT_LM},
    {0x11dda, 0x11ddb, 17, GW_CAT_LO}, {0x11de0, 0x11de9, 17, GW_CAT_ND},
    {0x11f00, 0x11f01, 15, GW_CAT_MN}, {0x11f02, 0x11f02, 15, GW_CAT_LO},
    {0x11f03, 0x11f03, 15, GW_CAT_MC}, {0x11f04, 0x11f10, 15, GW_CAT_LO},
    {0x11f12, 0x11f33, 15, GW_CAT_LO}, {0x11f34, 0x11f35, 15, GW_CAT_MC},
    {0x11f36, 0x11f3a, 15, GW_CAT_MN}, {0x11f3e, 0x11f3f, 15, GW_CAT_MC},
    {0x11f40, 0x11f40, 15, GW_CAT_MN}, {0x11f41, 0x11f41, 15, GW_CAT_MC},
    {0x11f42, 0x11f42, 15, GW_CAT_MN}, {0x11f43, 0x11f4f, 15, GW_CAT_PO},
    {0x11f50, 0x11f59, 15, GW_CAT_ND}, {0x11f5a, 0x11f5a, 16, GW_CAT_MN},
    {0x1342f, 0x1342f, 15, GW_CAT_LO}, {0x13439, 0x1343f, 15, GW_CAT_CF},
    {0x13440, 0x13440, 15, GW_CAT_MN}, {0x13441, 0x13446, 15, GW_CAT_LO},
    {0x13447, 0x13455, 15, GW_CAT_MN}, {0x13460, 0x143fa, 16, GW_CAT_LO},
    {0x16100, 0x1611d, 16, GW_CAT_LO}, {0x1611e, 0x16129, 16, GW_CAT_MN},
    {0x1612a, 0x1612c, 16, GW_CAT_MC}, {0x1612d, 0x1612f, 16, GW_CAT_MN},
    {0x16130, 0x16139, 16, GW_CAT_ND}, {0x16d40, 0x16d42, 16, GW_CAT_LM},
    {0x16d43, 0x16d6a, 16, GW_CAT_LO}, {0x16d6b, 0x16d6c, 16, GW_CAT_LM},
    {0x16d6d, 0x16d6f, 16, GW_CAT_PO}, {0x16d70, 0x16d79, 16, GW_CAT_ND},
    {0x16ea0, 0x16eb8, 17, GW_CAT_LU}, {0x16ebb, 0x16ed3, 17, GW_CAT_LL},
    {0x16ff2, 0x16ff3, 17, GW_CAT_LM}, {0x16ff4, 0x16ff6, 17, GW_CAT_NL},
    {0x187f8, 0x187ff, 17, GW_CAT_LO}, {0x18cff, 0x18cff, 16, GW_CAT_LO},
    {0x18d09, 0x18d1e, 17, GW_CAT_LO}, {0x18d80, 0x18df2, 17, GW_CAT_LO},
    {0x1b132, 0x1b132, 15, GW_CAT_LO}, {0x1b155, 0x1b155, 15, GW_CAT_LO},
    {0x1cc00, 0x1ccef, 16, GW_CAT_SO}, {0x1ccf0, 0x1ccf9, 16, GW_CAT_ND},
    {0x1ccfa, 0x1ccfc, 17, GW_CAT_SO}, {0x1cd00, 0x1ceb3, 16, GW_CAT_SO},
    {0x1ceba, 0x1ced0, 17, GW_CAT_SO}, {0x1cee0, 0x1ceef, 17, GW_CAT_SO},
    {0x1cef0, 0x1cef0, 17, GW_CAT_SM}, {0x1d2c0, 0x1d2d3, 15, GW_CAT_NO},
    {0x1df25, 0x1df2a, 15, GW_CAT_LL}, {0x1e030, 0x1e06d, 15, GW_CAT_LM},
    {0x1e08f, 0x1e08f, 15, GW_CAT_MN}, {0x1e4d0, 0x1e4ea, 15, GW_CAT_LO},
    {0x1e4eb, 0x1e4eb, 15, GW_CAT_LM}, {0x1e4ec, 0x1e4ef, 15, GW_CAT_MN},
    {0x1e4f0, 0x1e4f9, 15, GW_CAT_ND}, {0x1e5d0, 0x1e5ed, 16, GW_CAT_LO},
    {0x1e5ee, 0x1e5ef, 16, GW_CAT_MN}, {0x1e5f0, 0x1e5f0, 16, GW_CAT_LO},
    {0x1e5f1, 0x1e5fa, 16, GW_CAT_ND}, {0x1e5ff, 0x1e5ff, 16, GW_CAT_PO},
    {0x1e6c0, 0x1e6de, 17, GW_CAT_LO}, {0x1e6e0, 0x1e6e2, 17, GW_CAT_LO},
    {0x1e6e3, 0x1e6e3, 17, GW_CAT_MN}, {0x1e6e4, 0x1e6e5, 17, GW_CAT_LO},
    {0x1e6e6, 0x1e6e6, 17, GW_CAT_MN}, {0x1e6e7, 0x1e6ed, 17, GW_CAT_LO},
    {0x1e6ee, 0x1e6ef, 17, GW_CAT_MN}, {0x1e6f0, 0x1e6f4, 17, GW_CAT_LO},
    {0x1e6f5, 0x1e6f5, 17, GW_CAT_MN}, {0x1e6fe, 0x1e6fe, 17, GW_CAT_LO},
    {0x1e6ff, 0x1e6ff, 17, GW_CAT_LM}, {0x1f6d8, 0x1f6d8, 17, GW_CAT_SO},
    {0x1f6dc, 0x1f6dc, 15, GW_CAT_SO}, {0x1f774, 0x1f776, 15, GW_CAT_SO},
    {0x1f777, 0x1f77a, 17, GW_CAT_SO}, {0x1f77b, 0x1f77f, 15, GW_CAT_SO},
    {0x1f7d9, 0x1f7d9, 15, GW_CAT_SO}, {0x1f8b2, 0x1f8bb, 16, GW_CAT_SO},
    {0x1f8c0, 0x1f8c1, 16, GW_CAT_SO}, {0x1f8d0, 0x1f8d8, 17, GW_CAT_SM},
    {0x1fa54, 0x1fa57, 17, GW_CAT_SO}, {0x1fa75, 0x1fa77, 15, GW_CAT_SO},
    {0x1fa87, 0x1fa88, 15, GW_CAT_SO}, {0x1fa89, 0x1fa89, 16, GW_CAT_SO},
    {0x1fa8a, 0x1fa8a, 17, GW_CAT_SO}, {0x1fa8e, 0x1fa8e, 17, GW_CAT_SO},
    {0x1fa8f, 0x1fa8f, 16, GW_CAT_SO}, {0x1faad, 0x1faaf, 15, GW_CAT_SO},
    {0x1fabb, 0x1fabd, 15, GW_CAT_SO}, {0x1fabe, 0x1fabe, 16, GW_CAT_SO},
    {0x1fabf, 0x1fabf, 15, GW_CAT_SO}, {0x1fac6, 0x1fac6, 16, GW_CAT_SO},
    {0x1fac8, 0x1fac8, 17, GW_CAT_SO}, {0x1facd, 0x1facd, 17, GW_CAT_SO},
    {0x1face, 0x1facf, 15, GW_CAT_SO}, {0x1fada, 0x1fadb, 15, GW_CAT_SO},
    {0x1fadc, 0x1fadc, 16, GW_CAT_SO}, {0x1fadf, 0x1fadf, 16, GW_CAT_SO},
    {0x1fae8, 0x1fae8, 15, GW_CAT_SO}, {0x1fae9, 0x1fae9, 16, GW_CAT_SO},
    {0x1faea, 0x1faea, 17, GW_CAT_SO}, {0x1faef, 0x1faef, 17, GW_CAT_SO},
    {0x1faf7, 0x1faf8, 15, GW_CAT_SO}, {0x1fbcb, 0x1fbef, 16, GW_CAT_SO},
    {0x1fbfa, 0x1fbfa, 17, GW_CAT_SO}, {0x2b739, 0x2b739, 15, GW_CAT_LO},
    {0x2b73a, 0x2b73f, 17, GW_CAT_LO}, {0x2cea2, 0x2cead, 17, GW_CAT_LO},
    {0x2ebf0, 0x2ee5d, 16, GW_CAT_LO}, {0x31350, 0x323af, 15, GW_CAT_LO},
    {0x323b0, 0x33479, 17, GW_CAT_LO},
};

static const struct range *find(uint32_t cp) {
    size_t lo = 0, hi = GW_COUNT(RANGES);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > RANGES[mid].last)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < GW_COUNT(RANGES) && cp >= RANGES[lo].first ? &RANGES[lo] : NULL;
}

int gw_uni_version_of(uint32_t cp) {
    const struct range *r = cp < RANGES[0].first ? NULL : find(cp);
    return r ? r->version : GW_UNI_OLDEST;
}

uint32_t gw_uni_stand_in(uint32_t cp, int version) {
    const struct range *r = cp < RANGES[0].first ? NULL : find(cp);
    if (!r) return cp;
    int four = cp >= 0x10000;
    if (r->version > version) return four ? UNASSIGNED_4 : UNASSIGNED_3;
    if (r->cat == GW_CAT_LO && cp >= 0x20000) return IDEOGRAPH;
    return STAND_IN[r->cat][four];
}
