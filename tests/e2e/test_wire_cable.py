# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two daemons in two network namespaces, and the cable between them: of an MTU of 1500 and of 9000, and
pulled."""
import shutil
import subprocess

import raw
from harness import ROOT, equal, status_is, test
from raw import E, READ, RECV
from test_wire_capture import Network
from test_wire_two import Meeting
from wire_rig import needs_tcp

NEAR, FAR = '10.77.0.1', '10.77.0.2'
CONFIG = 'allow { listen = {10.77.0.0/24} connect = {10.77.0.0/24} }\n'
# Soon, but longer than a busy machine keeps a daemon from running.
SOON = 'times { progress = 3s }\n'


class Cable:
    def __init__(self, t, times=''):
        needs_tcp(t)
        if not ROOT:
            t.skip('needs the right to make network namespaces: run as root')
        for program, package in (('unshare', 'util-linux'), ('nsenter', 'util-linux'), ('ip', 'iproute2')):
            if shutil.which(program) is None:
                t.skip('no %s (Debian: %s)' % (program, package))
        self.ends = [t.keep(Network()) for _ in range(2)]
        if any(end.said != 'up' for end in self.ends):
            t.skip('no network namespace here: ' + self.ends[0].said)
        if self.ip(0, 'link', 'add', 'cable', 'type', 'veth', 'peer', 'name', 'cable', 'netns',
                   str(self.ends[1].pid), check=False) != 0:
            t.skip('no veth pair here')
        for end, address in enumerate((NEAR, FAR)):
            self.ip(end, 'addr', 'add', address + '/24', 'dev', 'cable')
            self.ip(end, 'link', 'set', 'cable', 'up')
        self.daemons = [t.more_daemon(CONFIG + times, netns=end.pid) for end in self.ends]

    def ip(self, end, *arguments, check=True):
        done = subprocess.run(['nsenter', '-n', '-t', str(self.ends[end].pid), 'ip', *arguments],
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
        if check:
            equal(done.returncode, 0, 'the status of ip %s (%s)' % (' '.join(arguments), done.stderr[-200:]))
        return done.returncode

    def mtu(self, size):
        for end in range(2):
            self.ip(end, 'link', 'set', 'cable', 'mtu', str(size))

    def pull(self):
        self.ip(0, 'link', 'set', 'cable', 'down')

    def plug(self):
        self.ip(0, 'link', 'set', 'cable', 'up')
        for end in range(2):
            self.ip(end, 'neigh', 'flush', 'dev', 'cable')

    def meet(self, t):
        t.daemon = self.daemons[0]
        return Meeting(t, self.daemons[1], host=NEAR)


@test(daemon=False, timeout=180)
def each_mtu(t):
    cable = Cable(t)
    for mtu in (1500, 9000, 576):
        cable.mtu(mtu)
        two = cable.meet(t)
        for size in (1, 5000, 1 << 20):
            two.moves(size)


@test(daemon=False, timeout=180)
def a_cable_that_is_pulled(t):
    """Both sides hear it in time, and why: the one whose READ is under way, and the one that only waits."""
    cable = Cable(t, SOON)
    for who in ('a reader', 'nobody'):
        two = cable.meet(t)
        token = two.b.grant(two.eb, two.mb.segment())
        status_is(two.a.run(READ, two.ea, [two.ma.segment()], [token.segment()]), 0)
        recvs = [(two.a, two.a.start(RECV, two.ea, [two.ma.segment()])),
                 (two.b, two.b.start(RECV, two.eb, [two.mb.segment()]))]
        two.b.query('devices')
        cable.pull()
        if who == 'a reader':
            read = two.a.start(READ, two.ea, [two.ma.segment()], [token.segment()])
            status_is(two.a.finish(read, 60), E.STALLED, E.FLUSHED)
        for session, endpoint in ((two.a, two.ea), (two.b, two.eb)):
            gone = session.wait_event('disconnected', lambda x, n=endpoint: x.endpoint == n, 60 * raw.SLOW)
            status_is(gone, E.STALLED)
        for session, cookie in recvs:
            status_is(session.finish(cookie), E.FLUSHED)
        cable.plug()
        again = None
        for _ in range(20):
            try:
                again = cable.meet(t)
                break
            except (AssertionError, raw.Failed, raw.Timeout):
                continue
        again.moves(5000)
