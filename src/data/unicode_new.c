// SPDX-License-Identifier: Apache-2.0
// What Unicode 14, 15, 15.1, 16 and 17 added, from the Unicode Character Database (DerivedAge and
// general category): ranges of code points with version and category, ascending.
//
// A tokenizer must split text as the library that trained it did, whatever tables the libraries of
// this machine have. utf8proc and PCRE2 are therefore asked only about characters up to Unicode 13,
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
    GW_CAT_PS,
    GW_CAT_PE,
    GW_CAT_PO,
    GW_CAT_SM,
    GW_CAT_SC,
    GW_CAT_SK,
    GW_CAT_SO,
    GW_CAT_CF,
} cat;

/* One character of Unicode 13 or earlier of 2, of 3 and of 4 bytes for each category; 0 = none is
 * needed. */
static const uint32_t STAND_IN[][3] = {
    [GW_CAT_LU] = {0, 0x1e00, 0x10400},
    [GW_CAT_LL] = {0, 0x1e01, 0x10428},
    [GW_CAT_LM] = {0, 0x1d2c, 0x16b40},
    [GW_CAT_LO] = {0, 0x0904, 0x10450},
    [GW_CAT_MN] = {0, 0x0901, 0x1d167},
    [GW_CAT_MC] = {0, 0x0903, 0x11000},
    [GW_CAT_ND] = {0, 0x0966, 0x1d7ce},
    [GW_CAT_NL] = {0, 0x2160, 0x10140},
    [GW_CAT_NO] = {0, 0x2070, 0x1d360},
    [GW_CAT_PD] = {0, 0x2010, 0x10ead},
    [GW_CAT_PS] = {0, 0x2045, 0},
    [GW_CAT_PE] = {0, 0x2046, 0},
    [GW_CAT_PO] = {0x00a7, 0x2016, 0x10a50},
    [GW_CAT_SM] = {0, 0x2044, 0x1d6c1},
    [GW_CAT_SC] = {0, 0x20a0, 0x1e2ff},
    [GW_CAT_SK] = {0, 0x1fbd, 0x1f3fb},
    [GW_CAT_SO] = {0, 0x2100, 0x1f300},
    [GW_CAT_CF] = {0, 0x200b, 0x1d173},
};
static const uint32_t UNASSIGNED[3] = {0x0378, 0x2fe0, 0x50000};
enum { IDEOGRAPH_3 = 0x9ff0, IDEOGRAPH_4 = 0x20000 };

static const struct range {
    uint32_t first, last;
    uint8_t version, cat;
} RANGES[] = {
    {0x61d, 0x61d, 14, GW_CAT_PO},     {0x870, 0x887, 14, GW_CAT_LO},
    {0x888, 0x888, 14, GW_CAT_SK},     {0x889, 0x88e, 14, GW_CAT_LO},
    {0x88f, 0x88f, 17, GW_CAT_LO},     {0x890, 0x891, 14, GW_CAT_CF},
    {0x897, 0x897, 16, GW_CAT_MN},     {0x898, 0x89f, 14, GW_CAT_MN},
    {0x8b5, 0x8b5, 14, GW_CAT_LO},     {0x8c8, 0x8c8, 14, GW_CAT_LO},
    {0x8c9, 0x8c9, 14, GW_CAT_LM},     {0x8ca, 0x8d2, 14, GW_CAT_MN},
    {0xc3c, 0xc3c, 14, GW_CAT_MN},     {0xc5c, 0xc5c, 17, GW_CAT_LO},
    {0xc5d, 0xc5d, 14, GW_CAT_LO},     {0xcdc, 0xcdc, 17, GW_CAT_LO},
    {0xcdd, 0xcdd, 14, GW_CAT_LO},     {0xcf3, 0xcf3, 15, GW_CAT_MC},
    {0xece, 0xece, 15, GW_CAT_MN},     {0x170d, 0x170d, 14, GW_CAT_LO},
    {0x1715, 0x1715, 14, GW_CAT_MC},   {0x171f, 0x171f, 14, GW_CAT_LO},
    {0x180f, 0x180f, 14, GW_CAT_MN},   {0x1ac1, 0x1ace, 14, GW_CAT_MN},
    {0x1acf, 0x1add, 17, GW_CAT_MN},   {0x1ae0, 0x1aeb, 17, GW_CAT_MN},
    {0x1b4c, 0x1b4c, 14, GW_CAT_LO},   {0x1b4e, 0x1b4f, 16, GW_CAT_PO},
    {0x1b7d, 0x1b7e, 14, GW_CAT_PO},   {0x1b7f, 0x1b7f, 16, GW_CAT_PO},
    {0x1c89, 0x1c89, 16, GW_CAT_LU},   {0x1c8a, 0x1c8a, 16, GW_CAT_LL},
    {0x1dfa, 0x1dfa, 14, GW_CAT_MN},   {0x20c0, 0x20c0, 14, GW_CAT_SC},
    {0x20c1, 0x20c1, 17, GW_CAT_SC},   {0x2427, 0x2429, 16, GW_CAT_SO},
    {0x2b96, 0x2b96, 17, GW_CAT_SO},   {0x2c2f, 0x2c2f, 14, GW_CAT_LU},
    {0x2c5f, 0x2c5f, 14, GW_CAT_LL},   {0x2e53, 0x2e54, 14, GW_CAT_PO},
    {0x2e55, 0x2e55, 14, GW_CAT_PS},   {0x2e56, 0x2e56, 14, GW_CAT_PE},
    {0x2e57, 0x2e57, 14, GW_CAT_PS},   {0x2e58, 0x2e58, 14, GW_CAT_PE},
    {0x2e59, 0x2e59, 14, GW_CAT_PS},   {0x2e5a, 0x2e5a, 14, GW_CAT_PE},
    {0x2e5b, 0x2e5b, 14, GW_CAT_PS},   {0x2e5c, 0x2e5c, 14, GW_CAT_PE},
    {0x2e5d, 0x2e5d, 14, GW_CAT_PD},   {0x2ffc, 0x2fff, 16, GW_CAT_SO},
    {0x31e4, 0x31e5, 16, GW_CAT_SO},   {0x31ef, 0x31ef, 16, GW_CAT_SO},
    {0x9ffd, 0x9fff, 14, GW_CAT_LO},   {0xa7c0, 0xa7c0, 14, GW_CAT_LU},
    {0xa7c1, 0xa7c1, 14, GW_CAT_LL},   {0xa7cb, 0xa7cc, 16, GW_CAT_LU},
    {0xa7cd, 0xa7cd, 16, GW_CAT_LL},   {0xa7ce, 0xa7ce, 17, GW_CAT_LU},
    {0xa7cf, 0xa7cf, 17, GW_CAT_LL},   {0xa7d0, 0xa7d0, 14, GW_CAT_LU},
    {0xa7d1, 0xa7d1, 14, GW_CAT_LL},   {0xa7d2, 0xa7d2, 17, GW_CAT_LU},
    {0xa7d3, 0xa7d3, 14, GW_CAT_LL},   {0xa7d4, 0xa7d4, 17, GW_CAT_LU},
    {0xa7d5, 0xa7d5, 14, GW_CAT_LL},   {0xa7d6, 0xa7d6, 14, GW_CAT_LU},
    {0xa7d7, 0xa7d7, 14, GW_CAT_LL},   {0xa7d8, 0xa7d8, 14, GW_CAT_LU},
    {0xa7d9, 0xa7d9, 14, GW_CAT_LL},   {0xa7da, 0xa7da, 16, GW_CAT_LU},
    {0xa7db, 0xa7db, 16, GW_CAT_LL},   {0xa7dc, 0xa7dc, 16, GW_CAT_LU},
    {0xa7f1, 0xa7f1, 17, GW_CAT_LM},   {0xa7f2, 0xa7f4, 14, GW_CAT_LM},
    {0xfbc2, 0xfbc2, 14, GW_CAT_SK},   {0xfbc3, 0xfbd2, 17, GW_CAT_SO},
    {0xfd40, 0xfd4f, 14, GW_CAT_SO},   {0xfd90, 0xfd91, 17, GW_CAT_SO},
    {0xfdc8, 0xfdce, 17, GW_CAT_SO},   {0xfdcf, 0xfdcf, 14, GW_CAT_SO},
    {0xfdfe, 0xfdff, 14, GW_CAT_SO},   {0x10570, 0x1057a, 14, GW_CAT_LU},
    {0x1057c, 0x1058a, 14, GW_CAT_LU}, {0x1058c, 0x10592, 14, GW_CAT_LU},
    {0x10594, 0x10595, 14, GW_CAT_LU}, {0x10597, 0x105a1, 14, GW_CAT_LL},
    {0x105a3, 0x105b1, 14, GW_CAT_LL}, {0x105b3, 0x105b9, 14, GW_CAT_LL},
    {0x105bb, 0x105bc, 14, GW_CAT_LL}, {0x105c0, 0x105f3, 16, GW_CAT_LO},
    {0x10780, 0x10785, 14, GW_CAT_LM}, {0x10787, 0x107b0, 14, GW_CAT_LM},
    {0x107b2, 0x107ba, 14, GW_CAT_LM}, {0x10940, 0x10959, 17, GW_CAT_LO},
    {0x10d40, 0x10d49, 16, GW_CAT_ND}, {0x10d4a, 0x10d4d, 16, GW_CAT_LO},
    {0x10d4e, 0x10d4e, 16, GW_CAT_LM}, {0x10d4f, 0x10d4f, 16, GW_CAT_LO},
    {0x10d50, 0x10d65, 16, GW_CAT_LU}, {0x10d69, 0x10d6d, 16, GW_CAT_MN},
    {0x10d6e, 0x10d6e, 16, GW_CAT_PD}, {0x10d6f, 0x10d6f, 16, GW_CAT_LM},
    {0x10d70, 0x10d85, 16, GW_CAT_LL}, {0x10d8e, 0x10d8f, 16, GW_CAT_SM},
    {0x10ec2, 0x10ec4, 16, GW_CAT_LO}, {0x10ec5, 0x10ec5, 17, GW_CAT_LM},
    {0x10ec6, 0x10ec7, 17, GW_CAT_LO}, {0x10ed0, 0x10ed0, 17, GW_CAT_PO},
    {0x10ed1, 0x10ed8, 17, GW_CAT_SO}, {0x10efa, 0x10efb, 17, GW_CAT_MN},
    {0x10efc, 0x10efc, 16, GW_CAT_MN}, {0x10efd, 0x10eff, 15, GW_CAT_MN},
    {0x10f70, 0x10f81, 14, GW_CAT_LO}, {0x10f82, 0x10f85, 14, GW_CAT_MN},
    {0x10f86, 0x10f89, 14, GW_CAT_PO}, {0x11070, 0x11070, 14, GW_CAT_MN},
    {0x11071, 0x11072, 14, GW_CAT_LO}, {0x11073, 0x11074, 14, GW_CAT_MN},
    {0x11075, 0x11075, 14, GW_CAT_LO}, {0x110c2, 0x110c2, 14, GW_CAT_MN},
    {0x1123f, 0x11240, 15, GW_CAT_LO}, {0x11241, 0x11241, 15, GW_CAT_MN},
    {0x11380, 0x11389, 16, GW_CAT_LO}, {0x1138b, 0x1138b, 16, GW_CAT_LO},
    {0x1138e, 0x1138e, 16, GW_CAT_LO}, {0x11390, 0x113b5, 16, GW_CAT_LO},
    {0x113b7, 0x113b7, 16, GW_CAT_LO}, {0x113b8, 0x113ba, 16, GW_CAT_MC},
    {0x113bb, 0x113c0, 16, GW_CAT_MN}, {0x113c2, 0x113c2, 16, GW_CAT_MC},
    {0x113c5, 0x113c5, 16, GW_CAT_MC}, {0x113c7, 0x113ca, 16, GW_CAT_MC},
    {0x113cc, 0x113cd, 16, GW_CAT_MC}, {0x113ce, 0x113ce, 16, GW_CAT_MN},
    {0x113cf, 0x113cf, 16, GW_CAT_MC}, {0x113d0, 0x113d0, 16, GW_CAT_MN},
    {0x113d1, 0x113d1, 16, GW_CAT_LO}, {0x113d2, 0x113d2, 16, GW_CAT_MN},
    {0x113d3, 0x113d3, 16, GW_CAT_LO}, {0x113d4, 0x113d5, 16, GW_CAT_PO},
    {0x113d7, 0x113d8, 16, GW_CAT_PO}, {0x113e1, 0x113e2, 16, GW_CAT_MN},
    {0x116b9, 0x116b9, 14, GW_CAT_PO}, {0x116d0, 0x116e3, 16, GW_CAT_ND},
    {0x11740, 0x11746, 14, GW_CAT_LO}, {0x11ab0, 0x11abf, 14, GW_CAT_LO},
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
    {0x12f90, 0x12ff0, 14, GW_CAT_LO}, {0x12ff1, 0x12ff2, 14, GW_CAT_PO},
    {0x1342f, 0x1342f, 15, GW_CAT_LO}, {0x13439, 0x1343f, 15, GW_CAT_CF},
    {0x13440, 0x13440, 15, GW_CAT_MN}, {0x13441, 0x13446, 15, GW_CAT_LO},
    {0x13447, 0x13455, 15, GW_CAT_MN}, {0x13460, 0x143fa, 16, GW_CAT_LO},
    {0x16100, 0x1611d, 16, GW_CAT_LO}, {0x1611e, 0x16129, 16, GW_CAT_MN},
    {0x1612a, 0x1612c, 16, GW_CAT_MC}, {0x1612d, 0x1612f, 16, GW_CAT_MN},
    {0x16130, 0x16139, 16, GW_CAT_ND}, {0x16a70, 0x16abe, 14, GW_CAT_LO},
    {0x16ac0, 0x16ac9, 14, GW_CAT_ND}, {0x16d40, 0x16d42, 16, GW_CAT_LM},
    {0x16d43, 0x16d6a, 16, GW_CAT_LO}, {0x16d6b, 0x16d6c, 16, GW_CAT_LM},
    {0x16d6d, 0x16d6f, 16, GW_CAT_PO}, {0x16d70, 0x16d79, 16, GW_CAT_ND},
    {0x16ea0, 0x16eb8, 17, GW_CAT_LU}, {0x16ebb, 0x16ed3, 17, GW_CAT_LL},
    {0x16ff2, 0x16ff3, 17, GW_CAT_LM}, {0x16ff4, 0x16ff6, 17, GW_CAT_NL},
    {0x187f8, 0x187ff, 17, GW_CAT_LO}, {0x18cff, 0x18cff, 16, GW_CAT_LO},
    {0x18d09, 0x18d1e, 17, GW_CAT_LO}, {0x18d80, 0x18df2, 17, GW_CAT_LO},
    {0x1aff0, 0x1aff3, 14, GW_CAT_LM}, {0x1aff5, 0x1affb, 14, GW_CAT_LM},
    {0x1affd, 0x1affe, 14, GW_CAT_LM}, {0x1b11f, 0x1b122, 14, GW_CAT_LO},
    {0x1b132, 0x1b132, 15, GW_CAT_LO}, {0x1b155, 0x1b155, 15, GW_CAT_LO},
    {0x1cc00, 0x1ccef, 16, GW_CAT_SO}, {0x1ccf0, 0x1ccf9, 16, GW_CAT_ND},
    {0x1ccfa, 0x1ccfc, 17, GW_CAT_SO}, {0x1cd00, 0x1ceb3, 16, GW_CAT_SO},
    {0x1ceba, 0x1ced0, 17, GW_CAT_SO}, {0x1cee0, 0x1ceef, 17, GW_CAT_SO},
    {0x1cef0, 0x1cef0, 17, GW_CAT_SM}, {0x1cf00, 0x1cf2d, 14, GW_CAT_MN},
    {0x1cf30, 0x1cf46, 14, GW_CAT_MN}, {0x1cf50, 0x1cfc3, 14, GW_CAT_SO},
    {0x1d1e9, 0x1d1ea, 14, GW_CAT_SO}, {0x1d2c0, 0x1d2d3, 15, GW_CAT_NO},
    {0x1df00, 0x1df09, 14, GW_CAT_LL}, {0x1df0a, 0x1df0a, 14, GW_CAT_LO},
    {0x1df0b, 0x1df1e, 14, GW_CAT_LL}, {0x1df25, 0x1df2a, 15, GW_CAT_LL},
    {0x1e030, 0x1e06d, 15, GW_CAT_LM}, {0x1e08f, 0x1e08f, 15, GW_CAT_MN},
    {0x1e290, 0x1e2ad, 14, GW_CAT_LO}, {0x1e2ae, 0x1e2ae, 14, GW_CAT_MN},
    {0x1e4d0, 0x1e4ea, 15, GW_CAT_LO}, {0x1e4eb, 0x1e4eb, 15, GW_CAT_LM},
    {0x1e4ec, 0x1e4ef, 15, GW_CAT_MN}, {0x1e4f0, 0x1e4f9, 15, GW_CAT_ND},
    {0x1e5d0, 0x1e5ed, 16, GW_CAT_LO}, {0x1e5ee, 0x1e5ef, 16, GW_CAT_MN},
    {0x1e5f0, 0x1e5f0, 16, GW_CAT_LO}, {0x1e5f1, 0x1e5fa, 16, GW_CAT_ND},
    {0x1e5ff, 0x1e5ff, 16, GW_CAT_PO}, {0x1e6c0, 0x1e6de, 17, GW_CAT_LO},
    {0x1e6e0, 0x1e6e2, 17, GW_CAT_LO}, {0x1e6e3, 0x1e6e3, 17, GW_CAT_MN},
    {0x1e6e4, 0x1e6e5, 17, GW_CAT_LO}, {0x1e6e6, 0x1e6e6, 17, GW_CAT_MN},
    {0x1e6e7, 0x1e6ed, 17, GW_CAT_LO}, {0x1e6ee, 0x1e6ef, 17, GW_CAT_MN},
    {0x1e6f0, 0x1e6f4, 17, GW_CAT_LO}, {0x1e6f5, 0x1e6f5, 17, GW_CAT_MN},
    {0x1e6fe, 0x1e6fe, 17, GW_CAT_LO}, {0x1e6ff, 0x1e6ff, 17, GW_CAT_LM},
    {0x1e7e0, 0x1e7e6, 14, GW_CAT_LO}, {0x1e7e8, 0x1e7eb, 14, GW_CAT_LO},
    {0x1e7ed, 0x1e7ee, 14, GW_CAT_LO}, {0x1e7f0, 0x1e7fe, 14, GW_CAT_LO},
    {0x1f6d8, 0x1f6d8, 17, GW_CAT_SO}, {0x1f6dc, 0x1f6dc, 15, GW_CAT_SO},
    {0x1f6dd, 0x1f6df, 14, GW_CAT_SO}, {0x1f774, 0x1f776, 15, GW_CAT_SO},
    {0x1f777, 0x1f77a, 17, GW_CAT_SO}, {0x1f77b, 0x1f77f, 15, GW_CAT_SO},
    {0x1f7d9, 0x1f7d9, 15, GW_CAT_SO}, {0x1f7f0, 0x1f7f0, 14, GW_CAT_SO},
    {0x1f8b2, 0x1f8bb, 16, GW_CAT_SO}, {0x1f8c0, 0x1f8c1, 16, GW_CAT_SO},
    {0x1f8d0, 0x1f8d8, 17, GW_CAT_SM}, {0x1f979, 0x1f979, 14, GW_CAT_SO},
    {0x1f9cc, 0x1f9cc, 14, GW_CAT_SO}, {0x1fa54, 0x1fa57, 17, GW_CAT_SO},
    {0x1fa75, 0x1fa77, 15, GW_CAT_SO}, {0x1fa7b, 0x1fa7c, 14, GW_CAT_SO},
    {0x1fa87, 0x1fa88, 15, GW_CAT_SO}, {0x1fa89, 0x1fa89, 16, GW_CAT_SO},
    {0x1fa8a, 0x1fa8a, 17, GW_CAT_SO}, {0x1fa8e, 0x1fa8e, 17, GW_CAT_SO},
    {0x1fa8f, 0x1fa8f, 16, GW_CAT_SO}, {0x1faa9, 0x1faac, 14, GW_CAT_SO},
    {0x1faad, 0x1faaf, 15, GW_CAT_SO}, {0x1fab7, 0x1faba, 14, GW_CAT_SO},
    {0x1fabb, 0x1fabd, 15, GW_CAT_SO}, {0x1fabe, 0x1fabe, 16, GW_CAT_SO},
    {0x1fabf, 0x1fabf, 15, GW_CAT_SO}, {0x1fac3, 0x1fac5, 14, GW_CAT_SO},
    {0x1fac6, 0x1fac6, 16, GW_CAT_SO}, {0x1fac8, 0x1fac8, 17, GW_CAT_SO},
    {0x1facd, 0x1facd, 17, GW_CAT_SO}, {0x1face, 0x1facf, 15, GW_CAT_SO},
    {0x1fad7, 0x1fad9, 14, GW_CAT_SO}, {0x1fada, 0x1fadb, 15, GW_CAT_SO},
    {0x1fadc, 0x1fadc, 16, GW_CAT_SO}, {0x1fadf, 0x1fadf, 16, GW_CAT_SO},
    {0x1fae0, 0x1fae7, 14, GW_CAT_SO}, {0x1fae8, 0x1fae8, 15, GW_CAT_SO},
    {0x1fae9, 0x1fae9, 16, GW_CAT_SO}, {0x1faea, 0x1faea, 17, GW_CAT_SO},
    {0x1faef, 0x1faef, 17, GW_CAT_SO}, {0x1faf0, 0x1faf6, 14, GW_CAT_SO},
    {0x1faf7, 0x1faf8, 15, GW_CAT_SO}, {0x1fbcb, 0x1fbef, 16, GW_CAT_SO},
    {0x1fbfa, 0x1fbfa, 17, GW_CAT_SO}, {0x2a6de, 0x2a6df, 14, GW_CAT_LO},
    {0x2b735, 0x2b738, 14, GW_CAT_LO}, {0x2b739, 0x2b739, 15, GW_CAT_LO},
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
    int length = cp < 0x800 ? 0 : cp < 0x10000 ? 1 : 2;
    if (r->version > version) return UNASSIGNED[length];
    if (r->cat == GW_CAT_LO && cp >= 0x20000) return IDEOGRAPH_4;
    if (r->cat == GW_CAT_LO && cp >= 0x9ffd && cp <= 0x9fff) return IDEOGRAPH_3;
    return STAND_IN[r->cat][length];
}
