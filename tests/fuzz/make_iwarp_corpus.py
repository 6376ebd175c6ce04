#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes the first inputs of fuzz_mpa and fuzz_ddp: make_iwarp_corpus.py FOLDER, below which corpora are."""
import os
import struct
import sys

M, C, R, S, LONG = 0x80, 0x40, 0x20, 0x10, 0x08
PEER, WRITE_RTR, READ_RTR = 0x8000, 0x8000, 0x4000
CRC, LONG_FPDUS, INITIATOR, FEW, NO_PEER, ONE_RTR = 1, 2, 4, 8, 16, 32
WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INV, SEND_SE, SEND_SE_INV, TERMINATE = range(8)


def frame(kind, flags, revision, private=b'', numbers=None):
    if numbers is not None:
        private = struct.pack('>HH', *numbers) + private
    return b'MPA ID %s Frame' % kind + struct.pack('>BBH', flags, revision, len(private)) + private


def mpa():
    request = lambda *a, **b: frame(b'Req', *a, **b)
    reply = lambda *a, **b: frame(b'Rep', *a, **b)
    both = (PEER | 32, WRITE_RTR | READ_RTR | 32)
    yield 'request-v1', 0, 255, request(C, 1, b'hello')
    yield 'request-v2', LONG_FPDUS, 0, request(S | LONG, 2, b'hello', both)
    yield 'request-siw', CRC, 3, request(S, 2, b'', (1, 1))
    yield 'request-v2-plain', 0, 7, request(0, 2, b'x' * 20)
    yield 'request-markers', 0, 7, request(M | S | C, 2, b'', both)
    yield 'request-read-rtr', FEW, 7, request(S, 2, b'', (PEER | 1, READ_RTR | 1))
    yield 'request-no-reads', 0, 7, request(S, 2, b'', (PEER, READ_RTR))
    yield 'request-unsaid', 0, 7, request(S, 2, b'', (0x3fff, 0x3fff))
    yield 'request-largest', 0, 7, request(0, 1, bytes(range(256)) * 2)
    yield 'request-too-large', 0, 7, request(0, 1, bytes(513))
    yield 'request-cut', 0, 0, request(S, 2, b'', both)[:30] + b'\0\0'
    yield 'request-and-more', CRC, 90, request(S, 2, b'ab', both) + b'\0\x0e\xc1\x40' + bytes(20)
    yield 'not-mpa', 0, 0, b'MPA ID Rex Frame\0\0\0\0'
    yield 'reply-v1', INITIATOR, 255, reply(C, 1, b'hello')
    yield 'reply-write-rtr', INITIATOR | LONG_FPDUS, 0, reply(S | LONG, 2, b'', (PEER | 32, WRITE_RTR | 32))
    yield 'reply-read-rtr', INITIATOR | ONE_RTR, 5, reply(S, 2, b'', (PEER | 32, READ_RTR | 32))
    yield 'reply-server', INITIATOR | NO_PEER, 5, reply(S | C, 2, b'data', (5, 6))
    yield 'reply-too-many', INITIATOR | FEW, 5, reply(S, 2, b'', (8, 8))
    yield 'reply-no-rtr', INITIATOR, 5, reply(S, 2, b'', (PEER | 8, 8))
    yield 'reply-markers', INITIATOR, 5, reply(S | M, 2, b'', (8, 8))
    yield 'reply-reject', INITIATOR, 5, reply(S | R, 2, b'no', (8, 8))


def tagged(op, last=True, stag=0x12345678, to=0x1000):
    return struct.pack('>BBIQ', 0x81 | (last and 0x40), 0x40 | op, stag, to)


def untagged(op, qn, msn=1, mo=0, last=True, invalidate=0):
    return struct.pack('>BBIIII', 0x01 | (last and 0x40), 0x40 | op, invalidate, qn, msn, mo)


def read_request(length=4096):
    return struct.pack('>IQIIQ', 0x00000100, 0, length, 0x12345600, 0x7000)


def ddp():
    request = untagged(READ_REQUEST, 1) + read_request()
    quoted = struct.pack('>H', len(request)) + request
    segments = {
        'write': tagged(WRITE) + b'payload',
        'write-empty': tagged(WRITE),
        'write-more': tagged(WRITE, last=False) + bytes(100),
        'response': tagged(READ_RESPONSE, to=0) + bytes(64),
        'send': untagged(SEND, 0) + b'message',
        'send-second': untagged(SEND, 0, 2, 1448, False) + bytes(60),
        'send-inv': untagged(SEND_INV, 0, invalidate=0x11223344),
        'send-se': untagged(SEND_SE, 0),
        'send-se-inv': untagged(SEND_SE_INV, 0, 7, invalidate=1),
        'request': request,
        'request-long': request + b'x',
        'request-short': request[:-1],
        'request-split': untagged(READ_REQUEST, 1, last=False) + read_request(),
        'wrong-queue': untagged(SEND, 3),
        'wrong-opcode': tagged(SEND),
        'wrong-version': b'\xc2' + tagged(WRITE)[1:],
        'terminate': untagged(TERMINATE, 2) + b'\x01\x00\xe0\x00' + quoted,
        'terminate-bare': untagged(TERMINATE, 2) + b'\x20\x02\x00\x00',
        'terminate-segment': untagged(TERMINATE, 2) + b'\x12\x03\xc0\x00' + struct.pack('>H', 40) + untagged(SEND, 0),
        'terminate-siw': untagged(TERMINATE, 2) + b'\x10\x01\x07\x00' + quoted,
        'terminate-siw-ddp': untagged(TERMINATE, 2) + b'\x11\x00\x03\x00' + struct.pack('>H', 7) + tagged(WRITE),
    }
    for name, segment in segments.items():
        yield name, struct.pack('>H', len(segment)) + segment
    yield 'body', b'\x00\x40\x12\x02\xc0\x00' + struct.pack('>H', 40) + untagged(SEND, 0)
    yield 'longer-than-said', struct.pack('>H', 20) + untagged(SEND, 0) + bytes(30)
    yield 'shorter-than-header', struct.pack('>H', 13) + tagged(WRITE)


def main():
    inputs = {'fuzz_mpa': [(name, bytes([head, cut]) + data) for name, head, cut, data in mpa()],
              'fuzz_ddp': list(ddp())}
    for target, files in inputs.items():
        folder = os.path.join(sys.argv[1], target)
        os.makedirs(folder, exist_ok=True)
        for name, data in files:
            with open(os.path.join(folder, name), 'wb') as f:
                f.write(data)


main()
