# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The start of a connection on the wire: what the daemon asks for, what it agrees to, what it refuses, and
what it bears from those who say nothing, or anything."""
import select
import socket
import time

import iwarp
import raw
from harness import check, equal, same_bytes, status_is, test, until
from iwarp import READ_RESPONSE, Mpa
from iwarp_peer import Listener, call
from raw import E, Pair, READ, SEND, settled
from wire_rig import ASK, HOSTS, NO_CRC, WITH_CRC, active, needs_tcp, passive, pattern, sent_to

ETIMEDOUT, ECONNREFUSED = -110, -111
# What a connect may end with, beside success (client.proto).
NO_CONNECTION = (ECONNREFUSED, ETIMEDOUT, E.REJECTED, E.PEER_GONE, E.PEER_PROTOCOL)


def calling(t, s, where, **fields):
    """The daemon connects: (endpoint, peer that heard the request)."""
    e = s.endpoint(where.host, where.port)
    s.call('connect', endpoint=e, **fields)
    p = t.keep(where.accept())
    p.hear_request()
    return e, p


def connected(s, e, timeout=None):
    c = s.wait_event('connected', lambda x: x.endpoint == e, timeout)
    status_is(c, 0, *NO_CONNECTION)
    return c


def ends(p, timeout=None):
    """The daemon closes, having said nothing more than a rejection. Returns the reply, or None."""
    data = bytearray()
    deadline = time.monotonic() + (timeout or p.timeout)
    with sent_to(p):
        while p._more(deadline, data):
            pass
    if not data:
        return None
    reply = iwarp.mpa_decode(bytes(data), False)
    equal(reply.reject, True, 'rejected')
    return reply


def turned_away(t, port, source=None):
    """Reset at once, perhaps before it knows that it is connected."""
    try:
        p = t.keep(call(HOSTS[0], port, source=source))
        with sent_to(p):
            p.send_request(**ASK)
        equal(ends(p, 4), None, 'what was heard')  # before the time for a request is over
    except ConnectionResetError:
        pass


def told_or_ended(s, p):
    """Either the client has been told of the peer's request, or the peer of its end. The events that came."""
    def over():
        s.pump()
        return s.events or select.select([p.sock], [], [], 0)[0]
    until(over, 'a request, or the end of the connection')
    settled(s)
    events = list(s.events)
    s.events.clear()
    return events


def still_accepts(t, s, port):
    """Afterwards, a good peer is served."""
    w = passive(t, s, port=port)
    w.round_trip(s.buffer(4096))
    s.call('endpoint_free', endpoint=w.e)
    w.p.close()


# ---- what the daemon asks for

@test()
def what_it_asks_for(t):
    needs_tcp(t)
    s = t.session()
    for host in HOSTS:
        where = t.keep(Listener(host))
        _, p = calling(t, s, where, private_data=b'a question')
        r = p.request
        equal((r.revision, r.markers, r.enhanced), (2, False, True), 'revision, markers, S')
        check(r.ird >= 1 and r.ord >= 1, 'IRD %d, ORD %d: a peer that takes it at its word cannot READ' % (r.ird, r.ord))
        equal((r.peer_to_peer, r.rtr_write, r.rtr_read), (True, True, True), 'peer-to-peer, RTR by WRITE, by READ')
        equal(r.private_data, b'a question', 'private data')
        # Nothing comes before the reply.
        p.silent(0.2)


@test(config=WITH_CRC)
def it_asks_for_a_crc(t):
    w = active(t, crc=False)
    equal((w.p.request.crc, w.p.crc), (True, True), 'CRC')
    w.round_trip(w.buffer(4096))
    equal(passive(t, crc=False).p.reply.crc, True, 'C in a reply')


@test(config=NO_CRC)
def it_asks_for_no_crc(t):
    w = active(t)
    equal((w.p.request.crc, w.p.crc), (False, False), 'CRC')
    w.round_trip(w.buffer(4096))
    # The reply alone turns it on (RFC 5044 7.1.1).
    w = active(t, crc=True)
    equal((w.p.request.crc, w.p.crc), (False, True), 'CRC')
    w.round_trip(w.buffer(4096))
    equal((passive(t, crc=False).p.reply.crc, passive(t, crc=True).p.reply.crc), (False, True), 'C in replies')


@test(config='device iwarp { ird = 3 ord = 5 }')
def its_ird_and_ord_are_configured(t):
    w = active(t)
    equal((w.p.request.ird, w.p.request.ord), (3, 5), 'IRD, ORD of a request')
    w = passive(t, ird=100, ord=100)
    equal((w.p.reply.ird, w.p.reply.ord), (3, 5), 'IRD, ORD of a reply')


# ---- what it agrees to

@test()
def ird_and_ord_are_the_lesser(t):
    """RFC 6581 9.1: the reply's ORD is at most the request's IRD; its IRD is what the request's ORD may use."""
    for ird, ord_ in ((1, 1), (5, 2), (2, 5), (0x3fff, 0x3fff), (0, 3), (3, 0), (0, 0)):
        w = passive(t, ird=ird, ord=ord_)
        check(w.p.reply.ord <= ird, 'ORD %d, and the peer takes %d' % (w.p.reply.ord, ird))
        check(min(ord_, 32) <= w.p.reply.ird <= 32, 'IRD %d, and the peer asks for %d' % (w.p.reply.ird, ord_))
        w.round_trip(w.buffer(4096))
    # A reply's IRD lowers what the daemon has under way: no_more_reads_than_the_peer_takes.
    w = active(t, ird=0x3fff, ord=0x3fff)
    w.round_trip(w.buffer(4096))


@test()
def revision_1(t):
    """Asked so, answered so: without S, IRD and ORD; private data begins at once."""
    for private in (b'', b'q', b'question', bytes(range(200))):
        w = passive(t, accept_data=b'the answer', rtr=False, revision=1, enhanced=False, private_data=private)
        equal((w.p.reply.revision, w.p.reply.enhanced), (1, False), 'revision, S of the reply')
        equal((w.request.private_data, w.p.reply.private_data), (private, b'the answer'), 'private data')
        memory = w.buffer(4096, seed=2)
        cookie = w.recv(memory.segment(0, 100))
        w.p.message(b'first')
        Pair.wait_connected(w.s, w.e)
        status_is(w.s.finish(cookie), 0)
        token = w.s.grant(w.e, memory.segment(100, 500))
        same_bytes(w.read(500, token.rkey, token.address), memory.map[100:600], 'what was read')
        cookie = w.s.start(READ, w.e, [memory.segment(1000, 50)], [(1, 50, 1)])
        w.serve_reads(1, 1, bytes(50))
        status_is(w.s.finish(cookie), 0)
        w.round_trip(memory)


@test()
def replies_of_an_older_kind(t):
    """Revision 1, or revision 2 without S: no numbers, no RTR."""
    for how in ({'revision': 1, 'enhanced': False}, {'revision': 2, 'enhanced': False}):
        w = active(t, private_data=b'q', **how)
        w.round_trip(w.buffer(4096))
    w = passive(t, rtr=False, revision=2, enhanced=False, private_data=b'old')
    equal((w.p.reply.revision, w.p.reply.enhanced, w.request.private_data), (2, False, b'old'), 'the reply')
    w.round_trip(w.buffer(4096))


@test()
def private_data_both_ways(t):
    s = t.session()
    listener, port = s.listen(HOSTS[0])
    ready = s.call('endpoint_new', host=HOSTS[0], port=port).number
    limits = s.wait_event('endpoint_ready', lambda e: e.endpoint == ready)
    for n in (0, 1, 3, 4, 100, limits.private_accept_bytes):
        data, answer = pattern(n, min(n, limits.private_connect_bytes)), pattern(n + 1, n)
        w = passive(t, s, port=port, accept_data=answer, private_data=data)
        equal((w.request.private_data, w.p.reply.private_data), (data, answer), '%d bytes' % n)
        check(len(w.p.reply.encode()) <= 20 + 256, 'more than 256 bytes of private data in all: siw dies of it')
    where = t.keep(Listener(HOSTS[0]))
    for n in (0, 1, 100, limits.private_connect_bytes):
        e, p = calling(t, s, where, private_data=pattern(n, n))
        equal(p.request.private_data, pattern(n, n), 'private data')
        check(len(p.request.encode()) <= 20 + 256, 'more than siw takes')
        p.answer(private_data=pattern(n + 1, n))
        c = connected(s, e)
        equal((c.status, c.private_data), (0, pattern(n + 1, n)), 'private data of a reply')
    s.call('unlisten', listener=listener)


@test()
def the_most_private_data_that_the_rfc_allows(t):
    """512 with the four of revision 2. A peer that sends more than clients can be told is refused or cut off,
    and nobody is harmed; more than 512 is not even received."""
    s = t.session()
    listener, port = s.listen(HOSTS[0])
    for n in (253, 256, 508):
        p = t.keep(call(HOSTS[0], port))
        p.send_request(**ASK, private_data=pattern(n, n))
        for kind, event in told_or_ended(s, p):
            if kind == 'connect_request':
                equal(event.private_data, pattern(n, n), 'private data')
                s.call('reject', request=event.request)
        ends(p)
    for length in (513, 4096, 0xffff):
        p = t.keep(call(HOSTS[0], port))
        with sent_to(p):
            p.send_bytes(Mpa(True, **ASK).encode(length=length) + bytes(length - 4))
        ends(p, 4)
    where = t.keep(Listener(HOSTS[0]))
    for n in (253, 508, 509, 0xfffb):
        e, p = calling(t, s, where)
        with sent_to(p):
            p.answer(private_data=bytes(n))
        c = connected(s, e)
        check(n <= 508 or c.status != 0, '%d bytes were accepted' % n)
        s.call('endpoint_free', endpoint=e)
    equal([k for k, _ in s.events if k == 'connect_request'], [], 'requests')
    still_accepts(t, s, port)
    s.call('unlisten', listener=listener)


# ---- who speaks first

@test()
def each_kind_of_rtr(t):
    for write, read in ((True, False), (False, True), (True, True)):
        w = passive(t, rtr=False, rtr_write=write, rtr_read=read)
        r = w.p.reply
        equal(r.peer_to_peer, True, 'A in the reply')
        check((r.rtr_write and write) or (r.rtr_read and read), 'an RTR that was not offered')
        check((write or not r.rtr_write) and (read or not r.rtr_read), 'an RTR that was not offered')
        w.p.rtr()
        w.round_trip(w.buffer(4096))
        w = active(t, peer_to_peer=True, rtr_write=write, rtr_read=read)
        # The peer, which accepted, may speak first now.
        w.round_trip(w.buffer(4096))


@test()
def the_accepting_side_is_silent_at_first(t):
    """Work that was posted waits for the initiator's first FPDU, whatever that is."""
    def rtr(p):
        p.rtr()

    def write(p):
        p.write(0, 0, b'')

    def read(p):
        p.read(0, 0, 0)
        equal(p.hear(READ_RESPONSE).data, b'', 'the response')

    for revision, first in ((2, rtr), (2, write), (2, read), (1, write), (1, read)):
        fields = ASK if revision == 2 else {'revision': 1, 'enhanced': False}
        s = t.session()
        w = passive(t, s, rtr=False, **{**dict.fromkeys(ASK, False), 'ird': 0, 'ord': 0, **fields})
        memory = s.buffer(4096, content=b'hello')
        # A client posts when it hears that it is connected, which may be now or later.
        cookie = s.start(SEND, w.e, [memory.segment(0, 5)])
        settled(s)
        w.p.silent(0.3)
        first(w.p)
        Pair.wait_connected(s, w.e)
        s.pump()
        refused = s.completions.pop(cookie, None)
        if refused is not None and refused.status != 0:
            status_is(refused, -107)
            cookie = s.start(SEND, w.e, [memory.segment(0, 5)])
        elif refused is not None:
            s.completions[cookie] = refused
        same_bytes(w.p.hear_send().data, b'hello', 'the message')
        status_is(s.finish(cookie), 0)


@test()
def an_rtr_that_nobody_knows(t):
    """RFC 6581 9.2: no RTR that both sides know. A SEND of no bytes is one that the daemon does not offer."""
    needs_tcp(t)
    s = t.session()
    listener, port = s.listen(HOSTS[0])
    p = t.keep(call(HOSTS[0], port))
    p.send_request(enhanced=True, ird=1, ord=1, peer_to_peer=True, rtr_send=True)
    ends(p)
    where = t.keep(Listener(HOSTS[0]))
    e, p = calling(t, s, where)
    p.answer(peer_to_peer=True, rtr_send=True)
    check(connected(s, e).status != 0, 'connected with an RTR that was not offered')
    still_accepts(t, s, port)
    s.call('unlisten', listener=listener)


# ---- refusals

@test()
def rejections(t):
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    for revision in (2, 1):
        p = t.keep(call(HOSTS[0], port))
        p.send_request(**(ASK if revision == 2 else {'revision': 1}))
        request = s.wait_event('connect_request')
        s.call('reject', request=request.request, private_data=b'not today')
        reply = p.hear_frame(False)
        equal((reply.reject, reply.revision, reply.private_data), (True, revision, b'not today'), 'the reply')
        equal((reply.enhanced, reply.markers), (revision == 2, False), 'S, M of the reply')
        equal(ends(p), None, 'what follows')
    where = t.keep(Listener(HOSTS[0]))
    for how in ({}, {'enhanced': False}, {'revision': 1, 'enhanced': False}):
        e, p = calling(t, s, where)
        memory = s.buffer(4096)
        recv = s.start(raw.RECV, e, [memory.segment()])
        p.answer(reject=True, private_data=b'nor here', **how)
        c = connected(s, e)
        status_is(c, E.REJECTED)
        equal(c.private_data, b'nor here', 'private data')
        status_is(s.finish(recv), E.FLUSHED)
        s.call('endpoint_free', endpoint=e)
    still_accepts(t, s, port)


@test()
def markers_are_declined(t):
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    for revision in (2, 1):
        p = t.keep(call(HOSTS[0], port))
        p.send_request(**(ASK if revision == 2 else {'revision': 1}), markers=True)
        reply = ends(p)
        check(reply is not None, 'markers were declined without a reply')
        equal((reply.markers, reply.revision), (False, revision), 'M, revision of the reply')
    where = t.keep(Listener(HOSTS[0]))
    e, p = calling(t, s, where)
    p.answer(markers=True)
    check(connected(s, e).status != 0, 'connected with markers')
    p.hear(None, iwarp.TERMINATE)
    equal([k for k, _ in s.events], [], 'events')
    still_accepts(t, s, port)


def bad_replies():
    good = {'enhanced': True, 'ird': 4, 'ord': 4}
    yield 'revision 0', Mpa(False, 0, **good).encode()
    yield 'revision 3', Mpa(False, 3, **good).encode()
    yield 'a request', Mpa(True, **good).encode()
    yield 'another key', Mpa(False, **good).encode(key=b'MPA ID Rep Framf')
    yield 'S with three bytes', Mpa(False).encode()[:16] + bytes((iwarp.F_ENHANCED, 2, 0, 3)) + bytes(3)
    yield 'S with none', Mpa(False).encode()[:16] + bytes((iwarp.F_ENHANCED, 2, 0, 0))
    yield 'an ORD beyond our IRD', Mpa(False, enhanced=True, ird=4, ord=0x3fff).encode(), True
    yield 'a FIN', b''
    yield 'a reset', b'MPA ID Rep'
    yield 'half a reply', Mpa(False, **good).encode()[:10]
    yield 'HTTP', b'HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n'
    yield 'zeros', bytes(600)


@test()
def replies_that_are_none(t):
    needs_tcp(t)
    s = t.session()
    where = t.keep(Listener(HOSTS[0]))
    for what, data, *mild in bad_replies():
        e, p = calling(t, s, where)
        with sent_to(p):
            if data:
                p.send_bytes(data)
            if what == 'a reset':
                p.reset()
            elif len(data) < 20:
                p.close()
        c = connected(s, e)
        check(c.status != 0 or mild, '%s: connected' % what)
        if c.status != 0:
            check(len(c.text.split()) > 2, '%s: no sentence: %r' % (what, c.text))
        s.call('endpoint_free', endpoint=e)


def garbage():
    good = Mpa(True, **ASK).encode()
    yield 'HTTP', b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'
    yield 'zeros', bytes(4096)
    yield 'noise', pattern(1, 100000)
    yield 'a reply', Mpa(False, **ASK).encode()
    yield 'one byte that is wrong', b'm'
    for i in range(16):
        yield 'byte %d of the key is wrong' % i, good[:i] + bytes((good[i] ^ 1,)) + good[i + 1:]
    yield 'revision 0', Mpa(True, 0).encode()
    yield 'revision 3', Mpa(True, 3).encode()
    yield 'S with three bytes', good[:16] + bytes((iwarp.F_ENHANCED, 2, 0, 3)) + bytes(3)
    yield 'TLS', bytes.fromhex('1603010200010001fc0303') + pattern(2, 500)


@test()
def garbage_instead_of_a_request(t):
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    for what, data in garbage():
        p = t.keep(call(HOSTS[0], port))
        with sent_to(p):
            p.send_bytes(data)
        try:
            ends(p, 4)  # before the time for a request is over
        except Exception as e:
            raise AssertionError('%s: %s' % (what, e)) from e
    s.pump()
    equal([k for k, _ in s.events], [], 'events')
    still_accepts(t, s, port)


@test(timeout=90)
def a_request_cut_at_every_byte(t):
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    data = Mpa(True, **ASK, private_data=b'private').encode()
    for n in range(len(data)):
        p = t.keep(call(HOSTS[0], port))
        if n:
            p.send_bytes(data[:n])
        p.close()
    for n in range(len(data)):
        p = t.keep(call(HOSTS[0], port))
        if n:
            p.send_bytes(data[:n])
        p.reset()
    s.pump()
    equal([k for k, _ in s.events], [], 'events')
    for n in range(1, len(data)):
        p = t.keep(call(HOSTS[0], port))
        p.send_bytes(data[:n])
        s.query('devices')
        p.send_bytes(data[n:])
        request = s.wait_event('connect_request')
        equal(request.private_data, b'private', 'private data')
        s.call('reject', request=request.request)
        equal(p.hear_frame(False).reject, True, 'rejected')
        p.close()
    p = t.keep(call(HOSTS[0], port))
    p.send_bytes(data, 1)
    equal(s.wait_event('connect_request').private_data, b'private', 'private data')


@test()
def replies_in_pieces(t):
    needs_tcp(t)
    s = t.session()
    where = t.keep(Listener(HOSTS[0]))
    reply = Mpa(False, enhanced=True, ird=4, ord=4, private_data=b'private')
    for n in range(1, len(reply.encode())):
        e, p = calling(t, s, where)
        p.send_bytes(reply.encode()[:n])
        s.query('devices')
        p.send_bytes(reply.encode()[n:])
        c = connected(s, e)
        equal((c.status, c.private_data), (0, b'private'), 'cut at %d' % n)
        s.call('endpoint_free', endpoint=e)
        p.close()


@test()
def an_fpdu_glued_to_a_request(t):
    """It may not come before the reply (RFC 5044 7.1.2). Nothing of it is taken: that connection ends."""
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    for revision in (2, 1):
        p = t.keep(call(HOSTS[0], port))
        glued = iwarp.fpdu(iwarp.untagged(iwarp.SEND, 1, b'too early'))
        p.send_bytes(Mpa(True, **(ASK if revision == 2 else {'revision': 1})).encode() + glued)
        for kind, event in told_or_ended(s, p):
            # Where it was told of the request before, it cannot be accepted any more, or ends at once.
            equal(kind, 'connect_request', 'event')
            reply = s.call_raw('endpoint_new', request=event.request)
            if reply.status != 0:
                continue
            s.wait_event('endpoint_ready', lambda x, n=reply.number: x.endpoint == n)
            s.call_raw('accept', endpoint=reply.number)
            settled(s)
            s.call('endpoint_free', endpoint=reply.number)
        s.events.clear()
        data = bytearray()
        while p._more(time.monotonic() + p.timeout, data):
            pass
        check(not data or iwarp.mpa_decode(bytes(data), False).reject, 'what was heard: %r' % bytes(data))
    still_accepts(t, s, port)


@test()
def an_fpdu_glued_to_a_reply(t):
    """The responder has to wait for the first of the initiator, unless there is nothing to wait for: what siw
    does without peer-to-peer is borne."""
    needs_tcp(t)
    s = t.session()
    where = t.keep(Listener(HOSTS[0]))
    e, p = calling(t, s, where)
    memory = s.buffer(4096)
    cookie = s.start(raw.RECV, e, [memory.segment()])
    crc = p.request.crc
    reply = Mpa(False, enhanced=True, ird=4, ord=4, crc=crc)
    p.reply = reply
    p.begin()
    p.send_bytes(reply.encode() + p.stream_message(b'right behind'))
    status_is(connected(s, e), 0)
    status_is(s.finish(cookie), 0)
    same_bytes(memory.map[:12], b'right behind', 'the message')


# ---- those who say nothing

@test(timeout=60)
def silence_instead_of_a_request(t):
    """Five seconds, for one who says nothing and for one who stops within."""
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    data = Mpa(True, **ASK).encode()
    peers = []
    for n in (0, 1, 16, 19, 20, len(data) - 1):
        p = t.keep(call(HOSTS[0], port))
        if n:
            p.send_bytes(data[:n])
        peers.append(p)
    drip = t.keep(call(HOSTS[0], port))
    begin = time.monotonic()
    with sent_to(drip):  # a byte now and then does not help
        for byte in data[:-1]:
            drip.send_bytes(bytes((byte,)))
            time.sleep(0.35)
            if time.monotonic() - begin > 8:
                break
    for p in (*peers, drip):
        equal(ends(p, 20), None, 'what was heard')
    equal([k for k, _ in s.events], [], 'events')
    still_accepts(t, s, port)


@test(timeout=60)
def silence_instead_of_a_reply(t):
    needs_tcp(t)
    s = t.session()
    where = t.keep(Listener(HOSTS[0]))
    peers = []
    for n in (0, 10, 20, 22):
        e, p = calling(t, s, where)
        if n:
            p.send_bytes(Mpa(False, enhanced=True, ird=1, ord=1).encode()[:n])
        peers.append((e, p))
    for e, p in peers:
        status_is(connected(s, e, 20), ETIMEDOUT)
        equal(ends(p), None, 'what was heard')


@test(timeout=60)
def silence_instead_of_an_fpdu(t):
    """Accepted, and then nothing: what the accepting side posts waits, and its end is heard."""
    s = t.session()
    w = passive(t, s, rtr=False)
    memory = s.buffer(4096)
    recv = w.recv(memory.segment())
    w.p.silent(0.5)
    w.p.close()
    events = [s.wait_event('connected', lambda x: x.endpoint == w.e)]
    if events[0].status == 0:
        events.append(w.disconnected())
    status_is(events[-1], E.PEER_GONE)
    status_is(s.finish(recv), E.FLUSHED)


@test(config='device iwarp { handshakes_per_host = 4 }')
def handshakes_of_one_host(t):
    """Those beyond it are reset at once; who has asked, or has gone, counts no more."""
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    waiting = [t.keep(call(HOSTS[0], port)) for _ in range(4)]
    for p in waiting:
        p.silent(0.05)
    for _ in range(3):
        turned_away(t, port)
    other = t.keep(call(HOSTS[0], port, source='127.0.0.9'))
    other.send_request(**ASK)
    s.call('reject', request=s.wait_event('connect_request').request)
    equal(other.hear_frame(False).reject, True, 'another host is served')
    for p in waiting[:2]:
        p.send_request(**ASK)
        s.wait_event('connect_request')
    fds = t.daemon.fds()
    waiting[2].close()
    settled(s)
    until(lambda: t.daemon.fds() < fds, 'it knows of the one that went')
    still_accepts(t, s, port)
    equal(ends(waiting[3], 20), None, 'what the silent one heard')


@test(config='device iwarp { handshakes = 6 handshakes_per_host = 3 }')
def handshakes_of_all(t):
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    waiting = [t.keep(call(HOSTS[0], port, source='127.0.0.%d' % (2 + i // 3))) for i in range(6)]
    for p in waiting:
        p.silent(0.05)
    turned_away(t, port, '127.0.0.9')
    fds = t.daemon.fds()
    waiting[0].close()
    settled(s)
    until(lambda: t.daemon.fds() < fds, 'it knows of the one that went')
    still_accepts(t, s, port)


@test(timeout=60)
def a_crowd_that_says_nothing(t):
    """The defaults: 32 of a host, and a host that is one of many is served meanwhile."""
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    fds = t.daemon.fds()
    crowd = []
    for _ in range(200):
        with sent_to(None, OSError):
            crowd.append(t.keep(call(HOSTS[0], port, source='127.0.0.7')))
    until(lambda: t.daemon.fds() <= fds + 33, 'the rest was turned away; %d descriptors more' % (t.daemon.fds() - fds))
    still_accepts(t, s, port)


@test(config='allow { listen = {127.0.0.0/8, "::1"} connect = {127.0.0.0/8, "::1"} accept = {127.0.0.2, 127.0.0.8/30} }')
def only_some_hosts_are_heard(t):
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    for source, allowed in (('127.0.0.1', False), ('127.0.0.2', True), ('127.0.0.3', False), ('127.0.0.7', False),
                            ('127.0.0.8', True), ('127.0.0.11', True), ('127.0.0.12', False)):
        try:
            p = t.keep(call(HOSTS[0], port, source=source))
        except ConnectionResetError:
            check(not allowed, source + ' was turned away')
            continue
        with sent_to(p):
            p.send_request(**ASK)
        if allowed:
            s.call('reject', request=s.wait_event('connect_request').request)
            equal(p.hear_frame(False).reject, True, source + ' is heard')
        else:
            equal(ends(p, 4), None, 'what %s heard' % source)
    equal([k for k, _ in s.events], [], 'events')
    # What has no TCP connection is asked the same.
    e = s.endpoint(HOSTS[0], port)
    s.call('connect', endpoint=e)
    status_is(s.wait_event('connected', lambda x: x.endpoint == e), *NO_CONNECTION, E.BACKLOG)


@test(config='allow { listen = {127.0.0.0/8} connect = {127.0.0.0/8} }')
def who_may_listen_bounds_who_is_heard(t):
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    p = t.keep(call(HOSTS[0], port, source='127.1.2.3'))
    p.send_request(**ASK)
    s.wait_event('connect_request')


# ---- sockets

@test()
def a_listener_is_a_socket(t):
    needs_tcp(t)
    s = t.session()
    listener, port = s.listen(HOSTS[0])
    with socket.socket() as other:
        try:
            other.bind((HOSTS[0], port))
            other.listen()
            raise AssertionError('its port is free')
        except OSError as e:
            equal(e.errno, 98, 'errno')
    s.call('unlisten', listener=listener)
    try:
        call(HOSTS[0], port).close()
        raise AssertionError('it listens still')
    except ConnectionRefusedError:
        pass
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((HOSTS[0], 0))
        other.listen()
        status_is(s.call_raw('listen', host=HOSTS[0], port=other.getsockname()[1]), -98)
    # Again at once, although connections of before may linger.
    listener, port = s.listen(HOSTS[0])
    w = passive(t, s, port=port)
    s.call('unlisten', listener=listener)
    s.call('disconnect', endpoint=w.e)
    w.p.hear(None)
    w.p.close()
    listener, _ = s.listen(HOSTS[0], port)
    s.call('unlisten', listener=listener)


@test()
def nobody_listens_there(t):
    needs_tcp(t)
    s = t.session()
    for host in HOSTS:
        where = Listener(host)
        port = where.port
        where.close()
        e = s.endpoint(host, port)
        s.call('connect', endpoint=e)
        status_is(connected(s, e), ECONNREFUSED)


@test()
def requests_wait_in_a_backlog(t):
    """Many at once; those beyond the backlog are told so."""
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0], backlog=4)
    peers = [t.keep(call(HOSTS[0], port)) for _ in range(8)]
    for p in peers:
        p.send_request(**ASK)
    def told():
        s.pump()
        return len(select.select([p.sock for p in peers], [], [], 0)[0]) == 4

    until(told, 'four of eight are told')
    for p in peers:
        if p.sock in select.select([p.sock], [], [], 0)[0]:
            equal(p.hear_frame(False).reject, True, 'rejected')
    # What the peers were told of, the client is told of too, and nothing more.
    settled(s)
    equal(sum(k == 'connect_request' for k, _ in s.events), 4, 'requests')


@test()
def a_peer_that_gives_up_before_it_is_answered(t):
    needs_tcp(t)
    s = t.session()
    _, port = s.listen(HOSTS[0])
    for how in ('close', 'reset'):
        for step in ('request', 'endpoint'):
            p = t.keep(call(HOSTS[0], port))
            p.send_request(**ASK)
            request = s.wait_event('connect_request').request
            e = s.endpoint(request=request) if step == 'endpoint' else None
            getattr(p, how)()
            time.sleep(0.05)
            if e is None:
                reply = s.call_raw('endpoint_new', request=request)
                if reply.status != 0:
                    status_is(reply, -2)
                    continue
                e = reply.number
                s.wait_event('endpoint_ready', lambda x, n=e: x.endpoint == n)
            reply = s.call_raw('accept', endpoint=e)
            if reply.status == 0:
                c = connected(s, e)
                if c.status == 0:
                    status_is(s.wait_event('disconnected', lambda x: x.endpoint == e), E.PEER_GONE)
            s.call('endpoint_free', endpoint=e)
    still_accepts(t, s, port)


@test()
def connects_that_are_taken_back(t):
    """The client frees an endpoint at every stage of its connection."""
    needs_tcp(t)
    s = t.session()
    where = t.keep(Listener(HOSTS[0]))
    for stage in ('connect', 'request', 'half a reply', 'reply'):
        e = s.endpoint(HOSTS[0], where.port)
        s.call('connect', endpoint=e)
        p = t.keep(where.accept())
        if stage != 'connect':
            p.hear_request()
        if stage == 'half a reply':
            p.send_bytes(Mpa(False, enhanced=True).encode()[:15])
        if stage == 'reply':
            p.answer()
        s.call('endpoint_free', endpoint=e)
        data = bytearray()
        while p._more(time.monotonic() + 10, data):
            pass
        p.close()
    equal(s.rows('endpoints'), [], 'endpoints')
