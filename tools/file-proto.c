/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tools/file-proto.h"

#include <endian.h>
#include <errno.h>
#include <isa-l.h>
#include <string.h>

static const char magic[4] = {'X', 'F', 'R', 'F'};

static void put16(uint8_t *p, uint16_t v)
{
	v = htobe16(v);
	memcpy(p, &v, sizeof(v));
}

static void put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static void put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

static uint16_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return be16toh(v);
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static bool all_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

/* ------------------------------------------------------------------------- private data */

size_t fp_encode_connect(const struct fp_connect *c, uint8_t buf[static FP_CONNECT_BYTES])
{
	memcpy(buf, magic, sizeof(magic));
	buf[4] = FP_VERSION;
	buf[5] = (uint8_t)c->operation;
	put16(buf + 6, c->flags);
	return FP_CONNECT_BYTES;
}

static int check_magic(const uint8_t *p, size_t bytes, size_t least)
{
	if (bytes < sizeof(magic) + 1 || memcmp(p, magic, sizeof(magic)) != 0)
		return -EBADMSG;
	if (p[4] != FP_VERSION)
		return -EPROTONOSUPPORT;
	return bytes < least ? -EBADMSG : 0;
}

int fp_decode_connect(const void *data, size_t bytes, struct fp_connect *ret)
{
	const uint8_t *p = data;
	int r = check_magic(p, bytes, FP_CONNECT_BYTES);

	if (r)
		return r;
	ret->flags = get16(p + 6);
	if ((p[5] != FP_GET && p[5] != FP_PUT) || (ret->flags & ~FP_FLAGS_ALL) ||
	    !all_zero(p + FP_CONNECT_BYTES, bytes - FP_CONNECT_BYTES))
		return -EBADMSG;
	ret->operation = p[5];
	return 0;
}

size_t fp_encode_reject(const struct fp_reject *r, uint8_t buf[static FP_REJECT_MAX])
{
	size_t n = strnlen(r->text, FP_REJECT_TEXT_MAX);

	memcpy(buf, magic, sizeof(magic));
	buf[4] = FP_VERSION;
	buf[5] = 0;
	put16(buf + 6, (uint16_t)n);
	put32(buf + 8, r->error);
	memcpy(buf + 12, r->text, n);
	return 12 + n;
}

int fp_decode_reject(const void *data, size_t bytes, struct fp_reject *ret)
{
	const uint8_t *p = data;
	int r = check_magic(p, bytes, 12);
	size_t n;

	if (r)
		return r;
	n = get16(p + 6);
	if (p[5] || n > FP_REJECT_TEXT_MAX || n > bytes - 12 || memchr(p + 12, 0, n) ||
	    !all_zero(p + 12 + n, bytes - 12 - n))
		return -EBADMSG;
	ret->error = get32(p + 8);
	memcpy(ret->text, p + 12, n);
	ret->text[n] = '\0';
	return 0;
}

/* ------------------------------------------------------------------------- messages */

static size_t encode_path(const struct fp_path *m, uint8_t *buf)
{
	size_t n = strnlen(m->path, FP_PATH_MAX);

	put16(buf + 2, (uint16_t)n);
	put64(buf + 8, m->size_bytes);
	memcpy(buf + 16, m->path, n);
	return 16 + n;
}

static size_t encode_grant(const struct fp_grant *m, uint8_t *buf)
{
	put32(buf + 4, m->chunk);
	put64(buf + 8, m->address);
	put32(buf + 16, m->length_bytes);
	put32(buf + 20, m->rkey);
	put32(buf + 24, m->crc);
	put32(buf + 28, 0);
	return 32;
}

static size_t encode_result(const struct fp_result *m, uint8_t *buf)
{
	size_t n = strnlen(m->text, FP_TEXT_MAX);

	put16(buf + 2, (uint16_t)n);
	put32(buf + 4, m->error);
	memcpy(buf + 8, m->text, n);
	return 8 + n;
}

size_t fp_encode(const struct fp_message *m, uint8_t buf[static FP_MESSAGE_MAX])
{
	memset(buf, 0, 16);
	buf[0] = (uint8_t)m->type;
	switch (m->type) {
	case FP_PATH:
		return encode_path(&m->path, buf);
	case FP_OPENED:
		put32(buf + 4, FP_CHUNK_BYTES);
		put64(buf + 8, m->opened.size_bytes);
		return 16;
	case FP_GRANT:
		return encode_grant(&m->grant, buf);
	case FP_DONE:
		put32(buf + 4, m->done.chunk);
		put32(buf + 8, m->done.length_bytes);
		put32(buf + 12, m->done.crc);
		return 16;
	case FP_RESULT:
		return encode_result(&m->result, buf);
	}
	return 0;
}

static int decode_path(const uint8_t *p, size_t bytes, struct fp_path *ret)
{
	size_t n;

	if (bytes < 16)
		return -EBADMSG;
	n = get16(p + 2);
	if (n == 0 || n > FP_PATH_MAX || bytes != 16 + n || p[1] || get32(p + 4) ||
	    memchr(p + 16, 0, n))
		return -EBADMSG;
	ret->size_bytes = get64(p + 8);
	if (ret->size_bytes > FP_SIZE_MAX)
		return -EBADMSG;
	memcpy(ret->path, p + 16, n);
	ret->path[n] = '\0';
	return 0;
}

static int decode_opened(const uint8_t *p, size_t bytes, struct fp_opened *ret)
{
	if (bytes != 16 || !all_zero(p + 1, 3) || get32(p + 4) != FP_CHUNK_BYTES)
		return -EBADMSG;
	ret->size_bytes = get64(p + 8);
	return ret->size_bytes > FP_SIZE_MAX ? -EBADMSG : 0;
}

static int decode_grant(const uint8_t *p, size_t bytes, struct fp_grant *ret)
{
	if (bytes != 32 || !all_zero(p + 1, 3) || get32(p + 28))
		return -EBADMSG;
	ret->chunk = get32(p + 4);
	ret->address = get64(p + 8);
	ret->length_bytes = get32(p + 16);
	ret->rkey = get32(p + 20);
	ret->crc = get32(p + 24);
	return ret->length_bytes == 0 || ret->length_bytes > FP_CHUNK_BYTES ? -EBADMSG : 0;
}

static int decode_done(const uint8_t *p, size_t bytes, struct fp_done *ret)
{
	if (bytes != 16 || !all_zero(p + 1, 3))
		return -EBADMSG;
	ret->chunk = get32(p + 4);
	ret->length_bytes = get32(p + 8);
	ret->crc = get32(p + 12);
	return 0;
}

static int decode_result(const uint8_t *p, size_t bytes, struct fp_result *ret)
{
	size_t n;

	if (bytes < 8)
		return -EBADMSG;
	n = get16(p + 2);
	if (n > FP_TEXT_MAX || bytes != 8 + n || p[1] || memchr(p + 8, 0, n))
		return -EBADMSG;
	ret->error = get32(p + 4);
	memcpy(ret->text, p + 8, n);
	ret->text[n] = '\0';
	return 0;
}

int fp_decode(const void *data, size_t bytes, struct fp_message *ret)
{
	const uint8_t *p = data;

	if (bytes == 0)
		return -EBADMSG;
	switch (p[0]) {
	case FP_PATH:
		ret->type = FP_PATH;
		return decode_path(p, bytes, &ret->path);
	case FP_OPENED:
		ret->type = FP_OPENED;
		return decode_opened(p, bytes, &ret->opened);
	case FP_GRANT:
		ret->type = FP_GRANT;
		return decode_grant(p, bytes, &ret->grant);
	case FP_DONE:
		ret->type = FP_DONE;
		return decode_done(p, bytes, &ret->done);
	case FP_RESULT:
		ret->type = FP_RESULT;
		return decode_result(p, bytes, &ret->result);
	}
	return -EBADMSG;
}

/* ------------------------------------------------------------------------- chunks */

uint32_t fp_chunks(uint64_t size_bytes)
{
	return (uint32_t)(size_bytes / FP_CHUNK_BYTES + (size_bytes % FP_CHUNK_BYTES != 0));
}

uint32_t fp_chunk_bytes(uint64_t size_bytes, uint32_t chunk)
{
	uint64_t left = size_bytes - (uint64_t)chunk * FP_CHUNK_BYTES;

	return left < FP_CHUNK_BYTES ? (uint32_t)left : FP_CHUNK_BYTES;
}

uint32_t fp_crc32c(const void *data, uint32_t bytes)
{
	/*
	 * ISA-L leaves the inversions to its caller, and reads only, whatever its prototype says.
	 */
	return ~crc32_iscsi((unsigned char *)(uintptr_t)data, (int)bytes, 0xffffffffu);
}
