/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TOOLS_FILE_PROTO_H
#define TOOLS_FILE_PROTO_H

/*
 * The file protocol of xferctl: one file over one connection.
 *
 * The side that connects (the asker) names a file and grants memory, chunk by chunk; the side that
 * listens (the server) moves the bytes: it WRITEs to the grants of a get and READs from those of a
 * put. Messages travel by SEND. All integers are big-endian; reserved fields are 0, and a receiver
 * refuses them otherwise. A message is exactly as long as its fields say.
 *
 * Private data of connect, and of the accept that answers it (8 bytes; zeros may follow, because
 * some devices pad):
 *
 *	0  4  "XFRF"
 *	4  1  version, 1
 *	5  1  operation: 1 get, 2 put. The accept repeats it.
 *	6  2  flags. Bit 0: a SEND with invalidate ends a grant of the asker. The accept repeats
 *	      what the server will make use of.
 *
 * Private data of reject:
 *
 *	0  4  "XFRF"
 *	4  1  version, 1
 *	5  1  reserved
 *	6  2  length of the text, at most 128
 *	8  4  errno (as Linux numbers them in asm-generic)
 *	12 …  text: a sentence for people, UTF-8
 *
 * A file of `size` bytes is ceil(size / 1,048,576) chunks; each is 1,048,576 bytes long but the
 * last.
 *
 *	PATH    asker, first of all
 *		0  1  1
 *		1  1  reserved
 *		2  2  length of the path, 1 to 4,096
 *		4  4  reserved
 *		8  8  put: size of the file in bytes; get: 0
 *		16 …  path, relative to the directory served, no NUL byte
 *	OPENED  server: the file is there, GRANTs may come
 *		0  1  2
 *		1  3  reserved
 *		4  4  bytes of a chunk, 1,048,576
 *		8  8  size of the file (of a put: the one that PATH gave)
 *	GRANT   asker: one chunk's memory. Chunks come in order, from 0.
 *		0  1  3
 *		1  3  reserved
 *		4  4  chunk
 *		8  8  address, as in the token
 *		16 4  length of the chunk in bytes
 *		20 4  rkey, as in the token
 *		24 4  put: CRC32c of the chunk; get: 0
 *		28 4  reserved
 *	DONE    server: the chunk's bytes have moved; in the order of the GRANTs. With flag bit 0 it
 *	        is a SEND with invalidate of that chunk's rkey.
 *		0  1  4
 *		1  3  reserved
 *		4  4  chunk
 *		8  4  length in bytes
 *		12 4  CRC32c of what was moved
 *	RESULT  either. With an errno: this side gives up; the other disconnects. With 0, once from
 *	        each: first the side that had the file (all was sent, and the file did not change
 *	        meanwhile), then the side that gets it (all was verified, and stored under its
 *	        name).
 *		0  1  5
 *		1  1  reserved
 *		2  2  length of the text, at most 504
 *		4  4  errno, 0 = success
 *		8  …  text: a sentence for people, UTF-8
 *
 * Room for messages: at most 8 chunks are granted and not DONE. Each side has 10 RECVs of 4,112
 * bytes posted before the connection is up (8 GRANTs or DONEs, PATH or OPENED, RESULT) and posts a
 * RECV anew before it sends what it answers to the message; so no SEND ever waits for a RECV,
 * however slow a side is.
 *
 * CRC32c is that of RFC 3720: "123456789" gives 0xe3069283.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FP_VERSION 1
#define FP_CHUNK_BYTES (1024u * 1024)
#define FP_DEPTH 8
#define FP_RECVS (FP_DEPTH + 2)
#define FP_PATH_MAX 4096
#define FP_MESSAGE_MAX (16 + FP_PATH_MAX)
#define FP_TEXT_MAX 504
#define FP_CONNECT_BYTES 8
#define FP_REJECT_TEXT_MAX 128
#define FP_REJECT_MAX (12 + FP_REJECT_TEXT_MAX)
/* Chunk numbers are 32 bits wide. */
#define FP_SIZE_MAX ((uint64_t)FP_CHUNK_BYTES * UINT32_MAX)

enum fp_operation { FP_GET = 1, FP_PUT = 2 };

#define FP_FLAG_INVALIDATE 0x0001u
#define FP_FLAGS_ALL FP_FLAG_INVALIDATE

struct fp_connect {
	enum fp_operation operation;
	uint16_t flags;
};

struct fp_reject {
	uint32_t error; /* errno */
	char text[FP_REJECT_TEXT_MAX + 1];
};

enum fp_type { FP_PATH = 1, FP_OPENED = 2, FP_GRANT = 3, FP_DONE = 4, FP_RESULT = 5 };

struct fp_path {
	uint64_t size_bytes;
	char path[FP_PATH_MAX + 1];
};

struct fp_opened {
	uint64_t size_bytes;
};

struct fp_grant {
	uint32_t chunk;
	uint32_t length_bytes;
	uint64_t address;
	uint32_t rkey;
	uint32_t crc;
};

struct fp_done {
	uint32_t chunk;
	uint32_t length_bytes;
	uint32_t crc;
};

struct fp_result {
	uint32_t error; /* errno */
	char text[FP_TEXT_MAX + 1];
};

struct fp_message {
	enum fp_type type;
	union {
		struct fp_path path;
		struct fp_opened opened;
		struct fp_grant grant;
		struct fp_done done;
		struct fp_result result;
	};
};

/* The number of bytes written. */
size_t fp_encode_connect(const struct fp_connect *c, uint8_t buf[static FP_CONNECT_BYTES]);
size_t fp_encode_reject(const struct fp_reject *r, uint8_t buf[static FP_REJECT_MAX]);

/*
 * A message from this program: its fields must be in range (a longer text is cut). Returns the
 * number of bytes written.
 */
size_t fp_encode(const struct fp_message *m, uint8_t buf[static FP_MESSAGE_MAX]);

/*
 * From a stranger: 0; -EPROTONOSUPPORT for another version; -EBADMSG for anything that the tables
 * above do not allow. *ret is then undefined.
 */
int fp_decode_connect(const void *data, size_t bytes, struct fp_connect *ret);
int fp_decode_reject(const void *data, size_t bytes, struct fp_reject *ret);
int fp_decode(const void *data, size_t bytes, struct fp_message *ret);

/* size_bytes at most FP_SIZE_MAX, chunk below fp_chunks(). */
uint32_t fp_chunks(uint64_t size_bytes);
uint32_t fp_chunk_bytes(uint64_t size_bytes, uint32_t chunk);

uint32_t fp_crc32c(const void *data, uint32_t bytes);

#endif
