# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Clients that ask for too much, and read too little."""
import os
import resource
import select
import time

import raw
from harness import check, equal, status_is, stopped, test, until
from raw import E, Ended, Failed, Pair, READ, WRITE, SEND, RECV
from test_buffers import lingering_socket

MIB = 1 << 20


@test()
def a_client_that_never_reads_completions(t):
    s = t.session()
    s.query('status')
    before = t.daemon.rss_bytes()
    batch, sent = 50, 0
    deadline = time.monotonic() + 60
    full = 0.0
    while sent < 200000 and time.monotonic() < deadline and full < 0.5:
        # Requests that are refused at once, each with a completion and a sentence.
        requests = [s.request(READ, 77, [(0, 1, 1)], [(0, 1, 1)]) for _ in range(batch)]
        message = raw.pb.ClientMessage()
        message.submit.requests.extend(requests)
        data = message.SerializeToString()
        while not s.try_send(data):
            _, writable, _ = select.select([], [s.sock], [], 0.1)
            full = 0.0 if writable else full + 0.1
            if full >= 0.5:
                break
        else:
            sent += batch
    grown = t.daemon.rss_bytes() - before
    t.note('took %d requests; grew by %d KiB' % (sent, grown >> 10))
    check(full >= 0.5, 'the daemon took %d requests of a client that reads nothing' % sent)
    if not t.build.sanitized:
        check(grown < 32 * MIB, 'the daemon grew by %d bytes' % grown)
    other = t.session(1)
    other.query('status')
    # Once it reads, all of it comes, each exactly once.
    until(lambda: s.pump(0.1) is not None and len(s.completions) >= sent, 'all completions', 30)
    equal(len(s.completions), sent, 'completions')


@test()
def a_client_that_never_reads_replies_and_events(t):
    s = t.session()
    before = t.daemon.rss_bytes()
    data = [s.message('query', table='quotas').SerializeToString(),
            s.message('listen', host=raw.ADDRESS).SerializeToString()]
    full, sent = 0, 0
    while full < 5 and sent < 100000:
        if s.try_send(data[sent % 2]):
            sent += 1
        else:
            time.sleep(0.05)
            full += 1
    grown = t.daemon.rss_bytes() - before
    t.note('took %d messages; grew by %d KiB' % (sent, grown >> 10))
    check(full >= 5, 'the daemon took %d messages of a client that reads nothing' % sent)
    if not t.build.sanitized:
        check(grown < 32 * MIB, 'the daemon grew by %d bytes' % grown)
    t.session(1).query('status')


@test()
def a_receiver_that_never_reads(t):
    """Its peer's messages stop when its RECVs are used up, not when the daemon's memory is."""
    pair = t.pair()
    ma, mb = pair.a.buffer(4096), pair.b.buffer(4096)
    for _ in range(64):
        pair.a.start(RECV, pair.ea, [ma.segment(0, 64)])
    cookies = [pair.b.start(SEND, pair.eb, [mb.segment(0, 64)]) for _ in range(65)]
    for cookie in cookies[:64]:
        status_is(pair.b.finish(cookie), 0)
    status_is(pair.b.finish(cookies[64]), *raw.NO_RECV)


@test()
def connection_requests_beyond_the_backlog(t):
    a, b = t.session(), t.session(1)
    listener, port = a.listen(backlog=4)
    endpoints = [b.endpoint(port=port) for _ in range(12)]
    for e in endpoints:
        b.call('connect', endpoint=e)
    for _ in range(8):
        status_is(b.wait_event('connected'), *raw.BACKLOGGED)
    # Four wait, and can be had; then there is room again.
    for _ in range(4):
        request = a.wait_event('connect_request', lambda x: x.listener == listener)
        e = a.endpoint(request=request.request)
        a.call('accept', endpoint=e)
        Pair.wait_connected(a, e)
        equal(b.wait_event('connected').status, 0, 'status')
    equal([k for k, _ in a.events], [], 'more events')
    e = b.endpoint(port=port)
    b.call('connect', endpoint=e)
    a.wait_event('connect_request')


@test()
def a_connect_flood_at_a_sleeping_listener(t):
    a, b = t.session(), t.session(1)
    _, port = a.listen()
    before = t.daemon.rss_bytes()
    statuses = []
    for _ in range(max(2, 20 // raw.SLOW)):
        endpoints = [b.call('endpoint_new', host=raw.ADDRESS, port=port).number for _ in range(50)]
        for e in endpoints:
            b.wait_event('endpoint_ready', lambda x, n=e: x.endpoint == n)
            b.post('connect', endpoint=e, private_data=b'x' * 40)
        for e in endpoints:
            b.call('endpoint_free', endpoint=e)
        b.pump()
        statuses += [event.status for kind, event in b.events if kind == 'connected']
        b.events.clear()
        b.replies.clear()
    check(set(statuses) <= {*raw.BACKLOGGED, E.FLUSHED, E.REJECTED, -125}, 'statuses %s' % set(statuses))
    grown = t.daemon.rss_bytes() - before
    if not t.build.sanitized:
        check(grown < 32 * MIB, 'the daemon grew by %d bytes' % grown)
    a.query('status')


@test(users=2, config='times { hello = 1s }', timeout=60)
def a_thousand_that_never_say_hello(t):
    base = t.daemon.fds()
    silent, refused = [], 0
    for _ in range(1000):
        try:
            silent.append(t.socket())
        except OSError:
            refused += 1
            time.sleep(0.001)
    held = t.daemon.fds() - base
    t.note('%d connected, %d refused; the daemon holds %d more descriptors' %
           (len(silent), refused, held))
    check(held <= 600, 'the daemon holds %d descriptors of strangers' % held)
    # When their time is over, others are served.
    until(lambda: served(t), 'another user is served', 20)
    until(lambda: t.daemon.fds() <= base + 2, 'descriptors as before', 20)


def served(t):
    try:
        with t.daemon.session(t.uid(1), timeout=5) as s:
            s.query('status')
        return True
    except (OSError, Ended, Failed, raw.Timeout):
        return False


@test(nofile=64, timeout=60)
def out_of_descriptors(t):
    kept, first = [], None
    for _ in range(100):
        try:
            kept.append(t.session(timeout=5))
        except (OSError, Ended, Failed, raw.Timeout) as e:
            first = first or e
            if len(kept) + 5 < 100 and isinstance(e, (OSError, raw.Timeout)):
                break
    t.note('%d sessions, then %r' % (len(kept), first))
    check(5 < len(kept) < 64, '%d sessions with 64 descriptors' % len(kept))
    check(first is not None, 'all 100 sessions were served')
    if isinstance(first, (Ended, Failed)) and first.status is not None:
        check(first.text, 'no sentence')
    # Those that are there are served, and the daemon does not spin.
    for s in kept:
        s.query('status')
    waiting = [t.socket() for _ in range(5)]
    ticks = t.daemon.cpu_ticks()
    time.sleep(1)
    used = t.daemon.cpu_ticks() - ticks
    hertz = os.sysconf('SC_CLK_TCK')
    t.note('used %d of %d ticks of a second' % (used, hertz))
    check(used < hertz // 2, 'the daemon spins')
    # A buffer needs a descriptor: it is served, or refused with a sentence.
    file = raw.Memfd(4096)
    reply = kept[0].call_raw('buffer_add', fds=[file.fd], size_bytes=4096)
    check(reply.status == 0 or reply.text, 'no sentence')
    for s in kept[:10] + waiting:
        s.close()
    until(lambda: served(t), 'a session is served again', 20)


@test()
def packets_of_descriptors_by_the_thousand(t):
    files = [os.open('/dev/null', os.O_RDONLY) for _ in range(253)]
    try:
        for _ in range(40):
            s = t.daemon.session(t.uid(0))
            try:
                for _ in range(4):
                    s.send_bytes(s.message('query', table='status').SerializeToString(), files)
            except Ended:
                pass
            s.close()
            until(lambda: can_come_back(t), 'the user is served again', 10)
    finally:
        for fd in files:
            os.close(fd)


def can_come_back(t):
    try:
        t.daemon.session(t.uid(0)).close()
        return True
    except (Ended, Failed) as e:
        status_is(e, E.SLOW_CLOSE, E.QUOTA)
        return False


@test()
def many_small_reads_beside_a_large_one(t):
    """Copies are made in quanta: one client's large transfer does not hold up the other."""
    big, small = t.pair((0, 0)), t.pair((1, 1))
    size = 256 * MIB
    m = small.a.buffer(4096)
    little = small.a.grant(small.ea, m.segment())
    n = small.b.buffer(4096)
    source, sink = big.a.buffer(size // 4), big.b.buffer(size // 4)
    token = big.a.grant(big.ea, source.segment())
    # Where the test does not get to run meanwhile, the large ones are done before it asks: then once more.
    for _ in range(10):
        reads = [big.b.start(READ, big.eb, [sink.segment()], [token.segment()])
                 for _ in range(raw.fewer(40))]
        for _ in range(5):
            small.b.do(READ, small.eb, [n.segment()], [little.segment()])
        big.b.pump()
        overtook = reads[-1] not in big.b.completions
        for cookie in reads:
            status_is(big.b.finish(cookie), 0)
        if overtook:
            return
    raise AssertionError('the small ones waited for all of the large ones')


@test(config='limits { sessions = 4 endpoints = 10000 }', users=2)
def sessions_as_fast_as_can_be(t):
    begin = time.monotonic()
    made, enough = 0, 100 if raw.SLOW == 1 else 10
    while time.monotonic() < begin + 2 or (made <= enough and time.monotonic() < begin + 60):
        try:
            t.daemon.session(t.uid(0)).close()
            made += 1
        except (Ended, Failed) as e:
            status_is(e, E.QUOTA, E.SLOW_CLOSE)
    t.note('%d sessions in %.1f s' % (made, time.monotonic() - begin))
    check(made > enough, 'only %d sessions' % made)


@test(own=True, users=2)
def slow_closes_by_the_hundred(t):
    """Each is a descriptor of the daemon's for as long as its sender likes: at a bound, nothing more is read."""
    before, s = t.daemon.fds(), t.session()
    peers = []
    with stopped(t.daemon):  # so that the last descriptor of each is the daemon's
        for _ in range(180):
            mine, peer = lingering_socket(30)
            peers.append(peer)
            s.post('buffer_add', fds=[mine.fileno()], size_bytes=4096)
            mine.close()
    seen = []

    def settled():
        seen.append(t.daemon.fds())
        return len(seen) > 20 and len(set(seen[-20:])) == 1
    until(settled, 'the descriptors of the daemon', 20, 0.02)
    check(seen[-1] - before < 150, 'the daemon holds %d descriptors for one user' %
          (seen[-1] - before))
    t.session(1).buffer(4096)
    for peer in peers:
        peer.close()
    until(lambda: s.pump(0.1) is not None and len(s.replies) == 180, 'all replies', 20)
    s.call('query', table='status')


@test(own=True)
def a_packet_of_long_lists_beside_another_client(t):
    """What one user submits is taken a share at a time, however much of it is in a packet."""
    s, other = t.session(), t.session(1)
    pair = Pair(s, s)
    n, many = 4096, 600
    m = s.buffer(2 * n * 16)
    # The last segment makes them unequal: all of the list is looked at, and nothing is done.
    m.put_list(0, [(0, 1, m.number)] * n + [(0, 1, 7)] * (n - 1) + [(0, 2, 7)])
    # A machine that does not let this test run meanwhile shows nothing: then once more.
    for _ in range(10):
        s.completions.clear()
        s.order.clear()
        s.submit(*[s.request(WRITE, pair.eb, list_buffer=m.number, list_offset=0, local_count=n,
                             remote_count=n, cookie=1000 + i) for i in range(many)])
        asked = 0
        while len(s.completions) < many:
            other.call('query', table='devices')
            asked += 1
            s.pump()
        t.note('answered %d times meanwhile' % asked)
        equal({c.status for c in s.completions.values()}, {-22}, 'statuses')
        equal(s.order, list(range(1000, 1000 + many)), 'the order of completions')
        if asked >= (30 if raw.SLOW == 1 else 6):
            return
    raise AssertionError('another client was answered %d times meanwhile' % asked)


def raise_nofile():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


raise_nofile()
