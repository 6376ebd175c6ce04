/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * The file protocol's bytes: each message as the tables in file-proto.h have it, and nothing else.
 */

#include "tools/file-proto.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A message in memory of exactly its size, so that a sanitizer sees a read beyond it. */
static int decode(const void *data, size_t bytes, struct fp_message *ret)
{
	uint8_t *copy = malloc(bytes ? bytes : 1);
	int r;

	assert_non_null(copy);
	memcpy(copy, data, bytes);
	r = fp_decode(copy, bytes, ret);
	free(copy);
	return r;
}

static void bytes_of_each_message(void **state)
{
	static const uint8_t grant[32] = {3,    0,    0,    0,    1,    2,    3,    4,
					  0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
					  0,    0,    0x10, 0,    0xa1, 0xa2, 0xa3, 0xa4,
					  0xc1, 0xc2, 0xc3, 0xc4, 0,    0,    0,    0};
	static const uint8_t done[16] = {4, 0, 0, 0, 0,	   0,	 0,    7,
					 0, 0, 0, 5, 0xde, 0xad, 0xbe, 0xef};
	static const uint8_t opened[16] = {2, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2};
	static const uint8_t path[19] = {1, 0, 0, 3, 0, 0, 0,	0,   0,	 0,
					 0, 0, 0, 0, 1, 0, 'a', '/', 'b'};
	static const uint8_t result[10] = {5, 0, 0, 2, 0, 0, 0, 2, 'n', 'o'};
	uint8_t buf[FP_MESSAGE_MAX];
	struct fp_message m;

	(void)state;
	m = (struct fp_message){.type = FP_GRANT,
				.grant = {.chunk = 0x01020304,
					  .length_bytes = 0x1000,
					  .address = 0x1112131415161718,
					  .rkey = 0xa1a2a3a4,
					  .crc = 0xc1c2c3c4}};
	assert_int_equal(fp_encode(&m, buf), sizeof(grant));
	assert_memory_equal(buf, grant, sizeof(grant));
	m = (struct fp_message){.type = FP_DONE,
				.done = {.chunk = 7, .length_bytes = 5, .crc = 0xdeadbeef}};
	assert_int_equal(fp_encode(&m, buf), sizeof(done));
	assert_memory_equal(buf, done, sizeof(done));
	m = (struct fp_message){.type = FP_OPENED, .opened = {.size_bytes = 0x100000002}};
	assert_int_equal(fp_encode(&m, buf), sizeof(opened));
	assert_memory_equal(buf, opened, sizeof(opened));
	m = (struct fp_message){.type = FP_PATH, .path = {.size_bytes = 256, .path = "a/b"}};
	assert_int_equal(fp_encode(&m, buf), sizeof(path));
	assert_memory_equal(buf, path, sizeof(path));
	m = (struct fp_message){.type = FP_RESULT, .result = {.error = 2, .text = "no"}};
	assert_int_equal(fp_encode(&m, buf), sizeof(result));
	assert_memory_equal(buf, result, sizeof(result));
}

static void round_trips(void **state)
{
	uint8_t buf[FP_MESSAGE_MAX];
	struct fp_message m = {.type = FP_PATH}, back;
	size_t n;

	(void)state;
	m.path.size_bytes = FP_SIZE_MAX;
	memset(m.path.path, 'p', FP_PATH_MAX);
	n = fp_encode(&m, buf);
	assert_int_equal(n, FP_MESSAGE_MAX);
	assert_int_equal(decode(buf, n, &back), 0);
	assert_int_equal(back.type, FP_PATH);
	assert_string_equal(back.path.path, m.path.path);
	assert_true(back.path.size_bytes == FP_SIZE_MAX);

	m = (struct fp_message){.type = FP_RESULT, .result = {.error = ENOENT}};
	memset(m.result.text, 't', FP_TEXT_MAX);
	n = fp_encode(&m, buf);
	assert_int_equal(n, 8 + FP_TEXT_MAX);
	assert_int_equal(decode(buf, n, &back), 0);
	assert_int_equal(back.result.error, ENOENT);
	assert_string_equal(back.result.text, m.result.text);

	m = (struct fp_message){.type = FP_GRANT,
				.grant = {.chunk = UINT32_MAX,
					  .length_bytes = FP_CHUNK_BYTES,
					  .address = UINT64_MAX,
					  .rkey = 1,
					  .crc = 2}};
	n = fp_encode(&m, buf);
	assert_int_equal(decode(buf, n, &back), 0);
	assert_memory_equal(&back.grant, &m.grant, sizeof(m.grant));
}

/* Every message, one byte short, one byte long, and with each reserved byte set. */
static void lengths_and_reserved_bytes(void **state)
{
	static const struct {
		struct fp_message m;
		uint8_t reserved[8]; /* offsets; 0 = end */
	} cases[] = {
		{{.type = FP_PATH, .path = {.path = "x"}}, {1, 4, 5, 6, 7}},
		{{.type = FP_OPENED, .opened = {.size_bytes = 1}}, {1, 2, 3}},
		{{.type = FP_GRANT, .grant = {.length_bytes = 1}}, {1, 2, 3, 28, 29, 30, 31}},
		{{.type = FP_DONE, .done = {.length_bytes = 1}}, {1, 2, 3}},
		{{.type = FP_RESULT, .result = {.text = "x"}}, {1}},
	};
	uint8_t buf[FP_MESSAGE_MAX + 1];
	struct fp_message back;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t n = fp_encode(&cases[i].m, buf);

		buf[n] = 0;
		assert_int_equal(decode(buf, n, &back), 0);
		assert_int_equal(decode(buf, n + 1, &back), -EBADMSG);
		for (size_t k = 0; k < n; k++)
			assert_int_equal(decode(buf, k, &back), -EBADMSG);
		for (const uint8_t *r = cases[i].reserved; *r; r++) {
			buf[*r] = 1;
			assert_int_equal(decode(buf, n, &back), -EBADMSG);
			buf[*r] = 0;
		}
	}
}

static void values_out_of_range(void **state)
{
	uint8_t buf[FP_MESSAGE_MAX + 64] = {0};
	struct fp_message m, back;
	size_t n;

	(void)state;
	/* types */
	for (unsigned int type = 0; type < 256; type++) {
		memset(buf, 0, sizeof(buf));
		buf[0] = (uint8_t)type;
		if (type == 0 || type > FP_RESULT)
			assert_int_equal(decode(buf, 16, &back), -EBADMSG);
	}
	/* an empty path, one that is too long, one with a NUL */
	memset(buf, 0, sizeof(buf));
	buf[0] = FP_PATH;
	assert_int_equal(decode(buf, 16, &back), -EBADMSG);
	buf[2] = (FP_PATH_MAX + 1) >> 8;
	buf[3] = (FP_PATH_MAX + 1) & 0xff;
	memset(buf + 16, 'p', FP_PATH_MAX + 1);
	assert_int_equal(decode(buf, 16 + FP_PATH_MAX + 1, &back), -EBADMSG);
	buf[2] = 0;
	buf[3] = 3;
	assert_int_equal(decode(buf, 19, &back), 0);
	buf[17] = 0;
	assert_int_equal(decode(buf, 19, &back), -EBADMSG);
	/* sizes */
	m = (struct fp_message){.type = FP_OPENED, .opened = {.size_bytes = FP_SIZE_MAX + 1}};
	n = fp_encode(&m, buf);
	assert_int_equal(decode(buf, n, &back), -EBADMSG);
	m = (struct fp_message){.type = FP_PATH, .path = {.size_bytes = UINT64_MAX, .path = "p"}};
	n = fp_encode(&m, buf);
	assert_int_equal(decode(buf, n, &back), -EBADMSG);
	/* another size of chunks */
	m = (struct fp_message){.type = FP_OPENED, .opened = {.size_bytes = 1}};
	n = fp_encode(&m, buf);
	buf[7] = 1;
	assert_int_equal(decode(buf, n, &back), -EBADMSG);
	/* grants of nothing and of more than a chunk */
	m = (struct fp_message){.type = FP_GRANT, .grant = {.length_bytes = 0}};
	n = fp_encode(&m, buf);
	assert_int_equal(decode(buf, n, &back), -EBADMSG);
	m.grant.length_bytes = FP_CHUNK_BYTES + 1;
	n = fp_encode(&m, buf);
	assert_int_equal(decode(buf, n, &back), -EBADMSG);
	/* a text that is longer than its message, or than a text may be */
	memset(buf, 0, sizeof(buf));
	buf[0] = FP_RESULT;
	buf[3] = 9;
	memset(buf + 8, 't', 600);
	assert_int_equal(decode(buf, 16, &back), -EBADMSG);
	buf[2] = (FP_TEXT_MAX + 1) >> 8;
	buf[3] = (FP_TEXT_MAX + 1) & 0xff;
	assert_int_equal(decode(buf, 8 + FP_TEXT_MAX + 1, &back), -EBADMSG);
}

static void private_data_of_connect(void **state)
{
	static const uint8_t put[FP_CONNECT_BYTES] = {'X', 'F', 'R', 'F', 1, 2, 0, 1};
	const struct fp_connect c = {.operation = FP_PUT, .flags = FP_FLAG_INVALIDATE};
	struct fp_connect back;
	uint8_t buf[256] = {0};

	(void)state;
	assert_int_equal(fp_encode_connect(&c, buf), sizeof(put));
	assert_memory_equal(buf, put, sizeof(put));
	assert_int_equal(fp_decode_connect(buf, 8, &back), 0);
	assert_int_equal(back.operation, FP_PUT);
	assert_int_equal(back.flags, FP_FLAG_INVALIDATE);
	/* Devices pad with zeros, and with nothing else. */
	assert_int_equal(fp_decode_connect(buf, 196, &back), 0);
	buf[100] = 1;
	assert_int_equal(fp_decode_connect(buf, 196, &back), -EBADMSG);
	for (size_t n = 0; n < 8; n++)
		assert_int_equal(fp_decode_connect(buf, n, &back), -EBADMSG);
	buf[5] = 3;
	assert_int_equal(fp_decode_connect(buf, 8, &back), -EBADMSG);
	buf[5] = 1;
	buf[6] = 0x80;
	assert_int_equal(fp_decode_connect(buf, 8, &back), -EBADMSG);
	buf[6] = 0;
	buf[4] = 2;
	assert_int_equal(fp_decode_connect(buf, 8, &back), -EPROTONOSUPPORT);
	buf[0] = 'Y';
	assert_int_equal(fp_decode_connect(buf, 8, &back), -EBADMSG);
}

static void private_data_of_reject(void **state)
{
	static const uint8_t bytes[14] = {'X', 'F', 'R', 'F', 1, 0, 0, 2, 0, 0, 0, 30, 'n', 'o'};
	struct fp_reject r = {.error = EROFS, .text = "no"}, back;
	uint8_t buf[256] = {0};
	size_t n;

	(void)state;
	assert_int_equal(fp_encode_reject(&r, buf), sizeof(bytes));
	assert_memory_equal(buf, bytes, sizeof(bytes));
	assert_int_equal(fp_decode_reject(buf, 14, &back), 0);
	assert_string_equal(back.text, "no");
	assert_int_equal(fp_decode_reject(buf, 148, &back), 0);
	assert_int_equal(fp_decode_reject(buf, 13, &back), -EBADMSG);
	buf[12] = 0;
	assert_int_equal(fp_decode_reject(buf, 14, &back), -EBADMSG);
	memset(r.text, 'x', FP_REJECT_TEXT_MAX);
	n = fp_encode_reject(&r, buf);
	/* The portable limit of a reject's private data. */
	assert_true(n <= 148);
	assert_int_equal(fp_decode_reject(buf, n, &back), 0);
	assert_string_equal(back.text, r.text);
}

static void chunks_of_a_file(void **state)
{
	(void)state;
	assert_int_equal(fp_chunks(0), 0);
	assert_int_equal(fp_chunks(1), 1);
	assert_int_equal(fp_chunk_bytes(1, 0), 1);
	assert_int_equal(fp_chunks(FP_CHUNK_BYTES), 1);
	assert_int_equal(fp_chunk_bytes(FP_CHUNK_BYTES, 0), FP_CHUNK_BYTES);
	assert_int_equal(fp_chunks(FP_CHUNK_BYTES + 1), 2);
	assert_int_equal(fp_chunk_bytes(FP_CHUNK_BYTES + 1, 0), FP_CHUNK_BYTES);
	assert_int_equal(fp_chunk_bytes(FP_CHUNK_BYTES + 1, 1), 1);
	assert_int_equal(fp_chunks(FP_SIZE_MAX), UINT32_MAX);
	assert_int_equal(fp_chunk_bytes(FP_SIZE_MAX, UINT32_MAX - 1), FP_CHUNK_BYTES);
}

static void checksum(void **state)
{
	uint8_t zeros[32] = {0};

	(void)state;
	assert_int_equal(fp_crc32c("123456789", 9), 0xe3069283);
	/* RFC 3720, B.4 */
	assert_int_equal(fp_crc32c(zeros, 32), 0x8a9136aa);
	assert_int_equal(fp_crc32c("", 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_of_each_message),
		cmocka_unit_test(round_trips),
		cmocka_unit_test(lengths_and_reserved_bytes),
		cmocka_unit_test(values_out_of_range),
		cmocka_unit_test(private_data_of_connect),
		cmocka_unit_test(private_data_of_reject),
		cmocka_unit_test(chunks_of_a_file),
		cmocka_unit_test(checksum),
	};

	return cmocka_run_group_tests_name("file_proto", tests, NULL, NULL);
}
