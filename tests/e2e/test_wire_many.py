# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Many connections between two daemons: at once, and one after the other, without growth."""
import time

import raw
from harness import FULL, check, equal, same_bytes, status_is, test, until
from raw import GRANT, READ, RECV, SEND
from wire_rig import HOSTS, needs_tcp, pattern

KIB, MIB = 1 << 10, 1 << 20
PIECE = 4 * KIB


class Sides:
    """A program at each of two daemons, and a listener."""

    def __init__(self, t, size):
        needs_tcp(t)
        self.there = t.more_daemon()
        self.a, self.b = t.session(), t.keep(self.there.session(t.uid(1)))
        self.listener, self.port = self.a.listen(HOSTS[0], backlog=1024)
        self.ma, self.mb = self.a.buffer(size, content=pattern(1, size)), self.b.buffer(size)
        self.daemons = (t.daemon, self.there)

    def connect(self):
        eb = self.b.endpoint(HOSTS[0], self.port, recv_depth=4, send_depth=16)
        connecting = self.b.post('connect', endpoint=eb)
        request = self.a.wait_event('connect_request', lambda e: e.listener == self.listener)
        ea = self.a.endpoint(request=request.request, recv_depth=4, send_depth=16)
        self.a.call('accept', endpoint=ea)
        equal(self.b.wait_reply(connecting).status, 0, 'connect')
        for session, e in ((self.a, ea), (self.b, eb)):
            raw.Pair.wait_connected(session, e)
        return ea, eb

    def free(self, ea, eb):
        self.b.call('endpoint_free', endpoint=eb)
        self.a.call('endpoint_free', endpoint=ea)

    def fds(self):
        return [d.fds() for d in self.daemons]

    def rss(self):
        return [d.rss_bytes() for d in self.daemons]


def all_at_once(two, ends):
    """A SEND and a READ on each, all under way together, and each with its own bytes."""
    grants = [two.a.start(GRANT, ea, [two.ma.segment(i * PIECE, PIECE)], flags=raw.F_GRANT_READ)
              for i, (ea, _) in enumerate(ends)]
    recvs = [two.a.start(RECV, ea, [two.ma.segment((len(ends) + i) * PIECE, PIECE)])
             for i, (ea, _) in enumerate(ends)]
    tokens = [two.a.finish(cookie) for cookie in grants]
    cookies = []
    for i, ((_, eb), token) in enumerate(zip(ends, tokens)):
        status_is(token, 0)
        cookies.append(two.b.start(READ, eb, [two.mb.segment(i * PIECE, PIECE)],
                                   [(token.address, PIECE, token.rkey)]))
        cookies.append(two.b.start(SEND, eb, [two.mb.segment((len(ends) + i) * PIECE, 1 + i % PIECE)]))
    for cookie in cookies:
        status_is(two.b.finish(cookie), 0)
    for i, cookie in enumerate(recvs):
        done = two.a.finish(cookie)
        status_is(done, 0)
        equal(done.byte_len, 1 + i % PIECE, 'byte_len')
    size = len(ends) * PIECE
    same_bytes(bytes(two.mb.map[:size]), bytes(two.ma.map[:size]), 'what was read')


@test(timeout=300)
def a_thousand_endpoints(t):
    """To one peer: made, idle, all at once, twice; and nothing of them stays but what malloc keeps for the next."""
    n, rounds, warm = 1000 if FULL else 100, 6, 4
    two = Sides(t, 2 * n * PIECE)
    fds = two.fds()
    for i in range(rounds):
        ends = [two.connect() for _ in range(n)]
        time.sleep(1)  # idle
        all_at_once(two, ends)
        all_at_once(two, ends)
        for end in ends:
            two.free(*end)
        # Fewer: one that has just started may still be measuring what things cost, which holds an epoll
        # descriptor for a moment.
        until(lambda: all(n <= before for n, before in zip(two.fds(), fds)), 'no descriptor is left', 30)
        if i + 1 == warm:
            first = two.rss()
    for before, after in zip(first, two.rss()):
        check(after - before < 4 * MIB or t.build.sanitized, 'resident memory grew by %d bytes' % (after - before))


@test(timeout=300)
def a_hundred_connects_a_second(t):
    """As fast as that where the machine can: connect, one SEND, disconnect. For a minute under --full."""
    seconds = 60 if FULL else 3
    two = Sides(t, 2 * PIECE)
    begin, n, first = time.monotonic(), 0, None
    while time.monotonic() < begin + seconds or (n < 100 and time.monotonic() < begin + seconds + 60):
        ea, eb = two.connect()
        recv = two.a.start(RECV, ea, [two.ma.segment(0, PIECE)])
        status_is(two.b.run(SEND, eb, [two.mb.segment(0, PIECE)]), 0)
        status_is(two.a.finish(recv), 0)
        two.free(ea, eb)
        n += 1
        if n == 50:
            first = two.fds(), two.rss()
        time.sleep(max(0, begin + n / 100 - time.monotonic()))
    print('# %d connections in %.1f s' % (n, time.monotonic() - begin))
    check(first, 'only %d connections' % n)
    until(lambda: all(after <= before + 2 for before, after in zip(first[0], two.fds())), 'no descriptor is kept')
    for before, after in zip(first[1], two.rss()):
        check(after - before < 2 * MIB or t.build.sanitized, 'resident memory grew by %d bytes' % (after - before))
