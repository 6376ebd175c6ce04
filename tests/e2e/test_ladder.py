# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The ladder: which way bytes go on which device, with which keys, and that they always arrive."""
import random

import raw
from harness import check, equal, same_bytes, status_is, test
from raw import E, Pair, READ, WRITE, SEND, RECV
from test_lists import gather, odd_lengths, scatter
from test_tables import GRANTS
from test_transfers import EINVAL, SIZE, Two, pattern

MIB = 1 << 20
LIVES = ['made', 'live', 'dying', 'dead']


def like(profile, more=''):
    """The configuration of a daemon whose iwarp fabric behaves like such a device."""
    return 'device iwarp { profile = %s %s }\n%s' % (profile, 'shortcut = no' if raw.OVER_TCP else '', more)


class Ladder(Two):
    """A pair of sessions whose numbers are known; the second one moves the bytes."""
    names = 0

    def __init__(self, t, size=SIZE, **options):
        Ladder.names += 2
        names = ['ladder-%d' % (Ladder.names + i) for i in range(2)]
        Pair.__init__(self, t.session(0, name=names[0]), t.session(1, name=names[1]), **options)
        self.ma = self.a.buffer(size, content=pattern(1, size))
        self.mb = self.b.buffer(size, content=pattern(2, size))
        self.peer_session, self.session = (
            [row['session'] for row in s.query('sessions') if row['name'] == name][0]
            for s, name in zip((self.a, self.b), names))

    def plan(self, wr_id):
        """What became of the transfer with this number."""
        rows = [row for row in self.b.query('plans') if row['wr_id'] == wr_id]
        equal(len(rows), 1, 'plans of transfer %d' % wr_id)
        return rows[0]

    def move(self, opcode, local, wr_id):
        """READs, or WRITEs, or SENDs these pieces; the plan. The other side is one piece."""
        total = sum(n for _, n in local)
        segments = [self.mb.segment(o, n) for o, n in local]
        if len(segments) > raw.SEGMENTS_INLINE:
            table = self.b.buffer(16 * len(segments) + 16)
        theirs, mine = bytes(self.ma.map[:total]), gather(self.mb, local)
        remote, recv = [], None
        if opcode == SEND:
            recv = self.a.start(RECV, self.ea, [self.ma.segment(0, total)])
        else:
            token = self.grant(0, total, read=opcode == READ)
            remote = [token.segment()]
        flags = raw.F_EXPLAIN | (raw.F_PLACED if opcode == WRITE and raw.SENT_IS_DONE else 0)
        if len(segments) > raw.SEGMENTS_INLINE:
            table.put_list(0, segments + remote)
            done = self.b.run(opcode, self.eb, list_buffer=table.number, local_count=len(segments),
                              remote_count=len(remote), flags=flags, wr_id=wr_id)
        else:
            done = self.b.run(opcode, self.eb, segments, remote, flags=flags, wr_id=wr_id)
        status_is(done, 0)
        equal(done.byte_len, total, 'byte_len')
        if recv is not None:
            status_is(self.a.finish(recv), 0)
        elif opcode == WRITE:
            self.landed(token)
        if opcode == READ:
            same_bytes(gather(self.mb, local), theirs, 'what was read')
        else:
            same_bytes(self.ma.map[:total], mine, 'what was written or sent')
        plan = self.plan(wr_id)
        equal((plan['bytes'], plan['local'], plan['status'], plan['endpoint']), (total, len(local), 0, self.eb),
              'what the plan is of')
        check(plan['predicted'] > 0 and plan['took'] > 0, 'no times: %s' % plan)
        check(plan['why'], 'no reasons: %s' % plan)
        return plan

    def keys(self, kind):
        """The lives of such keys of the session: {key: (what happened, access)}."""
        lives = {}
        for row in self.b.query('key-history', 'session=%d' % self.session):
            if row['kind'] == kind:
                lives.setdefault(row['key'], []).append((row['what'], row['access'], row['length']))
        return lives

    def nothing_is_open(self, sink_access):
        """No peer can use a key of its own, but sinks, of which none lives, and where slabs are sinks."""
        for table in ('keys', 'key-history'):
            for row in self.b.query(table, 'session=%d' % self.session):
                check(row['kind'] not in GRANTS, 'it granted: %s' % row)
                shall = sink_access if row['kind'] in ('sink', 'slab') else 'local'
                check(row['access'] in (shall, 'local'), 'access of a key (%s)' % row)
        equal([row for row in self.b.query('keys', 'session=%d' % self.session)
               if row['kind'] in ('sink', 'ranges')], [], 'keys of transfers that have ended')


def pieces(count, bytes_each=4096, last=13):
    """So many pieces that are no neighbours, and a short one."""
    return [(2 * bytes_each * i, bytes_each) for i in range(count)] + [(2 * bytes_each * count + 1, last)]


def as_on(t, few, many, large, sink='local'):
    """The rungs of a READ of 10 pieces, of 61, of 4 MiB in one; the keys of the last, and their access."""
    two = Ladder(t, 4 * MIB)
    for wr_id, (what, local, shall) in enumerate((('9x4096+13', pieces(9), few), ('60x4096+13', pieces(60), many),
                                                  ('4 MiB', [(0, 4 * MIB)], large)), 100):
        two.mb.map[:] = bytes(4 * MIB)
        plan = two.move(READ, local, wr_id)
        equal((plan['rung'], plan['keys']), shall, '%s: rung and keys (%s)' % (what, plan['why']))
    for wr_id, local in enumerate((pieces(9), pieces(60), [(3, MIB - 5)]), 200):
        two.move(WRITE, local, wr_id)
        two.move(SEND, local, wr_id + 100)
    two.nothing_is_open(sink)
    return two


@test(config=like('mthca'), forced=False)
def as_on_mthca(t):
    """It exhausts its list, then takes several READs."""
    as_on(t, ('direct', 0), ('split', 0), ('direct', 0))


@test(config=like('mlx4'), forced=False)
def as_on_mlx4(t):
    """A key over ranges at the price of a fast registration."""
    as_on(t, ('direct', 0), ('indirect', 1), ('direct', 0))


@test(config=like('mlx5'), forced=False)
def as_on_mlx5(t):
    two = as_on(t, ('direct', 0), ('indirect', 1), ('direct', 0))
    for key, life in two.keys('ranges').items():
        equal([what for what, _, _ in life], LIVES, 'the life of key %d' % key)
    check(two.keys('ranges'), 'no key over ranges')


@test(config=like('cxgb4'), forced=False)
def as_on_cxgb4(t):
    """Its sinks have to be open to the peer: little is copied, much has a key for as long as it lasts."""
    two = as_on(t, ('stage', 0), ('stage', 0), ('direct', 1), 'write')
    lives = list(two.keys('sink').values())
    equal([what for what, _, _ in lives[0]], LIVES, 'the life of a sink')
    equal({(access, n) for life in lives for _, access, n in life}, {('write', 4 * MIB)}, 'what sinks were')
    # Nothing of it waits for another.
    equal(len(lives), 1, 'sinks')


@test(config=like('worst'), forced=False)
def as_on_the_worst(t):
    as_on(t, ('stage', 0), ('stage', 0), ('split', 1), 'write')


@test(config=like('cxgb4'), forced=False)
def a_sink_is_dead_when_its_read_has_ended(t):
    two = Ladder(t, 4 * MIB)
    token = two.grant()
    for n in range(1, 41):
        status_is(two.b.run(READ, two.eb, [two.mb.segment(0, 2 * MIB), two.mb.segment(2 * MIB + 1, 2 * MIB - 1)],
                            [token.segment(0, 4 * MIB - 1)]), 0)
        equal([row for row in two.b.query('keys', 'session=%d' % two.session) if row['kind'] == 'sink'], [],
              'sinks after READ %d' % n)
    equal(len({key for key in two.keys('sink')}), 80, 'sinks in all')
    # Many at a time, some of which are taken back, and one that is refused.
    reads = [two.b.start(READ, two.eb, [two.mb.segment(0, MIB)], [token.segment(i, MIB)]) for i in range(64)]
    for cookie in reads[::3]:
        two.b.start(raw.CANCEL, argument=cookie)
    for cookie in reads:
        check(two.b.finish(cookie).status in (0, -125), 'how a READ ended')
    two.nothing_is_open('write')
    done = two.read(token, two.mb.segment(0, 4 * MIB - 1), (token.address + 2, 4 * MIB - 1, token.rkey))
    check(done.status != 0, 'a READ beyond the grant has succeeded')
    two.nothing_is_open('write')


# ---- messages

@test(timeout=60)
def messages_of_all_shapes(t):
    two = Two(t, 4 * MIB, recv_stage_bytes=MIB)
    lists = [s.buffer(16 * 4096) for s in (two.a, two.b)]
    rng = random.Random(3)
    # More pieces than a key has ranges go through a slab, and that has its size.
    shapes = [(1, 3 * MIB), (31, 3 * MIB), (33, 2 * MIB), (256, 3 * MIB + 1), (257, 300001), (4096, 4096),
              (4096, MIB - 4097), (1000, 1000), (1, 1), (0, 0)]
    for n, total in shapes:
        for m in (1, 30, 4096):
            m = min(m, max(total, 1), 1 if total > MIB else 4096)
            local = scatter(rng, odd_lengths(rng, n, total), two.mb.size) if n else []
            there = scatter(rng, odd_lengths(rng, m, max(total, 1)), two.ma.size)
            expected = bytearray(two.ma.map[:])
            data, at = gather(two.mb, local), 0
            for offset, length in there if total else ():
                expected[offset:offset + length] = data[at:at + length]
                at += length
            for table, buffer, places in ((lists[0], two.ma, there), (lists[1], two.mb, local)):
                table.put_list(0, [buffer.segment(o, k) for o, k in places])
            recv = two.a.start(RECV, two.ea, list_buffer=lists[0].number, local_count=len(there))
            done = two.b.run(SEND, two.eb, list_buffer=lists[1].number, local_count=len(local))
            status_is(done, 0)
            got = two.a.finish(recv)
            status_is(got, 0)
            equal((done.byte_len, got.byte_len), (total, total), 'byte_len of %d by %d pieces' % (n, m))
            same_bytes(two.ma.map[:], expected, 'a message of %d bytes, %d by %d pieces' % (total, n, m))


# ---- explanations

@test(users=2)
def explanations_are_the_callers(t):
    two = Two(t)
    token = two.grant(0, 1000)
    for i in range(100):
        status_is(two.b.run(READ, two.eb, [two.mb.segment(0, 1 + i)], [token.segment(0, 1 + i)],
                            flags=raw.F_EXPLAIN, wr_id=5000 + i), 0)
    two.b.do(READ, two.eb, [two.mb.segment(0, 9)], [token.segment(0, 9)], wr_id=77)
    rows = two.b.query('plans')
    if not raw.FORCE:
        equal([row['wr_id'] for row in rows], list(range(5036, 5100)), 'the last 64, in order')
        equal([row['bytes'] for row in rows], list(range(37, 101)), 'their bytes')
    equal({row['operation'] for row in rows}, {'READ'}, 'operations')
    equal({row['uid'] for row in rows}, {t.uid(1)}, 'whose they are')
    equal([row for row in t.session(2).query('plans') if row['uid'] == t.uid(1)], [], 'what another user sees')
    equal([row for row in two.a.query('plans') if row['wr_id'] >= 5000 and row['uid'] == t.uid(1)], [],
          'what the peer sees')
    equal(len([row for row in t.admin().query('plans') if row['uid'] == t.uid(1)]), 64, 'what an administrator sees')


@test()
def what_was_refused_is_not_explained(t):
    two = Two(t)
    token = two.grant(0, 100)
    before = len(two.b.query('plans'))
    good = [two.mb.segment(0, 100)]
    for local, remote in ((good, [token.segment(0, 99)]), ([two.mb.segment(SIZE, 1)], [token.segment(0, 1)]),
                          ([(0, 1, 999)], [token.segment(0, 1)]), (good, [])):
        check(two.b.run(READ, two.eb, local, remote, flags=raw.F_EXPLAIN).status < 0, 'was not refused')
    check(two.b.run(READ, two.eb + 1000, good, [token.segment()], flags=raw.F_EXPLAIN).status < 0, 'no endpoint')
    status_is(two.a.run(raw.GRANT, two.ea, [two.ma.segment(0, 1)], flags=raw.F_GRANT_READ | raw.F_EXPLAIN),
              E.UNSUPPORTED)
    status_is(two.a.run(raw.REVOKE, two.ea, key=token.grant, flags=raw.F_EXPLAIN), E.UNSUPPORTED)
    equal(len(two.b.query('plans')), before, 'plans')
    # One that fails is.
    status_is(two.b.run(READ, two.eb, good, [(token.address, 100, token.rkey ^ 1)], flags=raw.F_EXPLAIN, wr_id=4),
              *raw.REFUSED)
    rows = [row for row in two.b.query('plans') if row['wr_id'] == 4]
    equal(len(rows), 1, 'plans')
    check(rows[0]['status'] != 0, 'the status of what was refused')


# ---- registrations that make room

def many_buffers(t, count, size, per_buffer=4):
    """Each buffer is used by several endpoints; their registrations do not fit all at once."""
    two = Ladder(t, size, recv_stage_bytes=4096)
    ends = [(two.ea, two.eb)]
    for _ in range(per_buffer - 1):
        more = Pair.__new__(Pair)
        more.a, more.b, more.options, more.listener, more.port = two.a, two.b, two.options, two.listener, two.port
        more.connect()
        ends.append((more.ea, more.eb))
    buffers = [two.b.buffer(size) for _ in range(count)]
    tokens = [two.a.grant(ea, two.ma.segment(0, size)) for ea, _ in ends]
    for lap in range(3):
        for buffer in buffers:
            for i, (token, (_, eb)) in enumerate(zip(tokens, ends)):
                part = size // len(ends)
                status_is(two.b.run(READ, eb, [buffer.segment(i * part, part)], [token.segment(i * part, part)]), 0)
                pinned(two.b)
            same_bytes(buffer.map[:], two.ma.map[:], 'what was read in lap %d' % lap)
            buffer.map[:] = bytes(size)
    return two


def pinned(s):
    rows = [row for row in s.query('quotas') if row['limit'] == 'pinned' and row['who'] == 'user']
    equal(len(rows), 1, 'rows of pinned')
    check(rows[0]['used'] <= rows[0]['of'], 'more is pinned than may be: %s' % rows)
    return rows[0]['used']


def evicted(t):
    return {row['name']: int(row['value']) for row in t.admin().query('status')}['keys_evicted']


@test(config=like('mthca', 'limits { pinned = 2MiB }'), users=2, timeout=60, forced=False)
def registrations_make_room(t):
    """Each endpoint has a domain of its own there, and a buffer is pinned once in each."""
    two = many_buffers(t, 12, 65536)
    check(evicted(t) > 0, 'no registration has made room')
    used = pinned(two.b)
    check(used > MIB, 'only %d bytes are pinned' % used)


@test(config=like('mlx5', 'limits { pinned = 2MiB }'), users=2, timeout=60, forced=False)
def one_registration_for_all_endpoints(t):
    two = many_buffers(t, 12, 65536)
    equal(evicted(t), 0, 'registrations that made room')
    slabs = sum(row['size'] for row in two.b.query('pools') if row['pool'].endswith('ring'))
    equal(pinned(two.b), 13 * 65536 + slabs, 'bytes that are pinned')


@test(config=like('cxgb4', 'limits { pinned = 6MiB }'), users=2, timeout=60)
def sinks_and_no_room_for_them(t):
    """Where no key can be had for it a READ goes through a slab."""
    two = Ladder(t, 2 * MIB, recv_stage_bytes=4096)
    others = [two.b.buffer(MIB) for _ in range(3)]
    token = two.grant()
    for n in range(20):
        two.mb.map[:] = bytes(2 * MIB)
        cookies = two.b.submit(*[two.b.request(READ, two.eb, [two.mb.segment(0, 2 * MIB)], [token.segment()],
                                               flags=raw.F_EXPLAIN, wr_id=n * 3 + i) for i in range(3)])
        for cookie in cookies:
            status_is(two.b.finish(cookie), 0)
        same_bytes(two.mb.map[:], two.ma.map[:], 'what was read')
        pinned(two.b)
    rungs = {row['rung'] for row in two.b.query('plans')}
    check('stage' in rungs, 'rungs: %s' % rungs)
    equal(len(others), 3, 'buffers')
    two.nothing_is_open('write')
    status_is(two.b.run(READ, two.eb, [two.mb.segment(0, 1)], [two.mb.segment(0, 1)] * 2), EINVAL)


# ---- on any device, whatever is forced

@test(timeout=60)
def the_audit_after_transfers(t):
    """What a peer could use has its beginning and its end in the audit, and nothing of it is left."""
    two = Ladder(t)
    few, many = [(0, 64)], [(i * 600, 500) for i in range(9)]
    for local in (few, many):
        total = sum(n for _, n in local)
        segments = [two.mb.segment(o, n) for o, n in local]
        for opcode in (READ, WRITE):
            token = two.grant(0, total, read=opcode == READ)
            status_is(two.b.run(opcode, two.eb, segments, [token.segment()]), 0)
            two.a.do(raw.REVOKE, two.ea, key=token.grant)
        recv = two.a.start(RECV, two.ea, [two.ma.segment(0, total)])
        status_is(two.b.run(SEND, two.eb, segments), 0)
        status_is(two.a.finish(recv), 0)
    for session, endpoint in ((two.a, two.ea), (two.b, two.eb)):
        session.call('endpoint_free', endpoint=endpoint)
    ends = {}
    for session, number in ((two.a, two.peer_session), (two.b, two.session)):
        # Of a user's older sessions the history knows what it still has room for: the end of a life, say.
        about = 'session=%d' % number
        equal([row for row in session.query('keys', about) if row['access'] != 'local'], [],
              'what a peer could use now')
        for row in session.query('key-history', about):
            ends.setdefault(row['key'], []).append((row['what'], row['kind'], row['access']))
    exposed = [events for events in ends.values() if events[0][2] != 'local']
    check(len(exposed) >= 4, 'grants that the audit knows of: %s' % ends)
    for events in exposed:
        check(events[0][0] == 'made' and events[-1][0] == 'dead', 'the life of a key: %s' % events)
