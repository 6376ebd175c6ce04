# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Grants: exactly these bytes, for one peer, in one direction, until they end."""
import random
import time

import raw
from harness import check, equal, same_bytes, status_is, test, until
from raw import E, Pair, READ, WRITE, RECV, SEND, REVOKE
from test_transfers import EINVAL, ENOENT, SIZE, Two, pattern, unchanged


@test()
def beyond_the_grant_by_one_byte(t):
    two = Two(t)
    for read in (True, False):
        for before, after in ((1, 0), (0, 1), (4096, 0), (SIZE, 0), (0, SIZE - 12388)):
            before = min(before, 4097)
            beyond(two, 4097, two.grant(4097, 8191, read=read), read, before, after)
        # Where the good part is longer than what is copied at once, it does not move either.
        beyond(two, 0, two.grant(0, SIZE // 2, read=read), read, 0, 1)


def beyond(two, offset, token, read, before, after):
    memory = bytes(two.ma.map), bytes(two.mb.map)
    length = token.length + before + after
    run = two.read if read else two.write
    done = run(token, two.mb.segment(0, length), (token.address - before, length, token.rkey))
    status_is(done, *(raw.REFUSED if read else raw.REFUSED_WRITE))
    two.disconnected()
    after = bytes(two.ma.map), bytes(two.mb.map)
    if two.snapshots and read:
        # What was read before the device refused the rest may have been copied.
        beginning = memory[0][offset:offset + token.length]
        for i in (i for i in range(token.length) if after[1][i] != memory[1][i]):
            equal(after[1][i], beginning[i], 'byte %d of what was read' % i)
        after = after[0], memory[1][:length] + after[1][length:]
    if two.snapshots and not read:
        # What was granted has become the copy, which may have the beginning of what was sent.
        granted = slice(offset, offset + token.length)
        after = after[0][:offset] + memory[0][granted] + after[0][granted.stop:], after[1]
    if raw.OVER_TCP and not read:
        # It went in segments, and those that were good have arrived.
        granted = slice(offset, offset + token.length)
        after = after[0][:offset] + memory[0][granted] + after[0][granted.stop:], after[1]
    if (two.snapshots or raw.FORCE == 'stage') and read:
        # It went in pieces, and those that were good have arrived.
        after = after[0], memory[1][:token.length] + after[1][token.length:]
    for side in range(2):
        same_bytes(after[side], memory[side], 'memory of %s after %s of %d bytes from %d on' % (
            'ab'[side], 'a READ' if read else 'a WRITE', length, offset - before))
    two.again()


@test()
def addresses_that_wrap(t):
    two = Two(t)
    for address, length in ((0, 1), ((1 << 64) - 1, 1), ((1 << 64) - 1, 2), ((1 << 64) - 4096, 8192),
                            (1 << 63, 100)):
        token = two.grant(0, 4096)
        if address == 0 and token.address == 0:
            continue
        done = two.read(token, two.mb.segment(0, length), (address, length, token.rkey))
        status_is(done, *raw.REFUSED, EINVAL)
        unchanged(two.mb, 2)
        if done.status != EINVAL:
            two.again()


@test()
def a_grant_has_one_direction(t):
    two = Two(t)
    token = two.grant(0, 100, read=True)
    done = two.write(token)
    status_is(done, *raw.REFUSED_WRITE)
    two.disconnected()
    two.again()
    token = two.grant(0, 100, read=False)
    done = two.read(token)
    if two.snapshots and done.status == 0:
        # The copy: what this peer wrote to it, which is nothing.
        equal(bytes(two.mb.map[:100]), bytes(100), 'what was read')
        return
    status_is(done, *raw.REFUSED)
    unchanged(two.ma, 1)
    unchanged(two.mb, 2)


@test()
def keys_that_were_never_given(t):
    two = Two(t)
    rng = random.Random(9)
    for other in (lambda key: 0, lambda key: 0xffffffff, lambda key: key ^ 1, lambda key: key ^ 0x80,
                  lambda key: key ^ 0x100, lambda key: key ^ 0x80000000,
                  lambda key: rng.getrandbits(32)):
        token = two.grant(0, 100)
        status_is(two.read(token, None, (token.address, 100, other(token.rkey))), *raw.REFUSED)
        unchanged(two.mb, 2)
        two.again()


@test()
def a_revoked_key_is_dead_when_the_revoke_completes(t):
    two = Two(t)
    for _ in range(20):
        token = two.grant(0, 100)
        two.a.do(REVOKE, two.ea, key=token.grant)
        status_is(two.read(token), *raw.REFUSED)
        two.again()
    unchanged(two.mb, 2)
    token = two.grant(0, 100)
    two.a.do(REVOKE, two.ea, key=token.grant)
    status_is(two.a.run(REVOKE, two.ea, key=token.grant), E.GRANT_ENDED, ENOENT)


@test()
def a_revoke_ends_transfers_that_use_the_key(t):
    """What its owner writes after the revoke has completed, no READ sees; what a WRITE carries lands before."""
    size, tail = 32 << 20, 1 << 20  # the tail is what a READ that goes on would come to last
    two = Two(t, size=size)
    later = b'n' * tail

    def cut_short(opcode):
        """False where all was done before the revoke, as on a machine that stalls."""
        two.ma.map[:] = b'o' * size
        two.mb.map[:] = b'-' * size
        token = two.grant(read=opcode == READ)
        cookies = [two.b.start(opcode, two.eb, [two.mb.segment()], [token.segment()]) for _ in range(8)]
        two.a.do(REVOKE, two.ea, key=token.grant)
        two.ma.map[size - tail:] = later
        statuses = [two.b.finish(cookie).status for cookie in cookies]
        if opcode == READ:
            equal(two.mb.map[:].count(b'n'), 0, 'bytes that were written after the revoke')
        else:
            equal(two.ma.map[size - tail:].count(b'n'), tail, 'bytes that stayed as their owner wrote them')
        two.again()
        return statuses[-1] != 0

    for opcode, what in ((READ, 'READs'), (WRITE, 'WRITEs')) * 2:
        check(any(cut_short(opcode) for _ in range(20)), 'all %s were faster than the revoke' % what)


@test()
def keys_do_not_return_soon(t):
    two = Two(t)
    seen = set()
    for _ in range(600):
        token = two.grant(0, 100)
        check(token.rkey not in seen, 'a key was given twice among %d' % len(seen))
        seen.add(token.rkey)
        two.a.do(REVOKE, two.ea, key=token.grant)


@test()
def an_expired_grant_is_dead(t):
    two = Two(t)
    # On a machine that stalls it may be dead before it is used: then once more.
    for _ in range(20):
        token = two.grant(0, 100, lifetime_ms=500)
        done = two.read(token)
        if done.status == 0:
            break
        status_is(done, *raw.REFUSED)
        two.again()
    status_is(done, 0)
    until(lambda: not two.a.rows('grants'), 'the grant has expired', 10)
    two.mb.map[:] = pattern(2, SIZE)
    status_is(two.a.run(REVOKE, two.ea, key=token.grant), E.GRANT_ENDED, ENOENT)
    status_is(two.read(token), *raw.REFUSED)
    unchanged(two.mb, 2)


@test()
def a_grant_ends_with_its_endpoint(t):
    two = Two(t)
    token = two.grant(0, 100)
    two.again()
    status_is(two.read(token), *raw.REFUSED)
    unchanged(two.mb, 2)
    equal(two.a.rows('grants'), [], 'grants')
    two.ma.remove()  # and its buffer is free


@test()
def a_token_works_for_its_peer_only(t):
    two = Two(t)
    token = two.grant(0, 4096)
    thief = t.session(2)
    loot = thief.buffer(4096, content=b'-' * 4096)
    # The thief is connected to the same owner, and has the whole token.
    for _ in range(2):
        stolen = Pair.__new__(Pair)
        stolen.a, stolen.b, stolen.options = two.a, thief, {}
        stolen.listener, stolen.port = two.listener, two.port
        stolen.connect()
        done = thief.run(READ, stolen.eb, [loot.segment()], [token.segment()])
        status_is(done, *raw.REFUSED)
        equal(bytes(loot.map), b'-' * 4096, 'what the thief has')
        stolen.free()
    # So is another endpoint of the rightful peer.
    second = Pair.__new__(Pair)
    second.a, second.b, second.options = two.a, two.b, {}
    second.listener, second.port = two.listener, two.port
    second.connect()
    status_is(two.b.run(READ, second.eb, [two.mb.segment(0, 4096)], [token.segment()]), *raw.REFUSED)
    unchanged(two.mb, 2)
    second.free()
    # And nobody reads through a grant of their own memory by a foreign key.
    status_is(two.a.run(READ, two.ea, [two.ma.segment(0, 4096)], [token.segment()]), *raw.REFUSED)


@test()
def a_send_with_invalidate_ends_the_grant(t):
    two = Two(t)
    token = two.grant(0, 100)
    recv = two.a.start(RECV, two.ea, [two.ma.segment(SIZE - 64, 64)])
    if not two.invalidates:
        status_is(two.b.run(SEND, two.eb, [two.mb.segment(0, 5)], flags=raw.F_INVALIDATE, key=token.rkey),
                  E.UNSUPPORTED)
        status_is(two.read(token), 0)
        return
    two.b.do(SEND, two.eb, [two.mb.segment(0, 5)], flags=raw.F_INVALIDATE, key=token.rkey)
    got = two.a.finish(recv)
    status_is(got, 0)
    check(got.flags & raw.CF_INVALIDATED, 'the RECV does not say that a grant was ended')
    equal(got.grant, token.grant, 'the grant that the RECV names')
    status_is(two.a.run(REVOKE, two.ea, key=token.grant), E.GRANT_ENDED, ENOENT)
    status_is(two.read(token), *raw.REFUSED)


@test()
def invalidating_what_is_not_theirs(t):
    two, other = Two(t), Two(t, users=(2, 3))
    if not two.invalidates:
        t.skip('the fabric invalidates nothing')
    foreign = other.grant(0, 100)
    recv = two.a.start(RECV, two.ea, [two.ma.segment(0, 64)])
    done = two.b.run(SEND, two.eb, [two.mb.segment(0, 5)], flags=raw.F_INVALIDATE, key=foreign.rkey)
    check(done.status in (0, E.REMOTE_ACCESS, E.REMOTE_FAULT, E.FLUSHED), raw.status_name(done.status))
    check(two.a.finish(recv).status != 0, 'a foreign key was invalidated')
    status_is(other.read(foreign), 0)


@test()
def lifetimes_of_any_length(t):
    two = Two(t)
    for lifetime in ((1 << 64) - 1, 1 << 63, (1 << 63) // 10 ** 6, (1 << 64) // 10 ** 6 + 1, 1 << 45):
        token = two.grant(0, 100, lifetime_ms=lifetime)
        status_is(two.read(token), 0)
    time.sleep(0.05)
    equal(len(two.a.rows('grants')), 5, 'grants that live')
