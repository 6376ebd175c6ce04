#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes the first inputs of fuzz_mpa, fuzz_ddp and fuzz_rx: make_iwarp_corpus.py FOLDER, below which corpora
are."""
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


# fuzz_rx: terms, steps, keys, and where its window, RECVs and sinks are.
WITH_CRC, WITH_START, LONG_PAYLOAD, ONE_READ = 1, 2, 4, 8
RAW, SEGMENT, BROKEN, RECV, WORK, CLOCK, LEAVE, CUT = range(8)
WINDOW, REGION, SINK, RANGES = 0xeeeeeeee, 0xdddddddd, 0xcccccccc, 0xbbbbbbbb
RANGES_BYTES = 4506
WINDOW_TO, WINDOW_BYTES, IOVA = 0x100000 + 4096 + 40, 1000, 0x100000
W_READ, W_WRITE, W_SEND, W_INVALIDATE, FENCE, W_BIND = 0, 1, 2, 3, 4, 7


def segment(ulpdu, broken=False):
    return struct.pack('<BH', BROKEN if broken else SEGMENT, len(ulpdu)) + ulpdu


def raw(data):
    return b''.join(bytes([RAW, len(data[i:i + 255])]) + data[i:i + 255] for i in range(0, len(data), 255))


def step(kind, value):
    return bytes([kind, value])


def work(what, units):
    return step(WORK, what | units << 3)


def fpdu(ulpdu):
    return struct.pack('>H', len(ulpdu)) + ulpdu + bytes(-(2 + len(ulpdu)) % 4) + bytes(4)


def asks(length=WINDOW_BYTES, msn=1, stag=WINDOW, to=WINDOW_TO):
    return untagged(READ_REQUEST, 1, msn) + struct.pack('>IQIIQ', 0x77, 0x5000, length, stag, to)


def write(length, stag=WINDOW, to=WINDOW_TO, last=True):
    return tagged(WRITE, last, stag, to) + b'w' * length


def response(length, serial=0, done=0, last=True):
    return tagged(READ_RESPONSE, last, SINK, serial << 32 | done) + b'r' * length


def send(length, msn=1, mo=0, last=True, op=SEND, invalidate=0):
    return untagged(op, 0, msn, mo, last, invalidate) + b's' * length


def rx():
    start = frame(b'Req', S | C, 2, b'hello', (PEER | 4, WRITE_RTR | READ_RTR | 4))
    s = segment
    everything = (s(write(500)) + s(write(500, to=WINDOW_TO + 500)) + step(RECV, 100) + step(RECV, 0) +
                  s(send(300)) + s(send(0, 2)) + s(asks()) + s(asks(0, 2)) + work(W_READ, 4) +
                  s(response(200, last=False)) + s(response(312, done=200)) + work(W_WRITE, 8) + work(W_SEND, 1))
    yield 'everything', 0, everything
    yield 'everything-crc', WITH_CRC, everything
    yield 'everything-bytewise', LONG_PAYLOAD, step(CUT, 1) + everything
    yield 'everything-crc-bytewise', WITH_CRC, step(CUT, 3) + everything
    yield 'started', WITH_START, raw(start) + s(tagged(WRITE)) + everything
    yield 'started-plain', WITH_START, raw(frame(b'Req', 0, 1)) + everything
    yield 'started-cut', WITH_START | WITH_CRC, step(CUT, 1) + raw(start) + everything
    yield 'started-too-soon', WITH_START, raw(start + fpdu(tagged(WRITE)))
    yield 'started-late', WITH_START, raw(start[:30]) + step(CLOCK, 255) + step(CLOCK, 255) + raw(start[30:])
    yield 'markers', WITH_START, raw(frame(b'Req', M, 2))
    yield 'raw', 0, raw(fpdu(write(20)) + fpdu(send(20)))
    yield 'broken-crc', WITH_CRC, s(write(100)) + s(write(100), True) + s(write(100))
    yield 'write-wrong-key', 0, s(write(10, 0x12345678)) + s(write(10))
    for terms, name in ((0, 'ranges'), (WITH_CRC, 'ranges-crc')):
        yield name, terms, (s(write(1000, RANGES, IOVA)) + step(CUT, 7) + s(write(600, RANGES, IOVA + 1100)) +
                            s(asks(RANGES_BYTES, 1, RANGES, IOVA)) + s(asks(2, 2, RANGES, IOVA + 1201)))
    yield 'write-ranges-beyond', 0, s(write(1000, RANGES, IOVA + RANGES_BYTES - 999))
    yield 'read-ranges-beyond', 0, s(asks(RANGES_BYTES, 1, RANGES, IOVA + 1))
    yield 'inline', 0, work(W_WRITE, 1) + work(W_SEND, 1) + work(W_SEND | FENCE, 1)
    yield 'write-region', 0, s(write(10, REGION, IOVA))
    yield 'write-out-of-bounds', 0, s(write(10, to=WINDOW_TO + 991))
    yield 'write-before', 0, s(write(10, to=WINDOW_TO - 1))
    yield 'write-wraps', 0, s(write(10, to=2 ** 64 - 5))
    yield 'write-dead', 0, s(write(10)) + work(W_INVALIDATE, 0) + s(write(10)) + s(write(10))
    yield 'write-rebound', 0, work(W_INVALIDATE, 0) + step(WORK, W_BIND) + s(write(10))
    yield 'no-recv', 0, s(send(10)) + s(write(10)) + step(CLOCK, 100)
    yield 'late-recv', 0, s(send(10)) + step(CLOCK, 10) + step(RECV, 100) + s(write(10))
    yield 'send-too-long', 0, step(RECV, 10) + s(send(30, last=False)) + s(send(11, mo=30))
    yield 'send-invalidate', 0, step(RECV, 10) + s(send(4, op=SEND_SE_INV, invalidate=WINDOW)) + s(write(1))
    yield 'send-invalidate-wrong', 0, step(RECV, 10) + s(send(4, op=SEND_INV, invalidate=REGION))
    yield 'send-interleaved', 0, step(RECV, 10) + s(send(4, last=False)) + s(write(9)) + s(send(4, mo=4))
    yield 'send-wrong-msn', 0, step(RECV, 10) + s(send(4, 2))
    yield 'send-wrong-mo', 0, step(RECV, 10) + s(send(4, mo=1))
    yield 'read-requests', ONE_READ, b''.join(s(asks(msn=i)) for i in range(1, 4))
    yield 'read-out-of-bounds', 0, s(asks(10)) + s(asks(1001, 2)) + s(asks(10, 3))
    yield 'read-region', 0, s(asks(10, 1, REGION, IOVA))
    yield 'read-dead', 0, work(W_INVALIDATE, 0) + s(asks())
    yield 'response-unasked', 0, s(response(10))
    yield 'response-too-long', 0, work(W_READ, 1) + s(response(129))
    yield 'response-too-short', 0, work(W_READ, 1) + s(response(127))
    yield 'response-wrong-order', 0, work(W_READ, 1) + work(W_READ, 2) + s(response(256, 1))
    yield 'responses', 0, b''.join(work(W_READ | FENCE, 1) + s(response(128, i)) for i in range(3))
    yield 'response-region', 0, work(W_READ, 1) + s(tagged(READ_RESPONSE, True, REGION, IOVA) + bytes(128))
    yield 'terminate', 0, work(W_READ, 1) + s(untagged(TERMINATE, 2) + b'\x01\x01\xe0\x00' +
                                              struct.pack('>H', 46) + asks()) + s(write(10))
    yield 'terminate-bare', 0, work(W_SEND, 1) + s(untagged(TERMINATE, 2) + b'\x12\x02\x00\x00')
    yield 'left', 0, work(W_READ, 4) + step(LEAVE, 1) + s(response(512)) + s(write(10))
    yield 'left-at-once', 0, work(W_READ, 4) + s(response(100, last=False)) + step(LEAVE, 0) + s(response(412, 0, 100))
    yield 'left-in-a-segment', 0, raw(fpdu(write(100))[:50]) + step(LEAVE, 1) + raw(fpdu(write(100))[50:])


def main():
    inputs = {'fuzz_mpa': [(name, bytes([head, cut]) + data) for name, head, cut, data in mpa()],
              'fuzz_ddp': list(ddp()),
              'fuzz_rx': [(name, bytes([terms]) + data) for name, terms, data in rx()]}
    for target, files in inputs.items():
        folder = os.path.join(sys.argv[1], target)
        os.makedirs(folder, exist_ok=True)
        for name, data in files:
            with open(os.path.join(folder, name), 'wb') as f:
                f.write(data)


main()
