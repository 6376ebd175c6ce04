# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two daemons, as on two hosts: their clients meet over TCP."""
import os
import random
import signal
import time

import raw
from harness import check, equal, same_bytes, status_is, test, until
from raw import E, GRANT, Pair, READ, RECV, REVOKE, SEND, WRITE
from wire_rig import HOSTS, NO_CRC, WITH_CRC, needs_tcp, pattern

KIB, MIB = 1 << 10, 1 << 20
ENOTCONN, ECONNREFUSED = -107, -111


class Meeting(Pair):
    """`a` listens at the daemon of the test, `b` connects from another. A buffer each."""

    def __init__(self, t, there=None, size=MIB, host=HOSTS[0], **options):
        needs_tcp(t)
        self.t = t
        self.there = there or t.more_daemon(options.pop('config', None))
        a = t.session()
        b = t.keep(self.there.session(t.uid(1)))
        self.host = host
        self.size = size
        self.a, self.b, self.options = a, b, options
        self.listener, self.port = a.listen(host)
        self.connect_at(host)
        self.ma = a.buffer(size, content=pattern(1, size))
        self.mb = b.buffer(size, content=pattern(2, size))

    def connect_at(self, host):
        self.eb = self.b.endpoint(host, self.port, **self.options)
        connecting = self.b.post('connect', endpoint=self.eb)
        self.request = self.a.wait_event('connect_request', lambda e: e.listener == self.listener)
        self.ea = self.a.endpoint(request=self.request.request, **self.options)
        accepting = self.a.post('accept', endpoint=self.ea)
        for session, serial in ((self.b, connecting), (self.a, accepting)):
            reply = session.wait_reply(serial)
            equal((reply.status, reply.text), (0, ''), 'connect')
        self.connected = [self.wait_connected(self.a, self.ea), self.wait_connected(self.b, self.eb)]

    def ways(self):
        """(of whom, its buffer, who uses it, its buffer): both directions."""
        return (((self.a, self.ea, self.ma), (self.b, self.eb, self.mb)),
                ((self.b, self.eb, self.mb), (self.a, self.ea, self.ma)))

    def moves(self, size):
        for (owner, oe, om), (user, ue, um) in self.ways():
            om.map[:size], um.map[:size] = pattern(size + 1, size), pattern(size + 2, size)
            token = owner.grant(oe, om.segment(0, size))
            status_is(user.run(READ, ue, [um.segment(0, size)], [token.segment()]), 0)
            same_bytes(um.map[:size], om.map[:size], 'what was read')
            owner.do(REVOKE, oe, key=token.grant)
            um.map[:size] = pattern(size + 3, size)
            token = owner.grant(oe, om.segment(0, size), read=False)
            status_is(user.run(WRITE, ue, [um.segment(0, size)], [token.segment()], flags=raw.F_PLACED), 0)
            same_bytes(om.map[:size], pattern(size + 3, size), 'what was written')
            owner.do(REVOKE, oe, key=token.grant)
            for flags in (0, raw.F_SOLICITED, raw.F_INVALIDATE, raw.F_INVALIDATE | raw.F_SOLICITED):
                om.map[:size] = bytes(size)
                ended = owner.grant(oe, om.segment(0, 1))
                cookie = owner.start(RECV, oe, [om.segment(0, size)])
                status_is(user.run(SEND, ue, [um.segment(0, size)], flags=flags,
                                   key=ended.rkey if flags & raw.F_INVALIDATE else 0), 0)
                got = owner.finish(cookie)
                equal((got.status, got.byte_len), (0, size), 'a RECV')
                equal(bool(got.flags & raw.CF_INVALIDATED), bool(flags & raw.F_INVALIDATE), 'invalidated')
                same_bytes(om.map[:size], um.map[:size], 'what was sent')
                owner.run(REVOKE, oe, key=ended.grant)


@test(config=NO_CRC)
def data_both_ways(t):
    for host in HOSTS:
        two = Meeting(t, config=NO_CRC, host=host)
        for size in (1, 3, 4 * KIB, 64 * KIB - 1, 64 * KIB, MIB):
            two.moves(size)


@test(config=NO_CRC)
def data_both_ways_with_a_crc(t):
    """One side of the two asks for it."""
    two = Meeting(t, config=WITH_CRC)
    for size in (1, 3, 4 * KIB, 64 * KIB + 1, MIB):
        two.moves(size)


@test()
def who_is_at_the_other_end(t):
    two = Meeting(t)
    equal(two.request.peer_uid, -1, 'the uid of one on another host')
    check(two.request.peer_address.startswith('127.0.0.1:'), 'peer ' + two.request.peer_address)
    check(int(two.request.peer_address.rsplit(':', 1)[1]) != two.port, 'the port of the one who called')
    for session in (two.a, two.b):
        (row,) = session.rows('endpoints')
        check(str(row.get('state', '')) != '', 'a state in the table: %s' % row)


@test(config='device iwarp { shortcut = no }', timeout=90)
def one_daemon_with_itself(t):
    """Where it may not take the short way."""
    two = Meeting(t, t.daemon)
    equal(two.request.peer_uid, -1, 'peer_uid')
    for size in (1, 4 * KIB, 64 * KIB + 1, MIB):
        two.moves(size)


@test()
def many_pieces(t):
    two = Meeting(t)
    rng = random.Random(5)
    for opcode in (READ, WRITE, SEND):
        for n in (2, 33, 64):
            cuts = sorted(rng.sample(range(1, 200000), n - 1))
            lengths = [b - a for a, b in zip([0] + cuts, cuts + [200000])]
            at, local = 0, []
            for length in lengths:
                local.append(two.mb.segment(at, length))
                at += length + 1
            if opcode == SEND:
                cookie = two.a.start(RECV, two.ea, [two.ma.segment(10, 99999), two.ma.segment(300000, 100001)])
                status_is(two.b.run(SEND, two.eb, local), 0)
                status_is(two.a.finish(cookie), 0)
                theirs = bytes(two.ma.map[10:100009]) + bytes(two.ma.map[300000:400001])
            else:
                token = two.a.grant(two.ea, two.ma.segment(7, 300000), read=opcode == READ)
                remote = [token.segment(100000, 150000), token.segment(0, 50000)]
                status_is(two.b.run(opcode, two.eb, local, remote,
                                    flags=raw.F_PLACED if opcode == WRITE else 0), 0)
                theirs = bytes(two.ma.map[100007:250007]) + bytes(two.ma.map[7:50007])
                two.a.do(REVOKE, two.ea, key=token.grant)
            same_bytes(b''.join(bytes(two.mb.map[o:o + x]) for o, x, _ in local), theirs, 'pieces')


@test()
def what_is_not_granted(t):
    """The one who tried hears why; nothing has changed."""
    two = Meeting(t, size=64 * KIB)
    here = two.mb.segment(0, 100)
    for what in ('dead', 'bounds', 'rights', 'unknown', 'another endpoint'):
        for opcode in (READ, WRITE):
            token = two.a.grant(two.ea, two.ma.segment(0, 4096), read=(opcode == READ) != (what == 'rights'))
            remote = token.segment(0, 100)
            if what == 'dead':
                two.a.do(REVOKE, two.ea, key=token.grant)
            elif what == 'bounds':
                remote = (token.address + 4000, 100, token.rkey)
            elif what == 'unknown':
                remote = (token.address, 100, token.rkey ^ 0x10000)
            elif what == 'another endpoint':
                other = Meeting(t, two.there, size=4096)
                remote = other.a.grant(other.ea, other.ma.segment(), read=opcode == READ).segment(0, 100)
            done = two.b.run(opcode, two.eb, [here], [remote], flags=raw.F_PLACED if opcode == WRITE else 0)
            # A WRITE may be refused later than it was sent; its companion, the READ of nothing, never came back.
            status_is(done, E.REMOTE_ACCESS, *((E.FLUSHED,) if opcode == WRITE else ()))
            status_is(two.b.wait_event('disconnected'), E.REMOTE_ACCESS, E.REMOTE_FAULT, E.PEER_GONE)
            two.a.wait_event('disconnected')
            same_bytes(two.ma.map, pattern(1, 64 * KIB), 'memory, ' + what)
            same_bytes(two.mb.map, pattern(2, 64 * KIB), 'memory, ' + what)
            for session, endpoint in ((two.a, two.ea), (two.b, two.eb)):
                session.call('endpoint_free', endpoint=endpoint)
            two.connect_at(two.host)


@test()
def messages_that_do_not_fit(t):
    two = Meeting(t, size=64 * KIB)
    recv = two.a.start(RECV, two.ea, [two.ma.segment(0, 100)])
    sent = two.b.start(SEND, two.eb, [two.mb.segment(0, 101)])
    status_is(two.a.finish(recv), E.MESSAGE_TOO_LONG)
    # The sender may have been told before that its memory is its own again.
    status_is(two.b.finish(sent), 0, E.MESSAGE_TOO_LONG)
    status_is(two.b.wait_event('disconnected'), E.MESSAGE_TOO_LONG)
    two = Meeting(t, two.there, size=64 * KIB)
    sent = two.b.start(SEND, two.eb, [two.mb.segment(0, 101)])
    status_is(two.b.finish(sent), 0, E.RECEIVER_NOT_READY)
    status_is(two.b.wait_event('disconnected'), E.RECEIVER_NOT_READY)


@test()
def rejections_and_nobody(t):
    two = Meeting(t)
    e = two.b.endpoint(two.host, two.port)
    two.b.call('connect', endpoint=e)
    two.a.call('reject', request=two.a.wait_event('connect_request').request, private_data=b'not today')
    refused = two.b.wait_event('connected', lambda x: x.endpoint == e)
    status_is(refused, E.REJECTED)
    equal(refused.private_data, b'not today', 'private data')
    two.a.call('unlisten', listener=two.listener)
    e = two.b.endpoint(two.host, two.port)
    two.b.call('connect', endpoint=e)
    status_is(two.b.wait_event('connected', lambda x: x.endpoint == e), ECONNREFUSED)


def busy(two, n=8):
    """Requests of each kind under way on both sides, and a RECV on each."""
    started = []
    for (owner, oe, om), (user, ue, um) in two.ways():
        token = owner.grant(oe, om.segment())
        started += [(user, user.start(READ, ue, [um.segment()], [token.segment()])) for _ in range(n)]
        started.append((user, user.start(RECV, ue, [um.segment(0, 100)])))
    return started


@test(timeout=90)
def the_death_of_a_daemon(t):
    for signum in (signal.SIGKILL, signal.SIGTERM):
        there = t.more_daemon('times { drain = 0s }')
        two = Meeting(t, there)
        started = busy(two)
        there.stop(signum)
        status_is(two.a.wait_event('disconnected'), E.PEER_GONE)
        for session, cookie in started:
            if session is two.a:
                done = session.finish(cookie)
                check(done.status in (0, E.FLUSHED, E.PEER_GONE, E.REMOTE_FAULT), raw.status_name(done.status))
        two.a.call('endpoint_free', endpoint=two.ea)
        # Its successor is served as it was.
        again = Meeting(t, t.more_daemon())
        again.moves(4 * KIB)


@test(timeout=90)
def the_death_of_a_client(t):
    two = Meeting(t)
    busy(two)
    two.b.close()
    status_is(two.a.wait_event('disconnected'), E.PEER_GONE)
    again = Meeting(t, two.there)
    again.moves(4 * KIB)


@test(config='times { progress = 3s }')
def a_daemon_that_stands_still(t):
    """It is there and says nothing: what waits for it ends in time, with a reason."""
    there = t.more_daemon()
    two = Meeting(t, there)
    token = two.b.grant(two.eb, two.mb.segment())
    status_is(two.a.run(READ, two.ea, [two.ma.segment()], [token.segment()]), 0)
    os.kill(there.pid, signal.SIGSTOP)
    try:
        cookie = two.a.start(READ, two.ea, [two.ma.segment()], [token.segment()])
        status_is(two.a.finish(cookie, 60), E.STALLED, E.FLUSHED)
        status_is(two.a.wait_event('disconnected'), E.STALLED)
    finally:
        os.kill(there.pid, signal.SIGCONT)
    status_is(two.b.wait_event('disconnected'), E.PEER_GONE, E.STALLED)
    Meeting(t, there).moves(4 * KIB)


@test(timeout=90)
def both_sides_connect_at_once(t):
    needs_tcp(t)
    there = t.more_daemon()
    a, b = t.session(), t.keep(there.session(t.uid(1)))
    n = 20
    ports = [s.listen(HOSTS[0])[1] for s in (a, b)]
    mine = []
    for s, port in ((a, ports[1]), (b, ports[0])):
        mine.append([s.endpoint(HOSTS[0], port) for _ in range(n)])
    for i in range(n):
        for s, endpoints in ((a, mine[0]), (b, mine[1])):
            s.post('connect', endpoint=endpoints[i])
    taken = []
    for s in (a, b):
        requests = [s.wait_event('connect_request').request for _ in range(n)]
        endpoints = [s.endpoint(request=r) for r in requests]
        for e in endpoints:
            s.post('accept', endpoint=e)
        taken.append(endpoints)
    for s, endpoints in ((a, mine[0] + taken[0]), (b, mine[1] + taken[1])):
        for e in endpoints:
            Pair.wait_connected(s, e)
    # A message through each, both ways.
    for s, o, endpoints, others in ((a, b, mine[0], taken[1]), (b, a, mine[1], taken[0])):
        memory, sink = s.buffer(4096), o.buffer(64 * 2 * n)
        memory.map[:] = pattern(3, 4096)
        recvs = [o.start(RECV, e, [sink.segment(64 * i, 64)]) for i, e in enumerate(others)]
        for i, e in enumerate(endpoints):
            s.do(SEND, e, [memory.segment(i, 10)])
        got = [o.finish(c) for c in recvs]
        equal([(g.status, g.byte_len) for g in got], [(0, 10)] * n, 'the RECVs')
        heard = sorted(bytes(sink.map[64 * i:64 * i + 10]) for i in range(n))
        equal(heard, sorted(pattern(3, 4096)[i:i + 10] for i in range(n)), 'the messages')


@test(timeout=120)
def many_endpoints_at_once(t):
    needs_tcp(t)
    there = t.more_daemon()
    a, b = t.session(), t.keep(there.session(t.uid(1)))
    n, size = 200, 64 * KIB
    listener, port = a.listen(HOSTS[0], backlog=256)
    ends_b = [b.endpoint(HOSTS[0], port) for _ in range(n)]
    ends_a = []
    # Some at a time: a connect has five seconds to be accepted.
    for i in range(0, n, 20):
        for e in ends_b[i:i + 20]:
            b.post('connect', endpoint=e)
        for _ in ends_b[i:i + 20]:
            e = a.endpoint(request=a.wait_event('connect_request').request)
            a.post('accept', endpoint=e)
            ends_a.append(e)
        for s, ends in ((a, ends_a), (b, ends_b)):
            for e in ends[i:i + 20]:
                Pair.wait_connected(s, e)
    memory, sink = a.buffer(size, content=pattern(1, size)), b.buffer(size)
    # Whichever endpoint of b leads to it: a says so through each.
    notes = b.buffer(64 * n)
    recvs = [b.start(RECV, e, [notes.segment(64 * i, 64)]) for i, e in enumerate(ends_b)]
    tokens = {e: a.grant(e, memory.segment()) for e in ends_a}
    words = a.buffer(64 * n)
    for i, e in enumerate(ends_a):
        token = tokens[e]
        words.map[64 * i:64 * i + 20] = token.address.to_bytes(8, 'big') + token.rkey.to_bytes(4, 'big') + bytes(8)
    sends = [a.start(SEND, e, [words.segment(64 * i, 20)]) for i, e in enumerate(ends_a)]
    for cookie in sends:
        status_is(a.finish(cookie), 0)
    reads = []
    for i, e in enumerate(ends_b):
        status_is(b.finish(recvs[i]), 0)
        word = bytes(notes.map[64 * i:64 * i + 20])
        address, rkey = int.from_bytes(word[:8], 'big'), int.from_bytes(word[8:12], 'big')
        reads.append(b.start(READ, e, [sink.segment()], [(address, size, rkey)]))
    for cookie in reads:
        status_is(b.finish(cookie, 60), 0)
    same_bytes(sink.map, memory.map, 'what was read')
    fds = t.daemon.fds()
    for s, ends in ((a, ends_a), (b, ends_b)):
        for e in ends:
            s.call('endpoint_free', endpoint=e)
    until(lambda: t.daemon.fds() <= fds - n, 'its sockets are closed')


@test(timeout=90)
def revoked_while_the_peer_reads(t):
    """A completion of REVOKE means that no byte goes out any more: the memory changes right after it, and no
    READ that succeeds has seen the change."""
    two = Meeting(t, size=4 * MIB)
    for turn in range(10):
        two.ma.map[:], two.mb.map[:] = bytes([turn]) * two.size, bytes(two.size)
        token = two.a.grant(two.ea, two.ma.segment())
        cookies = [two.b.start(READ, two.eb, [two.mb.segment()], [token.segment()]) for _ in range(2)]
        time.sleep(0.001 * turn)
        two.a.do(REVOKE, two.ea, key=token.grant)
        two.ma.map[:] = b'\xff' * two.size
        done = [two.b.finish(c) for c in cookies]
        check(two.mb.map[:].count(b'\xff') == 0, 'bytes from behind a REVOKE, turn %d' % turn)
        if any(d.status != 0 for d in done):
            for session, endpoint in ((two.a, two.ea), (two.b, two.eb)):
                session.wait_event('disconnected', lambda x, n=endpoint: x.endpoint == n)
                session.call('endpoint_free', endpoint=endpoint)
            two.connect_at(two.host)


@test(timeout=90)
def endless_rounds_of_grants(t):
    """GRANT, READ, REVOKE over and over: keys come and go, nothing is left."""
    two = Meeting(t, size=64 * KIB)
    for i in range(300):
        token = two.a.grant(two.ea, two.ma.segment(i, 5000))
        status_is(two.b.run(READ, two.eb, [two.mb.segment(0, 5000)], [token.segment()]), 0)
        status_is(two.a.run(REVOKE, two.ea, key=token.grant), 0)
    same_bytes(two.mb.map[:5000], two.ma.map[299:5299], 'the last of them')
    status_is(two.a.run(GRANT, two.ea, [two.ma.segment()], flags=raw.F_GRANT_READ), 0)
