# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The iWARP peer of these tests, against itself and against bytes that others wrote: what it says of the
daemon is worth no more than this."""
import random
import socket
import threading

import iwarp
from harness import check, equal, test
from iwarp import READ_REQUEST, READ_RESPONSE, SEND, SENDS, TERMINATE, WRITE, Mpa, ReadRequest, Wrong
from iwarp_peer import Peer


def refused(call, words):
    try:
        call()
    except Wrong as e:
        check(words in str(e), 'refused because: %s' % e)
        return
    raise AssertionError('not refused: ' + words)


@test(daemon=False)
def checksums(_):
    """RFC 3720 B.4."""
    for data, crc in ((bytes(32), 0x8a9136aa), (b'\xff' * 32, 0x62a8ab43), (bytes(range(32)), 0x46dd794e),
                      (bytes(range(31, -1, -1)), 0x113fdb5c), (b'123456789', 0xe3069283)):
        equal(iwarp.crc32c(data), crc, 'CRC of %r' % data)


@test(daemon=False)
def known_bytes(_):
    """What siw sends and takes, octet by octet."""
    request = Mpa(True, 2, enhanced=True, crc=True, ird=1, ord=2, private_data=b'hi')
    equal(request.encode(), b'MPA ID Req Frame\x50\x02\x00\x06\x00\x01\x00\x02hi', 'a request')
    reply = Mpa(False, 2, enhanced=True, ird=3, ord=4, peer_to_peer=True, rtr_write=True)
    equal(reply.encode(), b'MPA ID Rep Frame\x10\x02\x00\x04\x80\x03\x80\x04', 'a reply')
    equal(iwarp.tagged(WRITE, 0x11223344, 0x5566778899aabbcc, b'x'),
          bytes.fromhex('c140112233445566778899aabbcc') + b'x', 'a WRITE')
    equal(iwarp.untagged(SEND, 7, b'x', mo=9, last=False), bytes.fromhex('0143000000000000000000000007') +
          bytes.fromhex('00000009') + b'x', 'a SEND')
    request = ReadRequest(1, 2, 3, 4, 5)
    equal(iwarp.untagged(READ_REQUEST, 1, iwarp.read_request(request)).hex(),
          '4141' + '00000000' + '00000001' + '00000001' + '00000000' + '00000001' + '0000000000000002' +
          '00000003' + '00000004' + '0000000000000005', 'a READ request')
    equal(iwarp.fpdu(b'abc', crc=False), b'\0\3abc\0\0\0' + bytes(4), 'an FPDU')
    equal(iwarp.fpdu(b'ab')[-4:], iwarp.crc32c(b'\0\2ab').to_bytes(4, 'little'), 'its CRC')
    ulpdu = iwarp.tagged(WRITE, 1, 2, b'data')
    body = iwarp.terminate(1, 1, 0, ulpdu)
    equal(body.hex(), '1100c000' + '0012' + ulpdu[:14].hex(), 'a Terminate')
    equal(iwarp.terminate_decode(body), (1, 1, 0, (18, ulpdu[:14]), None), 'what it says')


@test(daemon=False)
def frames_of_any_shape(_):
    rng = random.Random(8)
    for _ in range(300):
        frame = Mpa(rng.random() < 0.5, 2, crc=rng.random() < 0.5, enhanced=rng.random() < 0.7,
                    long=rng.random() < 0.5, private_data=rng.randbytes(rng.randrange(100)))
        if frame.enhanced:
            frame.ird, frame.ord = rng.randrange(0x4000), rng.randrange(0x4000)
            frame.peer_to_peer, frame.rtr_send = rng.random() < 0.5, rng.random() < 0.5
            frame.rtr_write, frame.rtr_read = rng.random() < 0.5, rng.random() < 0.5
        if not frame.request:
            frame.reject = rng.random() < 0.5
        equal(iwarp.mpa_decode(frame.encode(), frame.request), frame, 'what was encoded')
        data = rng.randbytes(rng.randrange(70))
        crc = rng.random() < 0.5
        taken, size = iwarp.fpdu_take(iwarp.fpdu(data, crc) + b'behind', crc)
        equal((taken, size), (data, iwarp.fpdu_bytes(len(data))), 'an FPDU')
        for n in range(size):
            equal(iwarp.fpdu_take(iwarp.fpdu(data, crc)[:n], crc), None, 'a part of it')


class Two:
    """A peer on each end of a socket pair."""

    def __init__(self, ask=None, answer=None):
        one, other = socket.socketpair()
        self.a, self.b = Peer(one), Peer(other)
        self.a.send_request(**(ask or {'enhanced': True, 'ird': 1, 'ord': 1, 'crc': True}))
        self.b.hear_request()
        self.b.answer(**(answer or {}))
        self.a.hear_reply()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.a.close()
        self.b.close()


@test(daemon=False)
def with_itself(_):
    rng = random.Random(9)
    for revision, enhanced in ((1, False), (2, False), (2, True)):
        for crc in (False, True):
            ask = {'revision': revision, 'enhanced': enhanced, 'crc': crc, 'private_data': b'question'}
            with Two(ask, {'private_data': b'answer'}) as two:
                equal((two.b.request.private_data, two.a.reply.private_data), (b'question', b'answer'),
                      'private data')
                equal((two.a.crc, two.b.crc), (crc, crc), 'CRC')
                for size in (0, 1, 2, 3, 1400, 1401, 50000):
                    data = rng.randbytes(size)
                    two.a.write(5, 1 << 40, data)
                    written = two.b.hear(WRITE)
                    equal((written.data == data, written.stag, written.to), (True, 5, 1 << 40), 'a WRITE')
                    equal(written.segments, max(1, -(-size // 1400)), 'its segments')
                    for op in SENDS:
                        two.b.message(data, op, 77 if op in iwarp.INVALIDATES else 0)
                        equal(two.a.hear_send(op).data == data, True, 'a SEND')
                    two.a.read(size, 6, 7, sink_stag=8, sink_to=(1 << 64) - 100000)
                    asked = two.b.hear(READ_REQUEST).request
                    equal(asked, (8, (1 << 64) - 100000, size, 6, 7), 'a READ request')
                    two.b.respond(asked, data)
                    equal(two.a.hear(READ_RESPONSE).data == data, True, 'a READ response')
                two.b.terminate(1, 2, 5)
                equal(two.a.hear(TERMINATE).terminate[:3], (1, 2, 5), 'a Terminate')
                two.b.close()
                equal(two.a.hear(None).end, 'FIN', 'the end')


@test(daemon=False)
def a_byte_at_a_time(_):
    with Two() as two:
        data = random.Random(4).randbytes(3000)
        stream = two.a.stream_message(data) + two.a.stream_write(1, 2, data)
        thread = threading.Thread(target=two.a.send_bytes, args=(stream, 1), daemon=True)
        thread.start()
        equal(two.b.hear_send().data == data, True, 'a SEND')
        equal(two.b.hear(WRITE).data == data, True, 'a WRITE')
        thread.join(10)


def broken_streams():
    """What a receiver must see: words of the rule, and the ULPDUs that break it."""
    send = lambda msn, **how: iwarp.untagged(SEND, msn, b'x' * 10, **how)  # noqa: E731
    write = lambda to=0, **how: iwarp.tagged(WRITE, 1, to, b'x' * 10, **how)  # noqa: E731
    yield 'DDP version', send(1, ddp=0)
    yield 'RDMAP version', send(1, rdmap=2)
    yield 'reserved bits of DDP', send(1, flags=0x20)
    yield 'reserved bits of RDMAP', send(1, rdmap_flags=0x10)
    yield 'opcode 9', iwarp.untagged(9, 1)
    yield 'in a tagged segment', iwarp.tagged(SEND, 1, 0)
    yield 'in an untagged segment', iwarp.untagged(WRITE, 1)
    yield 'a header of', send(1)[:17]
    yield 'on queue 1', send(1, qn=1)
    yield 'STag to invalidate', send(1, stag=5)
    yield 'not MSN 1', send(2)
    yield 'not MSN 2', send(1), send(1)
    yield 'wrong MO', send(1, mo=1)
    yield 'wrong MO', send(1, last=False), send(1, mo=9)
    yield 'within', send(1, last=False), write()
    yield 'within', send(1, last=False), iwarp.untagged(READ_REQUEST, 1, bytes(28))
    yield 'does not continue', write(last=False), write(11)
    yield 'nothing was asked for', iwarp.tagged(READ_RESPONSE, 1, 0)
    yield 'READ request of 27', iwarp.untagged(READ_REQUEST, 1, bytes(27))
    yield 'more than one segment', iwarp.untagged(READ_REQUEST, 1, bytes(28), last=False)
    yield 'after a Terminate', iwarp.untagged(TERMINATE, 1, bytes(4)), send(1)
    yield 'a Terminate of 3', iwarp.untagged(TERMINATE, 1, bytes(3))


@test(daemon=False)
def it_is_strict(_):
    for words, *ulpdus in broken_streams():
        with Two() as two:
            for ulpdu in ulpdus:
                two.a.send(ulpdu)
            def hear(peer=two.b):
                for _ in range(3):
                    peer.hear()
            refused(hear, words)
    for words, how in (('the CRC is', {'crc_xor': 1}), ('the padding', {'pad': b'\1'})):
        with Two() as two:
            two.a.send(iwarp.untagged(SEND, 1, b'xyz'), **how)
            refused(two.b.hear, words)
    for words, length, sink, to, last in (('longer than', 11, 0x5eed, 0x1000, True),
                                          ('does not answer', 10, 0x5eee, 0x1000, True),
                                          ('does not answer', 10, 0x5eed, 0x1001, True),
                                          ('last flag', 9, 0x5eed, 0x1000, True),
                                          ('last flag', 10, 0x5eed, 0x1000, False)):
        with Two() as two:
            two.a.read(10, 1, 1)
            two.b.hear(READ_REQUEST)
            two.b.send(iwarp.tagged(READ_RESPONSE, sink, to, bytes(length), last=last))
            refused(two.a.hear, words)
    for words, tail in (('ends within an FPDU', iwarp.fpdu(iwarp.untagged(SEND, 1, b'x'))[:-1]),
                        ('ends within a message', iwarp.fpdu(iwarp.untagged(SEND, 1, b'x', last=False)))):
        with Two() as two:
            two.a.send_bytes(tail)
            two.a.close()
            refused(two.b.hear, words)
