// SPDX-License-Identifier: Apache-2.0
// Hashes by the names that MDS indexes use for them: those of Python's hashlib, here OpenSSL's, and
// those of its xxhash package, whose digests are written with the most significant byte first.
#include <openssl/evp.h>
#include <string.h>
#include <xxhash.h>

#include "base/hash.h" /* gw_hash64, gw_hash128_of */
#include "file/mds.h"  /* gw_mds_hash_hex */

/* hashlib's names that OpenSSL spells otherwise. */
static const char *openssl_name(const char *name) {
    static const char *const names[][2] = {{"blake2b", "BLAKE2b512"}, {"blake2s", "BLAKE2s256"},
                                           {"sha3_224", "SHA3-224"},  {"sha3_256", "SHA3-256"},
                                           {"sha3_384", "SHA3-384"},  {"sha3_512", "SHA3-512"}};
    for (size_t i = 0; i < GW_COUNT(names); i++)
        if (strcmp(names[i][0], name) == 0) return names[i][1];
    return name;
}

static bool of_xxhash(const char *name, const void *bytes, size_t n, gw_str *out) {
    char hex[33];
    if (strcmp(name, "xxh32") == 0)
        gw_str_printf(out, "%08x", (unsigned)XXH32(bytes, n, 0));
    else if (strcmp(name, "xxh64") == 0)
        gw_str_printf(out, "%016llx", (unsigned long long)XXH64(bytes, n, 0));
    else if (strcmp(name, "xxh3_64") == 0)
        gw_str_printf(out, "%016llx", (unsigned long long)gw_hash64(bytes, n, 0));
    else if (strcmp(name, "xxh128") == 0 || strcmp(name, "xxh3_128") == 0)
        gw_str_add(out, gw_hash128_hex(hex, gw_hash128_of(bytes, n)));
    else
        return false;
    return true;
}

bool gw_mds_hash_hex(const char *algorithm, const void *bytes, int64_t n, gw_str *out) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    gw_str_clear(out);
    if (of_xxhash(algorithm, n ? bytes : "", (size_t)n, out)) return true;
    const EVP_MD *md = EVP_get_digestbyname(openssl_name(algorithm));
    if (!md || (EVP_MD_flags(md) & EVP_MD_FLAG_XOF)) return false;
    if (EVP_Digest(n ? bytes : "", (size_t)n, digest, &length, md, NULL) != 1) return false;
    for (unsigned i = 0; i < length; i++) gw_str_printf(out, "%02x", digest[i]);
    return true;
}
