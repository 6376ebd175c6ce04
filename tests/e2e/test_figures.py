# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Counts over long runs: what the daemon holds afterwards, what it allocates, what it asks the kernel."""
import mmap
import os
import shutil
import struct
import subprocess
import time

import raw
from harness import FULL, Skip, check, equal, status_is, test, until
from raw import Pair, READ

MIB = 1 << 20
MANY = 10000


def steady(t, work, rounds):
    """Runs the work twice: the second time must leave no more than the first. Returns the growth in bytes."""
    work(rounds // 4)
    base_fds, base_rss = t.daemon.fds(), t.daemon.rss_bytes()
    work(rounds)
    until(lambda: t.daemon.fds() <= base_fds, 'descriptors as before (%d, now %d)' %
          (base_fds, t.daemon.fds()))
    grown = t.daemon.rss_bytes() - base_rss
    if not t.build.sanitized:
        check(grown < 4 * MIB, 'the daemon grew by %d bytes' % grown)
    return grown


@test(timeout=90)
def sessions_by_the_ten_thousand(t):
    def work(rounds):
        for _ in range(rounds):
            with t.daemon.session(t.uid(0)):
                pass
        t.runner.settle(t.daemon, None)
    grown = steady(t, work, MANY if FULL or not t.build.sanitized else MANY // 10)
    t.note('%d sessions; the daemon grew by %d KiB' % (MANY, grown >> 10))


@test(timeout=120)
def connections_by_the_ten_thousand(t):
    s = t.session()
    _, port = s.listen(backlog=64)
    batch = 50

    def ready(numbers):
        for n in numbers:
            s.wait_event('endpoint_ready', lambda e, n=n: e.endpoint == n)

    def new(calls):
        serials = [s.post('endpoint_new', **fields) for fields in calls]
        return [s.wait_reply(serial).number for serial in serials]

    def call_all(body, numbers):
        serials = [s.post(body, endpoint=n) for n in numbers]
        for serial in serials:
            status_is(s.wait_reply(serial), 0)

    def work(rounds):
        for _ in range(rounds // batch):
            connecting = new([{'host': raw.ADDRESS, 'port': port}] * batch)
            ready(connecting)
            call_all('connect', connecting)
            requests = [s.wait_event('connect_request').request for _ in range(batch)]
            accepting = new([{'request': r} for r in requests])
            ready(accepting)
            call_all('accept', accepting)
            for n in connecting + accepting:
                Pair.wait_connected(s, n)
            call_all('disconnect', connecting)
            for n in connecting + accepting:
                s.wait_event('disconnected', lambda e, n=n: e.endpoint == n)
            call_all('endpoint_free', connecting + accepting)
        equal((len(s.events), len(s.replies)), (0, 0), 'events and replies left')

    rounds = MANY if FULL or not t.build.sanitized else MANY // 10
    grown = steady(t, work, rounds)
    t.note('%d connections; the daemon grew by %d KiB' % (rounds, grown >> 10))


@test(config='limits { sessions = 1100 }', timeout=60)
def a_thousand_sessions_at_once(t):
    def work(rounds):
        kept = [t.daemon.session(t.uid(0)) for _ in range(rounds)]
        pair = Pair(kept[0], kept[-1])
        m, n = kept[0].buffer(4096, content=b'x' * 4096), kept[-1].buffer(4096)
        token = kept[0].grant(pair.ea, m.segment())
        kept[-1].do(READ, pair.eb, [n.segment()], [token.segment()])
        equal(bytes(n.map), b'x' * 4096, 'what was read')
        for s in kept:
            s.post('query', table='devices')
        for s in kept:
            s.wait_for(lambda s=s: s.replies or None, 'reply')
        held = t.daemon.fds()
        for s in kept:
            s.close()
        until(lambda: t.daemon.gauges()['sessions'] == 1, 'the sessions are gone', 20)
        return held
    work(1000)
    fds, rss = t.daemon.fds(), t.daemon.rss_bytes()
    held = work(1000)
    until(lambda: t.daemon.fds() <= fds, 'descriptors as before (%d, now %d)' % (fds, t.daemon.fds()))
    grown = t.daemon.rss_bytes() - rss
    t.note('%d descriptors at a thousand sessions, %d after; grew by %d KiB' % (held, fds, grown >> 10))
    if not t.build.sanitized:
        check(grown < 4 * MIB, 'the daemon grew by %d bytes' % grown)


class Reads:
    """READs of 1 KiB, sixteen a message."""

    def __init__(self, t):
        self.pair = Pair(t.daemon.session(t.uid(0)), t.daemon.session(t.uid(0)))
        self.source = self.pair.a.buffer(65536, content=b'r' * 65536)
        self.sink = self.pair.b.buffer(65536)
        self.token = self.pair.a.grant(self.pair.ea, self.source.segment())

    def run(self, count):
        s = self.pair.b
        for _ in range(count // 16):
            cookies = s.submit(*[s.request(READ, self.pair.eb, [self.sink.segment(1024 * i, 1024)],
                                           [self.token.segment(1024 * i, 1024)]) for i in range(16)])
            for cookie in cookies:
                status_is(s.finish(cookie), 0)
            s.order.clear()


@test(sanitized=False, preload=True, forced=False)
def no_allocation_per_transfer(t):
    """In the warm daemon. Started anew with a library that counts: its own, of the same build."""
    path = os.path.join(t.dir, 'count')
    with open(path, 'wb') as f:
        f.write(b'\0' * mmap.PAGESIZE)
    os.chmod(path, 0o666)
    t.daemon.stop()
    t.daemon.env['XD_ALLOCCOUNT'] = path
    t.daemon.start()
    with open(path, 'r+b') as f, mmap.mmap(f.fileno(), 8) as count:
        def allocations():
            return struct.unpack('=Q', count[:8])[0]
        check(allocations() > 10, 'nothing is counted')
        reads = Reads(t)
        reads.run(2000)
        # What measures the costs of things at the start, on a helper, allocates too, whenever it comes to run: once.
        for _ in range(5):
            before = allocations()
            reads.run(MANY)
            made = allocations() - before
            if not made:
                break
        # One allocation must show, or the count proves nothing.
        before = allocations()
        t.session().close()
        check(allocations() > before, 'a session without an allocation: the count is broken')
        t.note('%d allocations in %d transfers' % (made, MANY))
        equal(made, 0, 'allocations of %d transfers in the warm daemon' % MANY)


@test(sanitized=False, config='', root=True)
def system_calls_per_transfer(t):
    """Printed, by strace; asserted only to be few."""
    if shutil.which('strace') is None:
        raise Skip('no strace')
    reads = Reads(t)
    reads.run(320)
    out = os.path.join(t.dir, 'strace')
    tracer = subprocess.Popen(['strace', '-f', '-c', '-o', out, '-p', str(t.daemon.pid)],
                              stderr=subprocess.PIPE)
    try:
        line = tracer.stderr.readline()
        if b'attached' not in line:
            raise Skip('strace cannot attach: %s' % line)
        time.sleep(0.1)
        count = 1600
        reads.run(count)
    finally:
        tracer.send_signal(2)
        tracer.communicate(timeout=60)
    with open(out, encoding='ascii') as f:
        table = f.read()
    calls = {}
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[3].isdigit() and fields[-1] != 'total':
            calls[fields[-1]] = int(fields[3])
    total = sum(calls.values())
    most = sorted(calls.items(), key=lambda item: -item[1])[:5]
    t.note('%.2f system calls a transfer, 16 a message: %s' %
           (total / count, ', '.join('%s %d' % item for item in most)))
    check(total < 8 * count, 'more than eight system calls a transfer')
