# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Scatter-gather lists of any shape: long ones by reference, and what a list must not be."""
import random

import raw
from harness import FULL, check, equal, same_bytes, status_is, test
from raw import E, Ended, READ, WRITE, SEND, RECV
from test_transfers import BAD_SHAPE, EAGAIN, EINVAL, EMSGSIZE, SIZE, Two, pattern, unchanged

E2BIG = -7


def odd_lengths(rng, count, total):
    """count lengths of at least 1 that sum up to total."""
    cuts = sorted(rng.sample(range(1, total), count - 1))
    return [high - low for low, high in zip([0] + cuts, cuts + [total])]


def scatter(rng, lengths, size):
    """[(offset, length)] that do not overlap, in random order, with gaps, within size."""
    spare = size - sum(lengths)
    order = list(range(len(lengths)))
    rng.shuffle(order)
    gaps = sorted(rng.randrange(spare + 1) for _ in lengths)
    result = [None] * len(lengths)
    used = end = 0
    for i, which in enumerate(order):
        at, length = max(gaps[i] + used, end), lengths[which]
        result[which] = (at, length)
        used += length
        end = at + length
    return result


def gather(memory, places):
    return b''.join(bytes(memory.map[o:o + n]) for o, n in places)


class Lists:
    """Both sides of a transfer, the list in a buffer of its own."""

    def __init__(self, t, size=SIZE):
        self.two = Two(t, size=size)
        self.table = self.two.b.buffer(SIZE)

    def by_reference(self, opcode, local, remote, offset=0, **options):
        self.table.put_list(offset, list(local) + list(remote))
        return self.two.b.run(opcode, self.two.eb, list_buffer=self.table.number, list_offset=offset,
                              local_count=len(local), remote_count=len(remote), **options)

    def move(self, rng, opcode, n_local, n_remote, total, tokens=1):
        """Moves total bytes between random places, and compares all memory with what it must be."""
        two = self.two
        here = scatter(rng, odd_lengths(rng, n_local, total), two.mb.size)
        there = scatter(rng, odd_lengths(rng, n_remote, total), two.ma.size)
        # Copies over each other, each written in part, would undo what was written to another.
        tokens = 1 if two.snapshots else tokens
        granted = [two.grant(0, two.ma.size, read=opcode == READ) for _ in range(tokens)]
        local = [two.mb.segment(o, n) for o, n in here]
        remote = [rng.choice(granted).segment(o, n) for o, n in there]
        expected = {two.ma: bytearray(two.ma.map[:]), two.mb: bytearray(two.mb.map[:])}
        if opcode == WRITE and two.snapshots:
            expected[two.ma][:] = bytes(two.ma.size)  # what a copy has where nothing was written
        source, sink = ((two.ma, there), (two.mb, here))[::1 if opcode == READ else -1]
        data, at = gather(*source), 0
        for offset, length in sink[1]:
            expected[sink[0]][offset:offset + length] = data[at:at + length]
            at += length
        # It has to be there, not just sent.
        flags = raw.F_PLACED if opcode == WRITE and raw.OVER_TCP else 0
        if n_local <= raw.SEGMENTS_INLINE and n_remote <= raw.SEGMENTS_INLINE and rng.random() < 0.5:
            done = two.b.run(opcode, two.eb, local, remote, flags=flags)
        else:
            done = self.by_reference(opcode, local, remote, 8 * rng.randrange(100), flags=flags)
        status_is(done, 0)
        equal(done.byte_len, total, 'byte_len')
        if opcode == WRITE and two.snapshots:
            # What is sent behind it is there after it.
            recv = two.a.start(raw.RECV, two.ea)
            two.b.do(raw.SEND, two.eb)
            status_is(two.a.finish(recv), 0)
            two.landed(granted.pop())
        for memory, content in expected.items():
            same_bytes(memory.map[:], content, '%s memory after opcode %d, %d by %d segments' % (
                'local' if memory is two.mb else 'remote', opcode, n_local, n_remote))
        for token in granted:
            two.a.do(raw.REVOKE, two.ea, key=token.grant)


@test(timeout=60)
def random_shapes(t):
    lists = Lists(t)
    for seed in range(400 if FULL else 60):
        rng = random.Random(seed)
        n_local, n_remote = (rng.choice((1, 2, 3, 30, 64, 65, 300)) for _ in range(2))
        total = rng.randrange(max(n_local, n_remote) + 1, 400000)
        try:
            lists.move(rng, rng.choice((READ, WRITE)), n_local, n_remote, total, rng.choice((1, 2, 5)))
        except AssertionError as e:
            raise AssertionError('seed %d: %s' % (seed, e)) from None


@test(timeout=60)
def segments_4096_by_4096(t):
    lists = Lists(t)
    for opcode in (READ, WRITE):
        lists.move(random.Random(opcode), opcode, 4096, 4096, 300001, 8)
        lists.move(random.Random(opcode), opcode, 4096, 1, 4097, 1)
        lists.move(random.Random(opcode), opcode, 1, 4096, 1000001, 8)


@test()
def too_many_segments(t):
    lists = Lists(t)
    two = lists.two
    token = two.grant(0, SIZE)
    one = two.mb.segment(0, 1)
    for local, remote in ((4097, 1), (1, 4097), (4097, 4097)):
        status_is(lists.by_reference(READ, [one] * local, [token.segment(0, 1)] * remote), EINVAL, E2BIG,
                  EMSGSIZE)
    for local, remote in ((0xffffffff, 1), (1, 0xffffffff), (0xffffffff, 0xffffffff), (1 << 31, 1 << 31)):
        status_is(two.b.run(READ, two.eb, list_buffer=lists.table.number, local_count=local,
                            remote_count=remote), EINVAL, E2BIG, EMSGSIZE)
    unchanged(two.mb, 2)
    status_is(lists.by_reference(READ, [one], [token.segment(0, 1)]), 0)


@test()
def lists_outside_their_buffer(t):
    lists = Lists(t)
    two = lists.two
    token = two.grant(0, SIZE)
    good = [two.mb.segment(0, 1)], [token.segment(0, 1)]
    lists.table.put_list(SIZE - 32, good[0] + good[1])
    status_is(two.b.run(READ, two.eb, list_buffer=lists.table.number, list_offset=SIZE - 32,
                        local_count=1, remote_count=1), 0)
    two.mb.map[:] = pattern(2, SIZE)
    for offset in (SIZE - 24, SIZE - 16, SIZE - 8, SIZE, SIZE + 8, (1 << 64) - 8, (1 << 64) - 16,
                   1 << 63, (1 << 64) - SIZE):
        status_is(two.b.run(READ, two.eb, list_buffer=lists.table.number, list_offset=offset,
                            local_count=1, remote_count=1), *BAD_SHAPE)
    for offset in (1, 4, 7, 12, SIZE - 33):
        status_is(two.b.run(READ, two.eb, list_buffer=lists.table.number, list_offset=offset,
                            local_count=1, remote_count=1), EINVAL)
    for buffer in (99, 0xffffffff):
        status_is(two.b.run(READ, two.eb, list_buffer=buffer, local_count=1, remote_count=1), EINVAL, -2,
                  E.LOCAL_ACCESS)
    unchanged(two.mb, 2)


@test()
def lists_of_both_kinds_at_once(t):
    lists = Lists(t)
    two = lists.two
    token = two.grant(0, 100)
    done = two.b.run(READ, two.eb, [two.mb.segment(0, 1)], [token.segment(0, 1)], local_count=5,
                     remote_count=5)
    check(done.status in (0, EINVAL), raw.status_name(done.status))
    lists.table.put_list(0, [two.mb.segment(0, 1), token.segment(0, 1)])
    try:
        status_is(two.b.run(READ, two.eb, [two.mb.segment(0, 1)], [token.segment(0, 1)],
                            list_buffer=lists.table.number, local_count=1, remote_count=1), EINVAL)
    except Ended as e:
        status_is(e, E.PROTOCOL)


@test()
def bad_entries_of_a_list(t):
    lists = Lists(t)
    two = lists.two
    token = two.grant(0, SIZE)
    many = 200
    for bad in ((SIZE, 1, two.mb.number), ((1 << 64) - 1, 1, two.mb.number), (0, 1, 99)):
        for at in (0, 57, many - 1):
            local = [two.mb.segment(i, 1) for i in range(many)]
            local[at] = bad
            status_is(lists.by_reference(READ, local, [token.segment(0, many)]), *BAD_SHAPE, -2)
    unchanged(two.mb, 2)


@test()
def the_list_is_copied_once(t):
    """What the client writes into the list after it was submitted changes nothing of that transfer."""
    lists = Lists(t, size=8 << 20)
    two = lists.two
    token = two.grant()
    local = [two.mb.segment(65536 * i, 65536) for i in range(100)]
    remote = [token.segment(65536 * i, 65536) for i in range(100)]
    for _ in range(20):
        lists.table.put_list(0, local + remote)
        cookie = two.b.start(READ, two.eb, list_buffer=lists.table.number, local_count=100,
                             remote_count=100)
        lists.table.map[:3200] = b'\xff' * 3200
        done = two.b.finish(cookie)
        # The list may have been scribbled before it was copied: then it is refused, whole.
        check(done.status == 0 or done.status in BAD_SHAPE or done.status == -2,
              raw.status_name(done.status))
        if done.status == 0:
            equal(bytes(two.mb.map[:6553600]) == bytes(two.ma.map[:6553600]), True, 'bytes')
    serves = two.b.query('status')
    check(serves, 'the session is served')


@test()
def messages_of_many_segments_go_through_a_slab(t):
    """More pieces than any device takes, and more than fit into the ring at once."""
    lists = Lists(t)
    two = lists.two
    pieces = [(2 * i, 1) for i in range(4096)]
    for _ in range(3):
        recv = two.a.start(RECV, two.ea, [two.ma.segment(0, 8192)])
        status_is(lists.by_reference(SEND, [two.mb.segment(o, n) for o, n in pieces], []), 0)
        done = two.a.finish(recv)
        status_is(done, 0)
        equal(done.byte_len, 4096, 'byte_len')
        equal(bytes(two.ma.map[:4096]), gather(two.mb, pieces), 'bytes')


@test()
def a_message_longer_than_the_ring(t):
    """A larger one takes the place of the ring; short ones go on behind it."""
    lists = Lists(t, size=4 << 20)
    two = lists.two
    pieces = [(8192 * i, 4097) for i in range(300)]
    if raw.PROFILE == 'worst':  # a message has 1 MiB at most there, which is what the ring has
        refused = lists.by_reference(SEND, [two.mb.segment(o, n) for o, n in pieces], [])
        status_is(refused, EMSGSIZE)
        check('at most 1048576 bytes, and at most 1048576 in more than 2 pieces' in refused.text, refused.text)
        pieces = [(8192 * i, 4096) for i in range(256)]
    total = sum(n for _, n in pieces)
    for _ in range(2):
        recvs = [two.a.start(RECV, two.ea, [two.ma.segment(0, total)]), two.a.start(RECV, two.ea, [two.ma.segment(total, 8)])]
        status_is(lists.by_reference(SEND, [two.mb.segment(o, n) for o, n in pieces], []), 0)
        status_is(two.b.run(SEND, two.eb, [two.mb.segment(0, 8)]), 0)
        for recv, bytes_each in zip(recvs, (total, 8)):
            done = two.a.finish(recv)
            status_is(done, 0)
            equal(done.byte_len, bytes_each, 'byte_len')
        same_bytes(two.ma.map[:total], gather(two.mb, pieces), 'what arrived')


@test()
def a_recv_scatters_out_of_its_slab(t):
    two = Two(t, recv_stage_bytes=65536)
    before = bytes(two.ma.map)
    table = two.a.buffer(SIZE)
    pieces = [(3 * i, 2) for i in range(2000)]
    table.put_list(0, [two.ma.segment(o, n) for o, n in pieces])
    for length in (4000, 3999, 1, 0):
        two.ma.map[:] = before
        recv = two.a.start(RECV, two.ea, list_buffer=table.number, local_count=len(pieces))
        status_is(two.b.run(SEND, two.eb, [two.mb.segment(17, length)] if length else []), 0)
        done = two.a.finish(recv)
        status_is(done, 0)
        equal(done.byte_len, length, 'byte_len')
        expected = bytearray(before)
        for i, (offset, n) in enumerate(pieces):
            n = max(0, min(n, length - 2 * i))
            expected[offset:offset + n] = two.mb.map[17 + 2 * i:17 + 2 * i + n]
        equal(bytes(two.ma.map) == bytes(expected), True, 'memory after %d bytes' % length)


@test()
def a_recv_finds_its_slab_full(t):
    two = Two(t, recv_stage_bytes=8192)
    table = two.a.buffer(SIZE)
    table.put_list(0, [two.ma.segment(2 * i, 1) for i in range(3000)])
    many = {'list_buffer': table.number, 'local_count': 3000}
    first, second = (two.a.start(RECV, two.ea, **many) for _ in range(2))
    status_is(two.a.run(RECV, two.ea, **many), EAGAIN)
    for recv in (first, second):
        status_is(two.b.run(SEND, two.eb, [two.mb.segment(0, 3000)]), 0)
        status_is(two.a.finish(recv), 0)
    status_is(two.a.run(RECV, two.ea, list_buffer=table.number, list_offset=0, local_count=4097), EINVAL,
              E2BIG)
    third = two.a.start(RECV, two.ea, **many)
    status_is(two.b.run(SEND, two.eb, [two.mb.segment(0, 3000)]), 0)
    status_is(two.a.finish(third), 0)
