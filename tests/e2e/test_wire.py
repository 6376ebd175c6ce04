# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the daemon's own iWARP moves over TCP: every kind of message, both ways, as the side that connects
and as the side that accepts, against a peer that shares no code with it."""
import socket
import threading

import iwarp
import raw
from harness import check, equal, same_bytes, status_is, test
from iwarp import (READ_REQUEST, READ_RESPONSE, SEND_INV, SEND_SE, SEND_SE_INV, SENDS, TERMINATE,
                   WRITE as W_WRITE)
from iwarp_peer import Silence
from raw import E, READ, REVOKE, SEND, WRITE
from wire_rig import HOSTS, NO_CRC, WITH_CRC, active, passive, pattern, sent_to

KIB, MIB = 1 << 10, 1 << 20
STAG, TO = 0x00c0ffee, 0x7f0000001003  # what the peer says its memory is
GUARD = 64


def daemon_moves(w, size, seed):
    """The daemon's client does one of each."""
    data = pattern(seed, size)
    memory = w.s.buffer(size + 2 * GUARD, content=bytes(GUARD) + data + bytes(GUARD))
    here, there = [memory.segment(GUARD, size)], [(TO, size, STAG)]
    cookie = w.s.start(WRITE, w.e, here, there)
    heard = w.collect_write(size)
    equal(list(heard), [STAG], 'STags')
    equal(heard[STAG][0], TO, 'TO')
    same_bytes(heard[STAG][1], data, 'what was written')
    status_is(w.s.finish(cookie), 0)

    for flags, op in ((0, iwarp.SEND), (raw.F_SOLICITED, SEND_SE), (raw.F_INVALIDATE, SEND_INV),
                      (raw.F_INVALIDATE | raw.F_SOLICITED, SEND_SE_INV)):
        key = 0xabcdef12 if flags & raw.F_INVALIDATE else 0
        cookie = w.s.start(SEND, w.e, here, flags=flags, key=key)
        message = w.p.hear_send(op)
        equal(message.stag, key, 'the STag to invalidate')
        same_bytes(message.data, data, 'what was sent')
        done = w.s.finish(cookie)
        status_is(done, 0)
        equal(done.byte_len, size, 'byte_len')

    answer = pattern(seed + 1, size)
    cookie = w.s.start(READ, w.e, here, there)
    w.serve_reads(STAG, TO, answer)
    status_is(w.s.finish(cookie), 0)
    same_bytes(memory.map, bytes(GUARD) + answer + bytes(GUARD), 'what was read, and around it')
    memory.remove()


def peer_moves(w, size, seed):
    """The peer does one of each."""
    data = pattern(seed, size)
    memory = w.s.buffer(size + 2 * GUARD)
    token = w.s.grant(w.e, memory.segment(GUARD, size), read=False)
    note = w.s.buffer(4096)
    cookie = w.recv(note.segment())
    # The message behind the WRITE says that it is in place.
    w.p.send_bytes(w.p.stream_write(token.rkey, token.address, data) + w.p.stream_message(b'done'))
    status_is(w.s.finish(cookie), 0)
    same_bytes(memory.map, bytes(GUARD) + data + bytes(GUARD), 'what was written, and around it')
    w.s.do(REVOKE, w.e, key=token.grant)

    token = w.s.grant(w.e, memory.segment(GUARD, size))
    same_bytes(w.read(size, token.rkey, token.address), data, 'what was read')
    part = size // 3
    same_bytes(w.read(size - part, token.rkey, token.address + part), data[part:], 'a part of it')

    target = w.s.buffer(size + 2 * GUARD)
    for op in SENDS:
        target.map[:] = bytes(target.size)
        granted = w.s.grant(w.e, memory.segment(GUARD, size))
        cookie = w.recv(target.segment(GUARD, size))
        w.p.message(data, op, granted.rkey if op in iwarp.INVALIDATES else 0)
        got = w.s.finish(cookie)
        status_is(got, 0)
        equal(got.byte_len, size, 'byte_len')
        equal(bool(got.flags & raw.CF_INVALIDATED), op in iwarp.INVALIDATES, 'a grant was ended')
        if op in iwarp.INVALIDATES:
            equal(got.grant, granted.grant, 'the grant that was ended')
            status_is(w.s.run(REVOKE, w.e, key=granted.grant), E.GRANT_ENDED)
        else:
            w.s.do(REVOKE, w.e, key=granted.grant)
        same_bytes(target.map, bytes(GUARD) + data + bytes(GUARD), 'what was sent, and around it')
    w.s.do(REVOKE, w.e, key=token.grant)
    for b in (memory, note, target):
        b.remove()


def every_kind(t, sizes, hosts=HOSTS, **how):
    s = t.session()
    for host in hosts:
        for make in (passive, active):
            w = make(t, s, host=host, **how)
            for seed, size in enumerate(sizes):
                daemon_moves(w, size, seed)
                peer_moves(w, size, seed)
            s.call('disconnect', endpoint=w.e)
            equal(w.p.hear(None).end, 'FIN', 'the end')
            s.call('endpoint_free', endpoint=w.e)


SMALL = (1, 2, 3, 4, 5, 1399, 1400, 1401, 4 * KIB)


@test(config=NO_CRC)
def every_kind_without_a_crc(t):
    every_kind(t, SMALL + (64 * KIB, 64 * KIB + 1), crc=False)


@test(config=WITH_CRC)
def every_kind_with_a_crc(t):
    every_kind(t, SMALL + (64 * KIB + 1,))


@test(config=NO_CRC)
def a_mebibyte_of_every_kind(t):
    every_kind(t, (MIB,), hosts=HOSTS[:1], payload=60000)


@test(config=WITH_CRC)
def a_mebibyte_of_every_kind_with_a_crc(t):
    every_kind(t, (MIB,), hosts=HOSTS[:1], payload=8 * KIB)


@test(config=NO_CRC)
def the_peer_alone_asks_for_a_crc(t):
    every_kind(t, (1, 5000), hosts=HOSTS[:1], crc=True)


@test(config=NO_CRC)
def without_a_crc_its_field_means_nothing(t):
    w = passive(t, crc=False)
    equal(w.p.crc, False, 'CRC')
    memory = w.buffer(4096)
    cookie = w.recv(memory.segment())
    w.p.send(iwarp.untagged(iwarp.SEND, w.p.next_msn(0), b'whatever'), crc_xor=0x12345678)
    status_is(w.s.finish(cookie), 0)
    same_bytes(memory.map[:8], b'whatever', 'the message')


@test()
def zero_lengths(t):
    for make in (passive, active):
        w = make(t)
        memory = w.buffer(4096, seed=1)
        cookie = w.recv(memory.segment(0, 0))
        w.p.message(b'')
        got = w.s.finish(cookie)
        status_is(got, 0)
        equal(got.byte_len, 0, 'byte_len')
        w.s.start(SEND, w.e)
        equal(w.p.hear_send().data, b'', 'an empty message')
        # An STag of nothing, where nothing is touched, is not looked at (RFC 5040 5.2.1, 5.3).
        w.p.write(0, 0, b'')
        w.p.write(0xdeadbeef, (1 << 64) - 1, b'')
        equal(w.read(0, 0xdeadbeef, 1 << 63), b'', 'a READ of nothing')
        w.round_trip(memory)


@test()
def placed_is_known_by_a_read_of_nothing(t):
    """A WRITE is not acknowledged; that a READ behind it is answered says that it has been processed."""
    w = active(t)
    memory = w.buffer(4096, seed=1)
    cookie = w.s.start(WRITE, w.e, [memory.segment()], [(TO, 4096, STAG)], flags=raw.F_PLACED)
    same_bytes(w.collect_write(4096)[STAG][1], pattern(1, 4096), 'what was written')
    request = w.p.hear(READ_REQUEST).request
    equal(request.length, 0, 'length of the READ')
    w.s.pump(0.2)
    equal(cookie in w.s.completions, False, 'it completed before the answer')
    w.p.respond(request, b'')
    status_is(w.s.finish(cookie), 0)


@test()
def no_daemon_memory_is_named_on_the_wire(t):
    """Sinks and sources have no remote rights: the STag of a READ's sink opens nothing, and neither it nor the
    TO is an address of the daemon's."""
    w = active(t)
    memory = w.buffer(4096, seed=1)
    maps = []
    with open('/proc/%d/maps' % t.daemon.pid, encoding='ascii') as f:
        for line in f:
            low, high = (int(x, 16) for x in line.split()[0].split('-'))
            maps.append((low, high))
    cookie = w.s.start(READ, w.e, [memory.segment(0, 100)], [(TO, 100, STAG)])
    request = w.p.hear(READ_REQUEST).request
    check(not any(low <= request.sink_to < high for low, high in maps), 'the TO of a sink is an address')
    w.p.write(request.sink_stag, request.sink_to, b'x' * 100)
    equal(w.p.hear_terminate()[:2], (1, 1), 'layer and type of the Terminate')
    check(w.s.finish(cookie).status != 0, 'the READ succeeded')
    same_bytes(memory.map, pattern(1, 4096), 'memory')


@test()
def many_segments_of_the_mss(t):
    """Without flag 08 an FPDU fits a TCP segment, whatever its size, and the peer's are taken at any size."""
    for make in (passive, active):
        for mss in (536, 1460, 9000):
            w = make(t, mss=mss, payload=max(mss - 60, 16))
            size = 100 * KIB + 7
            daemon_moves(w, size, mss)
            peer_moves(w, size, mss)
            check(w.p.in_.largest <= mss, 'an FPDU of %d bytes, the MSS is %d' % (w.p.in_.largest, mss))
            mss_now = w.p.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
            check(w.p.in_.segments[W_WRITE] >= size // mss_now, 'segments of a WRITE')


@test()
def long_fpdus_where_both_agree(t):
    for make, how in ((passive, {'long': True}), (active, {'long': True})):
        w = make(t, mss=1460, **how)
        equal((w.p.request.long, w.p.reply.long), (True, True), 'flag 08')
        w.p.payload = 65535 - 18
        w.p.payload -= w.p.payload % 4
        daemon_moves(w, 200 * KIB + 1, 1)
        peer_moves(w, 200 * KIB + 1, 2)
        check(1460 < w.p.in_.largest <= 65536 + 8, 'the largest FPDU has %d bytes' % w.p.in_.largest)


@test(config=WITH_CRC)
def a_byte_at_a_time(t):
    for make in (passive, active):
        w = make(t, payload=100)
        data = pattern(3, 450)
        memory, target = w.buffer(1000), w.buffer(1000)
        token = w.s.grant(w.e, memory.segment(0, 450), read=False)
        source = w.s.grant(w.e, memory.segment(0, 450))
        cookie = w.recv(target.segment())
        p = w.p
        p.send_bytes(p.stream_write(token.rkey, token.address, data) + p.stream_message(data) +
                     p.stream_read(450, source.rkey, source.address), 1)
        status_is(w.s.finish(cookie), 0)
        same_bytes(memory.map[:450], data, 'what was written')
        same_bytes(target.map[:450], data, 'what was sent')
        same_bytes(p.hear(READ_RESPONSE).data, data, 'what was read')
        cookie = w.s.start(READ, w.e, [target.segment(0, 450)], [(TO, 450, STAG)])
        request = p.hear(READ_REQUEST).request
        p.send_bytes(p.stream_write(request.sink_stag, request.sink_to, data[::-1], READ_RESPONSE), 1)
        status_is(w.s.finish(cookie), 0)
        same_bytes(target.map[:450], data[::-1], 'what was read')


@test(config=WITH_CRC, timeout=90)
def cut_at_every_byte(t):
    """Two packets, with every length of the first."""
    w = passive(t, payload=24)
    memory = w.buffer(4096)
    token = w.s.grant(w.e, memory.segment(0, 61), read=False)
    target = w.buffer(100)
    length = None
    cut = 1
    while length is None or cut < length:
        data = pattern(cut, 61)
        cookie = w.recv(target.segment())
        stream = w.p.stream_write(token.rkey, token.address, data) + w.p.stream_message(data)
        length = len(stream)
        w.p.send_bytes(stream[:cut])
        w.s.query('devices')  # the daemon has had a turn
        w.p.send_bytes(stream[cut:])
        status_is(w.s.finish(cookie), 0)
        same_bytes(memory.map[:61], data, 'what was written, cut at %d' % cut)
        same_bytes(target.map[:61], data, 'what was sent, cut at %d' % cut)
        cut += 1
    t.note('cut at %d places' % (cut - 1))


@test()
def many_messages_in_one_packet(t):
    w = passive(t)
    memory = w.buffer(64 * KIB, seed=5)
    target = w.buffer(64 * KIB)
    token = w.s.grant(w.e, memory.segment())
    n = 50
    cookies = [w.recv(target.segment(100 * i, 100)) for i in range(n)]
    stream = b''
    for i in range(n):
        stream += w.p.stream_message(pattern(i, i))
        if i < 16:
            stream += w.p.stream_read(1000 + i, token.rkey, token.address + i)
    w.p.send_bytes(stream)
    for i, cookie in enumerate(cookies):
        got = w.s.finish(cookie)
        equal((got.status, got.byte_len), (0, i), 'a RECV')
        same_bytes(target.map[100 * i:100 * i + i], pattern(i, i), 'message %d' % i)
    for i in range(16):
        same_bytes(w.p.hear(READ_RESPONSE).data, memory.map[i:1000 + 2 * i], 'READ %d' % i)


# ---- READs under way

@test()
def reads_up_to_what_was_agreed(t):
    """As the responder to READs: as many as it said it would take."""
    for make in (passive, active):
        w = make(t)
        ird = w.p.reply.ird if make is passive else w.p.request.ird
        check(ird >= 1, 'IRD is %d' % ird)
        memory = w.buffer(MIB, seed=1)
        token = w.s.grant(w.e, memory.segment())
        for _ in range(3):
            w.p.send_bytes(b''.join(w.p.stream_read(30000 + i, token.rkey, token.address + i)
                                    for i in range(ird)))
            for i in range(ird):
                same_bytes(w.p.hear(READ_RESPONSE).data, memory.map[i:30000 + 2 * i], 'READ %d of %d' % (i, ird))


@test()
def no_more_reads_than_the_peer_takes(t):
    for ird in (1, 3):
        for make, how in ((active, {'ird': ird}), (passive, {'ird': ird})):
            w = make(t, **how)
            memory = w.buffer(64 * KIB)
            cookies = [w.s.start(READ, w.e, [memory.segment(1000 * i, 1000)], [(TO + 1000 * i, 1000, STAG)])
                       for i in range(8)]
            waiting = [w.p.hear(READ_REQUEST).request for _ in range(ird)]
            w.p.silent(0.2)
            for i, cookie in enumerate(cookies):
                equal(waiting[0].source_to, TO + 1000 * i, 'the source of READ %d' % i)
                w.p.respond(waiting.pop(0), pattern(i, 1000))
                status_is(w.s.finish(cookie), 0)
                same_bytes(memory.map[1000 * i:1000 * i + 1000], pattern(i, 1000), 'READ %d' % i)
                if i + ird < len(cookies):
                    waiting.append(w.p.hear(READ_REQUEST).request)


@test()
def a_peer_that_takes_no_reads(t):
    w = active(t, ird=0)
    memory = w.buffer(4096, seed=1)
    done = w.s.run(READ, w.e, [memory.segment(0, 100)], [(TO, 100, STAG)])
    check(done.status != 0, 'a READ succeeded that could not be asked for')
    status_is(done, done.status)
    same_bytes(memory.map, pattern(1, 4096), 'memory')


@test()
def reads_do_not_hold_up_what_the_peer_sends(t):
    """While a READ of the daemon's waits for its answer, all else goes on."""
    w = active(t)
    memory = w.buffer(64 * KIB, seed=1)
    token = w.s.grant(w.e, memory.segment(8192, 100))
    cookie = w.s.start(READ, w.e, [memory.segment(0, 4096)], [(TO, 4096, STAG)])
    request = w.p.hear(READ_REQUEST).request
    target = w.buffer(4096)
    recv = w.recv(target.segment())
    w.p.message(b'meanwhile')
    status_is(w.s.finish(recv), 0)
    same_bytes(w.read(100, token.rkey, token.address), pattern(1, 64 * KIB)[8192:8292], 'a READ of the peer')
    w.s.start(SEND, w.e, [memory.segment(8192, 10)])
    w.p.hear_send()
    w.p.respond(request, bytes(4096))
    status_is(w.s.finish(cookie), 0)


@test()
def a_fence_waits_for_reads(t):
    w = active(t)
    memory = w.buffer(64 * KIB, seed=1)
    cookies = w.s.submit(
        w.s.request(READ, w.e, [memory.segment(0, 100)], [(TO, 100, STAG)]),
        w.s.request(SEND, w.e, [memory.segment(0, 100)], flags=raw.F_FENCE))
    request = w.p.hear(READ_REQUEST).request
    w.p.silent(0.2)
    w.p.respond(request, pattern(7, 100))
    same_bytes(w.p.hear_send().data, pattern(7, 100), 'what was read, and sent on')
    for cookie in cookies:
        status_is(w.s.finish(cookie), 0)


# ---- peers that do not keep up

@test(timeout=90)
def a_peer_that_does_not_read(t):
    """The daemon stops, holds no more for it, and serves others; then all of it comes."""
    s = t.session()
    w = active(t, s, receive_bytes=64 * KIB)
    other = active(t, s)
    small = s.buffer(4096)
    size, n = MIB, 24
    memory = s.buffer(size, content=pattern(1, size))
    before = t.daemon.rss_bytes()
    cookies = [s.start(WRITE, w.e, [memory.segment()], [(TO, size, STAG)]) for _ in range(n)]
    cookies.append(s.start(SEND, w.e, [memory.segment(0, 5)]))
    for _ in range(50):
        other.round_trip(small)
    s.pump()
    check(cookies[-1] not in s.completions, '%d MiB are under way to a peer that reads nothing' % n)
    check(t.daemon.rss_bytes() - before < 8 * MIB or t.build.sanitized, 'the daemon keeps what it cannot send')
    shall = pattern(1, size)
    for _ in range(n):
        same_bytes(w.collect_write(size)[STAG][1], shall, 'a WRITE')
    same_bytes(w.p.hear_send().data, shall[:5], 'the message')
    for cookie in cookies:
        status_is(s.finish(cookie), 0)


@test(timeout=90)
def reads_of_a_peer_that_does_not_read(t):
    """As many as it may have: they wait; others are served. One more is one too many."""
    s = t.session()
    w = passive(t, s, receive_bytes=64 * KIB)
    other = active(t, s)
    small = s.buffer(4096)
    memory = s.buffer(16 * MIB, content=pattern(1, 16 * MIB))
    token = s.grant(w.e, memory.segment())
    ird = w.p.reply.ird
    for _ in range(ird):
        w.p.read(16 * MIB, token.rkey, token.address)
    for _ in range(50):
        other.round_trip(small)
    w.p.read(16 * MIB, token.rkey, token.address)
    # RFC 5041 7.1: no buffer is available on queue 1. The data before it may be cut.
    status_is(w.disconnected(), E.PEER_PROTOCOL)
    seen = None
    with sent_to(w.p, Silence, iwarp.Wrong):
        while seen is None or seen.op is not None:
            seen = w.p.hear()
            if seen.op == TERMINATE:
                equal(seen.terminate[:3], (1, 2, 2), 'the Terminate')
    other.round_trip(small)


@test(timeout=90)
def both_sides_send_all_at_once(t):
    """Neither waits for the other to read first."""
    w = active(t, payload=32 * KIB, crc=False)
    size, n = MIB, 20
    memory, sink = w.buffer(size, seed=1), w.buffer(size)
    token = w.s.grant(w.e, sink.segment(), read=False)
    data = pattern(2, size)
    stream = w.p.stream_write(token.rkey, token.address, data) * n
    cookies = [w.s.start(WRITE, w.e, [memory.segment()], [(TO, size, STAG)]) for _ in range(n)]
    thread = threading.Thread(target=w.p.sock.sendall, args=(stream,), daemon=True)
    w.p.sock.settimeout(60)
    thread.start()
    thread.join(60)
    check(not thread.is_alive(), 'the daemon takes nothing while it cannot send')
    for _ in range(n):
        same_bytes(w.collect_write(size)[STAG][1], pattern(1, size), 'a WRITE')
    for cookie in cookies:
        status_is(w.s.finish(cookie), 0)
    target = w.buffer(100)
    w.round_trip(target)
    same_bytes(sink.map, data, 'what the peer wrote')


@test()
def a_message_waits_for_its_recv(t):
    """For a while, and then what comes behind it is taken too."""
    # Half a second. A machine that stalls for longer shows nothing: then once more.
    for _ in range(20):
        w = passive(t)
        target = w.buffer(4096)
        w.p.send_bytes(w.p.stream_message(b'first') + w.p.stream_message(b'second'))
        w.s.query('devices')
        got = w.s.finish(w.recv(target.segment(0, 100)))
        if got.status == 0:
            break
        status_is(got, E.FLUSHED, -107)
    status_is(got, 0)
    status_is(w.s.finish(w.recv(target.segment(100, 100))), 0)
    for word, at in ((b'first', 0), (b'second', 100)):
        same_bytes(target.map[at:at + len(word)], word, 'a message')


# ---- ends

@test()
def peers_that_vanish(t):
    s = t.session()
    memory = s.buffer(4096, content=pattern(1, 4096))

    def fin(p, _):
        p.close()

    def reset(p, _):
        p.reset()

    def fin_within(p, n):
        p.send_bytes(p.stream_message(b'x' * 50)[:n])
        p.close()

    def reset_within(p, n):
        p.send_bytes(p.stream_message(b'x' * 50)[:n])
        p.reset()

    def half(p, _):
        p.sock.shutdown(socket.SHUT_WR)

    def within_a_message(p, _):
        p.send(iwarp.untagged(iwarp.SEND, 1, b'x' * 50, last=False))
        p.close()

    for make in (passive, active):
        for act, n in ((fin, 0), (reset, 0), (half, 0), (within_a_message, 0),
                       *((a, n) for a in (fin_within, reset_within) for n in (1, 2, 3, 19, 20, 45, 70, 75))):
            w = make(t, s)
            recv = w.recv(memory.segment(0, 2000))
            read = s.start(READ, w.e, [memory.segment(2000, 100)], [(TO, 100, STAG)])
            w.p.hear(READ_REQUEST)
            act(w.p, n)
            status_is(w.disconnected(), E.PEER_GONE)
            status_is(s.finish(recv), E.FLUSHED, E.PEER_GONE)
            status_is(s.finish(read), E.FLUSHED, E.PEER_GONE, E.REMOTE_FAULT)
            same_bytes(memory.map[2000:], pattern(1, 4096)[2000:], 'the sink of the READ, %s' % act.__name__)
            if act is half:
                equal(w.p.hear(None, TERMINATE).op in (None, TERMINATE), True, 'the other half')
            s.call('endpoint_free', endpoint=w.e)


@test()
def an_end_in_order_loses_nothing(t):
    """What completed before a disconnect arrives, all of it, and then a FIN."""
    for make in (passive, active):
        w = make(t)
        memory = w.buffer(MIB, seed=1)
        cookies = [w.s.start(SEND, w.e, [memory.segment(0, 200000 + i)]) for i in range(5)]
        for i, cookie in enumerate(cookies):
            same_bytes(w.p.hear_send().data, pattern(1, MIB)[:200000 + i], 'message %d' % i)
            status_is(w.s.finish(cookie), 0)
        token = w.s.grant(w.e, memory.segment())
        w.s.start(SEND, w.e, [memory.segment(0, 9)])
        w.s.do(SEND, w.e, [memory.segment(0, 10)])
        w.s.call('disconnect', endpoint=w.e)
        equal((len(w.p.hear_send().data), len(w.p.hear_send().data)), (9, 10), 'the last messages')
        equal(w.p.hear(None).end, 'FIN', 'the end')
        # What comes after that is not placed.
        with sent_to(w.p):
            w.p.write(token.rkey, token.address, b'too late')
        status_is(w.disconnected(), 0)
        same_bytes(memory.map, pattern(1, MIB), 'memory')


@test()
def an_endpoint_that_is_freed_ends_its_stream(t):
    for how in ('free', 'session'):
        s = t.session()
        w = passive(t, s)
        memory = s.buffer(MIB, content=pattern(1, MIB))
        token = s.grant(w.e, memory.segment(), read=False)
        if how == 'free':
            s.call('endpoint_free', endpoint=w.e)
        else:
            s.close()
        check(w.p.hear(None).end in ('FIN', 'reset'), 'the end')
        with sent_to(w.p):
            w.p.write(token.rkey, token.address, b'x' * 100000)
        if how == 'free':
            same_bytes(memory.map, pattern(1, MIB), 'memory')


# What a client hears of each Terminate: as the RFC has it, and as siw has it (its first byte's halves change
# places). READ fails by protection, SEND by what there was for it.
OTHER = (E.PEER_PROTOCOL, E.REMOTE_FAULT, E.PEER_GONE)
TERMINATES = (
    (0, 1, 0x00, False, (E.REMOTE_ACCESS,)), (0, 1, 0x01, False, (E.REMOTE_ACCESS,)),
    (0, 1, 0x02, False, (E.REMOTE_ACCESS,)), (0, 1, 0x03, False, (E.REMOTE_ACCESS,)),
    (0, 1, 0x04, False, (E.REMOTE_ACCESS,)), (0, 1, 0xff, False, (E.REMOTE_ACCESS,)),
    (1, 1, 0x00, False, (E.REMOTE_ACCESS,)), (1, 1, 0x01, False, (E.REMOTE_ACCESS,)),
    (1, 1, 0x02, False, (E.REMOTE_ACCESS,)), (1, 1, 0x00, True, (E.REMOTE_ACCESS,)),
    (0, 1, 0x00, True, (E.REMOTE_ACCESS,)),
    (1, 2, 0x02, False, (E.RECEIVER_NOT_READY,)), (1, 2, 0x02, True, (E.RECEIVER_NOT_READY,)),
    (1, 2, 0x05, False, (E.MESSAGE_TOO_LONG,)),
    (0, 2, 0x05, False, OTHER), (0, 2, 0x07, True, OTHER), (2, 0, 0x02, False, OTHER),
    (0, 0, 0x00, False, OTHER), (15, 15, 0xff, False, OTHER),
)


@test()
def terminates_are_understood(t):
    s = t.session()
    memory = s.buffer(4096, content=pattern(1, 4096))
    for layer, type_, code, swapped, reasons in TERMINATES:
        w = active(t, s)
        token = s.grant(w.e, memory.segment(), read=False)
        read = s.start(READ, w.e, [memory.segment(0, 100)], [(TO, 100, STAG)])
        w.p.hear(READ_REQUEST)
        # Behind a Terminate nothing is placed.
        p = w.p
        ulpdu = iwarp.untagged(TERMINATE, p.next_msn(2), iwarp.terminate(layer, type_, code, swapped=swapped))
        p.send_bytes(p.fpdu(ulpdu) + p.stream_write(token.rkey, token.address, b'after the Terminate'))
        what = 'Terminate %d/%d/%02x%s' % (layer, type_, code, ' of siw' if swapped else '')
        ended = w.disconnected()
        done = s.finish(read)
        check(ended.status in reasons and done.status in (*reasons, E.FLUSHED, E.PEER_GONE),
              '%s: disconnected with %s (%s), the READ with %s' % (
                  what, raw.status_name(ended.status), ended.text, raw.status_name(done.status)))
        # RFC 5040 7.1: a Terminate is not answered by one.
        with sent_to(p):
            equal(p.hear(None).op, None, 'what was heard after a Terminate')
        same_bytes(memory.map, pattern(1, 4096), 'memory after ' + what)
        s.call('endpoint_free', endpoint=w.e)


@test()
def terminates_of_any_shape(t):
    s = t.session()
    small = s.buffer(4096)
    for body in (b'', b'\0', b'\0\0\0', b'\x11\0\xc0\0', b'\x11\0\xc0\0\0', b'\x01\0\xe0\0\0\x20' + bytes(18),
                 bytes(300), b'\xff' * 300, b'\x11\0\xc0\0' + bytes(1000)):
        w = active(t, s)
        with sent_to(w.p):
            w.p.send(iwarp.untagged(TERMINATE, 1, body))
        check(w.disconnected().status != 0, 'no reason was told')
        s.call('endpoint_free', endpoint=w.e)
    active(t, s).round_trip(small)


@test(timeout=90)
def a_stream_of_every_kind_mixed(t):
    """In one connection, both ways, all under way at once."""
    w = active(t, payload=1000, peer_to_peer=True, rtr_write=True, rtr_read=True)
    n, size = 12, 5000
    memory, sink, target = w.buffer(n * size, seed=1), w.buffer(n * size), w.buffer(n * size)
    grant_w = w.s.grant(w.e, sink.segment(), read=False)
    grant_r = w.s.grant(w.e, memory.segment())
    recvs = [w.recv(target.segment(i * size, size)) for i in range(n)]
    mine = []
    for i in range(n):
        mine += [w.s.start(WRITE, w.e, [memory.segment(i * size, size)], [(TO + i * size, size, STAG)]),
                 w.s.start(SEND, w.e, [memory.segment(i * size, 100 + i)])]
        w.p.send_bytes(w.p.stream_write(grant_w.rkey, grant_w.address + i * size, pattern(i, size)) +
                       w.p.stream_read(size, grant_r.rkey, grant_r.address + i * size) +
                       w.p.stream_message(pattern(100 + i, size - i)))
    heard = {op: [] for op in range(8)}
    while not (len(heard[READ_RESPONSE]) == n and len(heard[iwarp.SEND]) == n and
               sum(len(m.data) for m in heard[W_WRITE]) == n * size):
        message = w.p.hear()
        check(message.op is not None, 'the stream ended')
        heard[message.op].append(message)
    shall = pattern(1, n * size)
    for i in range(n):
        same_bytes(heard[READ_RESPONSE][i].data, shall[i * size:(i + 1) * size], 'READ %d' % i)
        same_bytes(heard[iwarp.SEND][i].data, shall[i * size:i * size + 100 + i], 'SEND %d' % i)
        got = w.s.finish(recvs[i])
        equal((got.status, got.byte_len), (0, size - i), 'RECV %d' % i)
        same_bytes(target.map[i * size:(i + 1) * size - i], pattern(100 + i, size - i), 'message %d' % i)
        same_bytes(sink.map[i * size:(i + 1) * size], pattern(i, size), 'WRITE %d' % i)
    same_bytes(b''.join(m.data for m in heard[W_WRITE]), shall, 'what the daemon wrote')
    for cookie in mine:
        status_is(w.s.finish(cookie), 0)
