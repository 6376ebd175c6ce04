# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""READ, WRITE, SEND, RECV, grants: what they move, in which order, and what nobody may do with them."""
import random
import time

import raw
from harness import check, equal, status_is, test
from raw import E, Pair, READ, WRITE, SEND, RECV, GRANT, REVOKE, CANCEL

SIZE = 1 << 20
EINVAL, ENOENT, EAGAIN, ENOTCONN, EMSGSIZE, ECANCELED, ERANGE = -22, -2, -11, -107, -90, -125, -34
# What the submitter gets for a shape that cannot be.
BAD_SHAPE = (EINVAL, E.LOCAL_ACCESS, ERANGE)


def pattern(seed, size):
    return random.Random(seed).randbytes(size)


class Two(Pair):
    """A pair with a buffer each: b reads and writes a's."""

    def __init__(self, t, size=SIZE, users=(0, 1), **options):
        super().__init__(t.session(users[0]), t.session(users[1]), **options)
        self.ma = self.a.buffer(size, content=pattern(1, size))
        self.mb = self.b.buffer(size, content=pattern(2, size))

    def grant(self, offset=0, length=None, read=True, lifetime_ms=0):
        return self.a.grant(self.ea, self.ma.segment(offset, length), read, lifetime_ms)

    def read(self, token, local=None, remote=None, **options):
        return self.b.run(READ, self.eb, [local or self.mb.segment(0, token.length)],
                          [remote or token.segment()], **options)

    def write(self, token, local=None, remote=None, **options):
        return self.b.run(WRITE, self.eb, [local or self.mb.segment(0, token.length)],
                          [remote or token.segment()], **options)

    def disconnected(self):
        for s, e in ((self.a, self.ea), (self.b, self.eb)):
            s.wait_event('disconnected', lambda event, e=e: event.endpoint == e)


def unchanged(memory, seed):
    equal(bytes(memory.map) == pattern(seed, memory.size), True, 'memory is as before')


@test()
def read_moves_exactly_these_bytes(t):
    two = Two(t)
    for offset, length, to in ((0, 1, 0), (1, 4095, 3), (4095, 2, 9), (17, 65536, 100), (0, SIZE, 0)):
        before = bytes(two.mb.map)
        source = bytes(two.ma.map[offset:offset + length])
        token = two.grant(offset, length)
        done = two.read(token, two.mb.segment(to, length))
        status_is(done, 0)
        equal(done.byte_len, length, 'byte_len')
        equal(done.opcode, READ, 'opcode')
        equal(done.endpoint, two.eb, 'endpoint')
        equal(bytes(two.mb.map) == before[:to] + source + before[to + length:], True, 'bytes')
    unchanged(two.ma, 1)


@test()
def write_moves_exactly_these_bytes(t):
    two = Two(t)
    for offset, length, at in ((0, 1, 0), (1, 4095, 3), (4095, 2, 9), (17, 65536, 100), (0, SIZE, 0)):
        before = bytes(two.ma.map)
        source = bytes(two.mb.map[at:at + length])
        token = two.grant(offset, length, read=False)
        done = two.write(token, two.mb.segment(at, length))
        status_is(done, 0)
        two.b.do(READ, two.eb, [two.mb.segment(0, 1)], [two.grant(0, 1).segment()])
        two.landed(token)
        equal(bytes(two.ma.map) == before[:offset] + source + before[offset + length:], True, 'bytes')


@test()
def send_meets_recv(t):
    two = Two(t)
    for length in (0, 1, 100, 65536, SIZE):
        cookie = two.a.start(RECV, two.ea, [two.ma.segment()], wr_id=99)
        local = [two.mb.segment(0, length)] if length else []
        sent = two.b.do(SEND, two.eb, local)
        equal(sent.byte_len, length, 'byte_len of the SEND')
        got = two.a.finish(cookie)
        status_is(got, 0)
        equal((got.byte_len, got.wr_id, got.opcode), (length, 99, RECV), 'the RECV')
        equal(two.ma.map[:length] == two.mb.map[:length], True, 'bytes')


@test()
def scattered_and_gathered(t):
    two = Two(t)
    rng = random.Random(5)
    for opcode in (READ, WRITE, SEND):
        cuts = sorted(rng.sample(range(1, 5000), 5))
        local = [two.mb.segment(7000 * i + 3, high - low)
                 for i, (low, high) in enumerate(zip([0] + cuts, cuts + [5000]))]
        gathered = b''.join(bytes(two.mb.map[o:o + n]) for o, n, _ in local)
        if opcode == SEND:
            cookie = two.a.start(RECV, two.ea, [two.ma.segment(10, 1), two.ma.segment(100, 4999),
                                                two.ma.segment(20, 0)])
            status_is(two.b.run(SEND, two.eb, local), 0)
            status_is(two.a.finish(cookie), 0)
            equal(bytes(two.ma.map[10:11] + two.ma.map[100:5099]) == gathered, True, 'SEND')
            continue
        token = two.grant(500, 6000, read=opcode == READ)
        remote = [token.segment(1000, 2000), token.segment(10, 0), token.segment(0, 500),
                  token.segment(3000, 2500)]
        where = [(1500, 2000), (500, 500), (3500, 2500)]
        status_is(two.b.run(opcode, two.eb, local, remote), 0)
        if opcode == WRITE:
            two.landed(token)
        theirs = b''.join(bytes(two.ma.map[o:o + n]) for o, n in where)
        if opcode == WRITE:
            equal(theirs == gathered, True, 'WRITE')
        else:
            ours = b''.join(bytes(two.mb.map[o:o + n]) for o, n, _ in local)
            equal(theirs == ours, True, 'READ')


@test()
def zero_lengths(t):
    two = Two(t)
    status_is(two.b.run(SEND, two.eb, [two.mb.segment(0, 0)]), *raw.NO_RECV)
    two.again()
    token = two.grant(0, 100)
    for opcode in (READ, WRITE):
        done = two.b.run(opcode, two.eb, [two.mb.segment(0, 0)], [token.segment(0, 0)])
        check(done.status in (0, EINVAL), 'status %s' % raw.status_name(done.status))
    done = two.b.run(READ, two.eb, [two.mb.segment(0, 0)] * 60 + [two.mb.segment(0, 7)],
                     [token.segment(0, 0), token.segment(0, 7), token.segment(100, 0)])
    status_is(done, 0)
    equal(done.byte_len, 7, 'byte_len')
    status_is(two.a.run(GRANT, two.ea, [two.ma.segment(0, 0)], flags=raw.F_GRANT_READ), EINVAL)


@test()
def wr_id_and_cookie_come_back(t):
    two = Two(t)
    token = two.grant(0, 10)
    big = (1 << 64) - 1
    done = two.b.run(READ, two.eb, [two.mb.segment(0, 10)], [token.segment()], wr_id=big, cookie=big)
    equal((done.wr_id, done.cookie), (big, big), 'wr_id, cookie')
    # A cookie must not be 0, nor that of an unfinished request.
    status_is(two.b.run(READ, two.eb, [two.mb.segment(0, 10)], [token.segment()], cookie=0), EINVAL)
    first = two.b.start(RECV, two.eb, [two.mb.segment(0, 10)], wr_id=1)
    two.b.submit(two.b.request(RECV, two.eb, [two.mb.segment(10, 10)], cookie=first, wr_id=2))
    refused = two.b.finish(first)
    status_is(refused, EINVAL, -17)
    equal(refused.wr_id, 2, 'wr_id of the refused one')
    two.a.do(SEND, two.ea, [two.ma.segment(0, 3)])
    equal(two.b.finish(first).wr_id, 1, 'wr_id of the RECV')


@test()
def sides_of_different_length(t):
    two = Two(t)
    token = two.grant(0, 100)
    for local, remote in ((99, 100), (100, 99), (0, 1), (1, 0)):
        status_is(two.read(token, two.mb.segment(0, local), token.segment(0, remote)), EINVAL)
    for opcode, local, remote in ((READ, [], [token.segment()]), (READ, [two.mb.segment(0, 100)], [])):
        status_is(two.b.run(opcode, two.eb, local, remote), EINVAL)
    status_is(two.b.run(SEND, two.eb, [two.mb.segment(0, 100)], [token.segment()]), EINVAL)
    status_is(two.b.run(RECV, two.eb, [two.mb.segment(0, 100)], [token.segment()]), EINVAL)
    unchanged(two.mb, 2)
    status_is(two.read(token), 0)  # nothing of that hurt the connection


@test()
def offsets_and_lengths_that_overflow(t):
    two = Two(t)
    token = two.grant(0, 4096)
    number = two.mb.number
    top = 1 << 64
    for offset, length in ((SIZE, 1), (SIZE - 1, 2), (SIZE + 1, 1), (0, SIZE + 1), (top - 1, 1),
                           (top - 1, 2), (top - 4096, 4096), (1 << 63, 1), (0, 0xffffffff),
                           (SIZE, 0xffffffff), (top - 0xffffffff, 0xffffffff)):
        segment = (offset, length, number)
        for opcode in (READ, WRITE):
            status_is(two.b.run(opcode, two.eb, [segment], [(token.address, length, token.rkey)]),
                      *BAD_SHAPE)
        status_is(two.b.run(SEND, two.eb, [segment]), *BAD_SHAPE)
        status_is(two.b.run(RECV, two.eb, [segment]), *BAD_SHAPE)
        status_is(two.b.run(GRANT, two.eb, [segment], flags=raw.F_GRANT_READ), *BAD_SHAPE)
    # Good pieces before a bad one do not move.
    status_is(two.b.run(READ, two.eb, [two.mb.segment(0, 4095), (SIZE, 1, number)], [token.segment()]),
              *BAD_SHAPE)
    # 4,096 segments of 4 GiB have a sum beyond 2^43, a message limit of 2^40.
    huge = [(0, 0xffffffff, number)] * 64
    status_is(two.b.run(READ, two.eb, huge, [(0, 0xffffffff, token.rkey)] * 64), *BAD_SHAPE, EMSGSIZE)
    unchanged(two.mb, 2)
    status_is(two.read(token), 0)


@test()
def numbers_of_others(t):
    two = Two(t)
    token = two.grant(0, 100)
    third = t.session(2)
    spare = [third.buffer(4096) for _ in range(3)]  # numbers that are live, elsewhere
    for buffer in (0, 2, 3, spare[2].number, 0xffffffff):
        if buffer == two.mb.number:
            continue
        status_is(two.b.run(READ, two.eb, [(0, 100, buffer)], [token.segment()]), ENOENT, EINVAL,
                  E.LOCAL_ACCESS)
    for endpoint in (0, 2, 3, 0xffffffff):
        if endpoint != two.eb:
            status_is(two.b.run(READ, endpoint, [two.mb.segment(0, 100)], [token.segment()]), ENOENT,
                      EINVAL)
        status_is(third.run(SEND, endpoint, [spare[0].segment()]), ENOENT, EINVAL)
    for grant in (token.grant, 0, 77, 0xffffffff):
        # The number is a's: b and the third may not end it.
        status_is(two.b.run(REVOKE, two.eb, key=grant), ENOENT, EINVAL, E.GRANT_ENDED)
        status_is(third.run(REVOKE, two.ea, key=grant), ENOENT, EINVAL, E.GRANT_ENDED)
    status_is(third.run(CANCEL, argument=1), ENOENT, EINVAL, 0)
    status_is(two.read(token), 0)


@test()
def opcodes_and_flags(t):
    two = Two(t)
    token = two.grant(0, 100)
    here, there = [two.mb.segment(0, 100)], [token.segment()]
    for opcode in (0, 8, 99, 255, 256, 257, 0xffffffff):
        status_is(two.b.run(opcode, two.eb, here, there), E.UNKNOWN_OPERATION, EINVAL)
    for flags in (0x400, 0x80000000, 0x10000):
        status_is(two.b.run(READ, two.eb, here, there, flags=flags), EINVAL, E.UNSUPPORTED)
    for flags in (0, raw.F_GRANT_READ | raw.F_GRANT_WRITE):
        status_is(two.b.run(GRANT, two.eb, here, flags=flags), EINVAL)
    for opcode, flags in ((READ, raw.F_GRANT_READ), (SEND, raw.F_GRANT_WRITE), (READ, raw.F_INVALIDATE),
                          (RECV, raw.F_INVALIDATE), (READ, raw.F_SOLICITED), (SEND, raw.F_PLACED)):
        remote = there if opcode == READ else []
        done = two.b.run(opcode, two.eb, here, remote, flags=flags)
        check(done.status in (EINVAL, E.UNSUPPORTED), 'opcode %d with flag %x: %s' %
              (opcode, flags, raw.status_name(done.status)))
    unsupported = [(GRANT, raw.F_LINK | raw.F_GRANT_READ)]
    if not two.immediate:
        unsupported += [(SEND, raw.F_IMMEDIATE), (WRITE, raw.F_IMMEDIATE)]
    for opcode, flags in unsupported:
        remote = there if opcode == WRITE else []
        status_is(two.b.run(opcode, two.eb, here, remote, flags=flags, key=7), E.UNSUPPORTED, EINVAL)
    status_is(two.read(token), 0)


@test()
def immediate_data(t):
    """Where the endpoint says that it works; elsewhere it is refused, see above."""
    two = Two(t)
    if not two.immediate:
        t.skip('the fabric has no immediate data')
    token = two.grant(0, 100, read=False)
    for opcode, remote in ((SEND, []), (WRITE, [token.segment(0, 10)])):
        recv = two.a.start(RECV, two.ea, [two.ma.segment(4096, 64)])
        two.b.do(opcode, two.eb, [two.mb.segment(0, 10)], remote, flags=raw.F_IMMEDIATE, key=0x12345678)
        got = two.a.finish(recv)
        status_is(got, 0)
        check(got.flags & raw.CF_IMMEDIATE, 'the RECV does not say that there is immediate data')
        equal((got.immediate, got.byte_len), (0x12345678, 10), 'immediate data, byte_len')


@test()
def quiet_says_nothing_of_success(t):
    two = Two(t)
    token = two.grant(0, 100)
    cookies = [two.b.start(READ, two.eb, [two.mb.segment(i, 100)], [token.segment()],
                           flags=raw.F_QUIET) for i in range(5)]
    two.b.do(READ, two.eb, [two.mb.segment(5000, 100)], [token.segment()])
    equal([c for c in cookies if c in two.b.completions], [], 'completions of quiet successes')
    equal(bytes(two.mb.map[4:104]) == bytes(two.ma.map[:100]), True, 'bytes')
    # Its cookie is free again, and failures are told.
    cookie = two.b.start(READ, two.eb, [two.mb.segment(0, 99)], [token.segment()], flags=raw.F_QUIET,
                         cookie=cookies[0])
    status_is(two.b.finish(cookie), EINVAL)


@test()
def fence_placed_solicited(t):
    two = Two(t)
    read, write = two.grant(0, 4096), two.grant(8192, 4096, read=False)
    first = two.b.start(READ, two.eb, [two.mb.segment(0, 4096)], [read.segment()])
    fenced = two.b.start(WRITE, two.eb, [two.mb.segment(0, 4096)], [write.segment()],
                         flags=raw.F_FENCE | raw.F_PLACED)
    status_is(two.b.finish(first), 0)
    status_is(two.b.finish(fenced), 0)
    two.landed(write)
    equal(bytes(two.ma.map[8192:12288]) == bytes(two.ma.map[:4096]), True, 'what went round')
    cookie = two.a.start(RECV, two.ea, [two.ma.segment(0, 100)])
    two.b.do(SEND, two.eb, [two.mb.segment(0, 10)], flags=raw.F_SOLICITED)
    status_is(two.a.finish(cookie), 0)


@test()
def a_send_after_a_write_shows_it(t):
    two = Two(t)
    token = two.grant(0, 65536, read=False)
    for i in range(50):
        two.mb.map[:65536] = bytes([i]) * 65536
        recv = two.a.start(RECV, two.ea, [two.ma.segment(SIZE - 64, 64)])
        two.b.submit(two.b.request(WRITE, two.eb, [two.mb.segment(0, 65536)], [token.segment()]),
                     two.b.request(SEND, two.eb, [two.mb.segment(0, 1)]))
        status_is(two.a.finish(recv), 0)
        equal(two.ma.map[:65536].count(bytes([i])), 65536, 'bytes that the message announced')
        two.b.pump()


@test()
def completions_of_an_endpoint_come_in_order(t):
    two = Two(t)
    token = two.grant(0, SIZE)
    two.b.order.clear()
    requests = []
    rng = random.Random(3)
    for _ in range(300):
        size = rng.choice((1, 100, 5000, 100000))
        requests.append(two.b.request(READ, two.eb, [two.mb.segment(0, size)],
                                      [token.segment(0, size)]))
    cookies = []
    for i in range(0, 300, 60):
        cookies += two.b.submit(*requests[i:i + 60])
    for cookie in cookies:
        status_is(two.b.finish(cookie), 0)
    equal(two.b.order == cookies, True, 'completions in the order of submission')


@test()
def recvs_before_the_connection(t):
    a, b = t.session(), t.session(1)
    ma, mb = a.buffer(4096), b.buffer(4096, content=b'first message')
    listener, port = a.listen()
    eb = b.endpoint(port=port)
    status_is(b.run(SEND, eb, [mb.segment(0, 13)]), ENOTCONN)
    b.call('connect', endpoint=eb)
    request = a.wait_event('connect_request', lambda e: e.listener == listener)
    ea = a.endpoint(request=request.request)
    cookies = [a.start(RECV, ea, [ma.segment(64 * i, 64)]) for i in range(8)]
    a.call('accept', endpoint=ea)
    Pair.wait_connected(b, eb)
    b.do(SEND, eb, [mb.segment(0, 13)])
    status_is(a.finish(cookies[0]), 0)
    equal(bytes(ma.map[:13]), b'first message', 'the message')


@test()
def recvs_beyond_the_depth(t):
    two = Two(t, recv_depth=4)
    cookies = [two.a.start(RECV, two.ea, [two.ma.segment(0, 64)]) for _ in range(4)]
    status_is(two.a.run(RECV, two.ea, [two.ma.segment(0, 64)]), EAGAIN)
    two.b.do(SEND, two.eb, [two.mb.segment(0, 5)])
    status_is(two.a.finish(cookies[0]), 0)
    cookies.append(two.a.start(RECV, two.ea, [two.ma.segment(0, 64)]))
    two.a.call('disconnect', endpoint=two.ea)
    for cookie in cookies[1:]:
        status_is(two.a.finish(cookie), E.FLUSHED)


@test()
def a_message_longer_than_its_recv(t):
    two = Two(t)
    before = bytes(two.ma.map)
    recv = two.a.start(RECV, two.ea, [two.ma.segment(100, 64)])
    sent = two.b.run(SEND, two.eb, [two.mb.segment(0, 65)])
    check(sent.status != 0 or raw.SENT_IS_DONE, 'the sender hears nothing')
    status_is(two.a.finish(recv), E.MESSAGE_TOO_LONG)
    two.disconnected()
    after = bytes(two.ma.map)
    equal(after[:100] == before[:100] and after[164:] == before[164:], True, 'memory beside the RECV')


@test()
def no_recv_in_time(t):
    two = Two(t)
    status_is(two.b.run(SEND, two.eb, [two.mb.segment(0, 65)]), *raw.NO_RECV)
    two.disconnected()


@test()
def a_late_recv_is_early_enough(t):
    two = Two(t)
    if not raw.WAITS_FOR_RECV:
        t.skip('a device that speaks iWARP ends the connection of a SEND that meets no RECV')
    # A SEND waits for half a second. A machine that stalls for longer shows nothing: then once more.
    for _ in range(20):
        send = two.b.start(SEND, two.eb, [two.mb.segment(0, 65)])
        time.sleep(0.02)
        recv = two.a.start(RECV, two.ea, [two.ma.segment(0, 65)])
        sent, got = two.b.finish(send), two.a.finish(recv)
        if got.status == 0:
            status_is(sent, 0)
            return
        status_is(got, E.FLUSHED, ENOTCONN)
        two.again()
    raise AssertionError('no RECV was early enough')


@test()
def cancel(t):
    """A RECV stays where it is: no device takes one back. Its cancel says so, at once."""
    two = Two(t)
    recv = two.a.start(RECV, two.ea, [two.ma.segment(0, 64)])
    equal(two.a.do(CANCEL, two.ea, argument=recv).immediate, raw.CANCEL_QUARANTINED, 'the cancel')
    two.b.do(SEND, two.eb, [two.mb.segment(0, 64)])
    status_is(two.a.finish(recv), 0, ECANCELED)
    for nothing in (recv, 0, 4711):
        equal(two.a.do(CANCEL, two.ea, argument=nothing).immediate, raw.CANCEL_TOO_LATE, 'the cancel')
    # A SEND that waits for its RECV can be cut, or ends first.
    send = two.b.start(SEND, two.eb, [two.mb.segment(0, 64)])
    how = two.b.run(CANCEL, two.eb, argument=send)
    status_is(how, 0)
    done = two.b.finish(send)
    if how.immediate in (raw.CANCEL_NEVER_STARTED, raw.CANCEL_FENCED):
        status_is(done, ECANCELED, *raw.NO_RECV)
    else:
        status_is(done, 0, *raw.NO_RECV)


@test()
def cancel_in_flight(t):
    size = 32 << 20
    two = Two(t, size=size)
    token = two.grant(0, size)
    outcomes = set()
    for _ in range(4):
        reads = [two.b.request(READ, two.eb, [two.mb.segment()], [token.segment()]) for _ in range(2)]
        two.b.submit(*reads, two.b.request(CANCEL, two.eb, argument=reads[1].cookie, cookie=1 << 40))
        how = two.b.finish(1 << 40)
        status_is(how, 0)
        outcomes.add(how.immediate)
        status_is(two.b.finish(reads[0].cookie), 0)
        last = two.b.finish(reads[1].cookie)
        # Fenced: where all of it was posted already, all of it has finished.
        allowed = {raw.CANCEL_TOO_LATE: (0,), raw.CANCEL_FENCED: (0, ECANCELED)}
        status_is(last, *allowed.get(how.immediate, (ECANCELED,)))
        two.b.completions.clear()
    t.note('outcomes of cancel: %s' % sorted(outcomes))
    status_is(two.read(token), 0)


@test()
def disconnect_flushes_and_tells_both(t):
    two = Two(t)
    recvs = [two.a.start(RECV, two.ea, [two.ma.segment(0, 64)]) for _ in range(5)]
    two.a.call('disconnect', endpoint=two.ea)
    for cookie in recvs:
        status_is(two.a.finish(cookie), E.FLUSHED)
    equal(two.a.wait_event('disconnected').status, 0, 'status at the side that asked')
    status_is(two.b.wait_event('disconnected'), E.PEER_GONE)
    status_is(two.b.run(SEND, two.eb, [two.mb.segment(0, 5)]), ENOTCONN, E.FLUSHED, E.PEER_GONE)


@test()
def freeing_an_endpoint_with_transfers_in_flight(t):
    size = 16 << 20
    two = Two(t, size=size)
    for who in ('a', 'b'):
        token = two.grant(0, size)
        reads = [two.b.start(READ, two.eb, [two.mb.segment()], [token.segment()]) for _ in range(4)]
        two.b.query('devices')  # they are under way before the other one says anything
        session, endpoint = (two.a, two.ea) if who == 'a' else (two.b, two.eb)
        session.call('endpoint_free', endpoint=endpoint)
        for cookie in reads:
            done = two.b.finish(cookie)
            check(done.status in (0, E.FLUSHED, E.REMOTE_ACCESS, E.REMOTE_FAULT, E.PEER_GONE),
                  raw.status_name(done.status))
        other, endpoint = (two.b, two.eb) if who == 'a' else (two.a, two.ea)
        other.call('endpoint_free', endpoint=endpoint)
        two.connect()


@test()
def reads_of_both_sides_at_once(t):
    two = Two(t)
    mine = two.grant(0, SIZE)
    theirs = two.b.grant(two.eb, two.mb.segment())
    sink_a, sink_b = two.a.buffer(SIZE), two.b.buffer(SIZE)
    reads = []
    for _ in range(20):
        reads.append((two.b, two.b.start(READ, two.eb, [sink_b.segment()], [mine.segment()])))
        reads.append((two.a, two.a.start(READ, two.ea, [sink_a.segment()], [theirs.segment()])))
    for session, cookie in reads:
        status_is(session.finish(cookie), 0)
    equal(bytes(sink_a.map) == bytes(two.mb.map), True, 'what a read')
    equal(bytes(sink_b.map) == bytes(two.ma.map), True, 'what b read')


@test()
def a_session_connects_to_itself(t):
    s = t.session()
    pair = Pair(s, s)
    m = s.buffer(8192, content=b'me' * 2048)
    token = s.grant(pair.ea, m.segment(0, 4096))
    s.do(READ, pair.eb, [m.segment(4096, 4096)], [token.segment()])
    equal(bytes(m.map[4096:]), b'me' * 2048, 'what was read')


@test()
def options_of_any_size(t):
    s = t.session()
    listener, port = s.listen()
    for stage in (1, 1 << 20, 1 << 40, 1 << 63, (1 << 64) - 1):
        reply = s.call_raw('endpoint_new', host=raw.ADDRESS, port=port, recv_stage_bytes=stage)
        if reply.status == 0:
            s.wait_event('endpoint_ready')
            s.call('endpoint_free', endpoint=reply.number)
        else:
            check(reply.text, 'no sentence')
    deep = [s.endpoint(port=port, send_depth=4096, recv_depth=4096) for _ in range(20)]
    check(len(set(deep)) == len(deep), 'numbers of endpoints')


@test()
def overlapping_memory(t):
    """Both sides of a transfer in one buffer, over each other: no promise of bytes, but of everything else."""
    s = t.session()
    pair = Pair(s, s)
    m = s.buffer(SIZE, content=pattern(7, SIZE))
    token = s.grant(pair.ea, m.segment())
    write = s.grant(pair.ea, m.segment(), read=False)
    for offset, length in ((0, SIZE), (1, SIZE - 1), (4096, 8192)):
        s.do(READ, pair.eb, [m.segment(0, length)], [token.segment(offset, length)])
        s.do(WRITE, pair.eb, [m.segment(0, length)], [write.segment(offset, length)])
    # The same bytes as several local segments of one READ.
    s.do(READ, pair.eb, [m.segment(0, 4096)] * 64, [token.segment(0, 4096 * 64)])


@test()
def calls_that_overtake_each_other(t):
    """Sent without waiting for replies, so that each meets the ones before it half done."""
    s = t.session()
    _, port = s.listen()
    for host in (raw.ADDRESS, 'localhost'):
        for _ in range(10):
            number = s.call('endpoint_new', host=host, port=port).number
            serials = [s.post(body, endpoint=number) for body in ('connect', 'endpoint_free', 'connect',
                                                                  'disconnect', 'endpoint_free')]
            for serial in serials:
                s.wait_reply(serial)
            status_is(s.call_raw('endpoint_free', endpoint=number), ENOENT)
            files = [raw.Memfd(65536) for _ in range(3)]
            adds = [s.post('buffer_add', fds=[f.fd], size_bytes=65536) for f in files]
            numbers = [s.wait_reply(serial).number for serial in adds]
            twice = [s.post('buffer_remove', buffer=n) for n in numbers + numbers]
            statuses = [s.wait_reply(serial).status for serial in twice]
            equal(statuses[:3], [0, 0, 0], 'the first removes')
            check(all(x in (ENOENT, -16) for x in statuses[3:]), 'the second: %s' % statuses[3:])
            s.pump()
            s.events.clear()
