/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sha256.c: the vectors of FIPS 180-4 and the lengths around a block's end.
 */
#include "base/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect(const void *data, size_t bytes, size_t piece, const char *wanted)
{
    unsigned char digest[SOL_SHA256_BYTES];
    char text[2 * SOL_SHA256_BYTES + 1];
    sol_sha256_t hash;
    sol_sha256_start(&hash);
    for (size_t at = 0; at < bytes; at += piece) {
        size_t step = bytes - at < piece ? bytes - at : piece;
        sol_sha256_add(&hash, (const char *)data + at, step);
    }
    sol_sha256_end(&hash, digest);
    for (int i = 0; i < SOL_SHA256_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
    assert_string_equal(text, wanted);
}

static void test_vectors(void **state)
{
    static char million[1000000];
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    (void)state;
    expect("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect(two_blocks, sizeof(two_blocks) - 1, 7,
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(million, 'a', sizeof(million));
    expect(million, sizeof(million), 1000,
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* However the data is cut, the digest is the same. */
static void test_pieces(void **state)
{
    unsigned char data[200], whole[SOL_SHA256_BYTES], cut[SOL_SHA256_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (unsigned char)(i * 37);
    }
    for (size_t length = 0; length <= sizeof(data); length++) {
        sol_sha256_t hash;
        sol_sha256_start(&hash);
        sol_sha256_add(&hash, data, length);
        sol_sha256_end(&hash, whole);
        sol_sha256_start(&hash);
        sol_sha256_add(&hash, data, length / 3);
        sol_sha256_add(&hash, data + length / 3, length - length / 3);
        sol_sha256_end(&hash, cut);
        assert_memory_equal(whole, cut, sizeof(whole));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors),
                                       cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
