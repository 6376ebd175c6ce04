# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Grants of several pieces, and tokens that the daemon writes into the SEND that goes with them."""
import itertools
import random

import raw
from harness import check, equal, same_bytes, status_is, test, until
from raw import E, CANCEL, GRANT, READ, RECV, REVOKE, SEND, WRITE, Pair, Token
from test_ladder import like
from test_transfers import EAGAIN, ECANCELED, EINVAL, EMSGSIZE, ENOENT, SIZE, Two, pattern, unchanged

ADDRESS, LENGTH, RKEY = range(3)
BIG = 0x100
# Each field in each width it may have.
FIELDS = ((ADDRESS, 8), (LENGTH, 3), (LENGTH, 4), (LENGTH, 8), (RKEY, 4), (RKEY, 8))
RANGES = 256
ENOMEM = -12


class Pieces(Two):
    """A pair whose first grants pieces of three buffers."""

    def __init__(self, t, **options):
        super().__init__(t, **options)
        self.more = [self.a.buffer(SIZE, content=pattern(seed, SIZE)) for seed in (11, 12)]
        self.buffers = [self.ma, *self.more]
        self.table = self.a.buffer(65536)

    def cut(self, rng, count, most=5000):
        """count pieces of the buffers, [(buffer, offset, length)], which do not overlap."""
        room = SIZE // count
        return [(rng.choice(self.buffers), i * room + rng.randrange(room // 2),
                 rng.randrange(1, min(most, room // 2))) for i in range(count)]

    def grant_of(self, pieces, read=True, lifetime_ms=0):
        self.table.put_list(0, [m.segment(o, n) for m, o, n in pieces])
        done = self.a.run(GRANT, self.ea, list_buffer=self.table.number, local_count=len(pieces),
                          argument=lifetime_ms, flags=raw.F_GRANT_READ if read else raw.F_GRANT_WRITE)
        status_is(done, 0)
        equal(done.byte_len, sum(n for _, _, n in pieces), 'bytes of the grant')
        return Token(done.address, done.byte_len, done.rkey, done.grant)


def bytes_of(pieces):
    return b''.join(bytes(m.map[o:o + n]) for m, o, n in pieces)


def seams(pieces):
    """Where a piece begins, in the token's bytes."""
    return list(itertools.accumulate(n for _, _, n in pieces))[:-1]


@test()
def the_peer_sees_pieces_side_by_side(t):
    two = Pieces(t)
    rng = random.Random(21)
    for count in (2, 3, 17, RANGES):
        pieces = two.cut(rng, count, 900)
        data = bytes_of(pieces)
        token = two.grant_of(pieces)
        status_is(two.read(token), 0)
        same_bytes(two.mb.map[:len(data)], data, 'all of %d pieces' % count)
        for seam in rng.sample(seams(pieces), min(count - 1, 12)):
            for first, n in ((seam - 1, 2), (seam, 1), (seam - 1, 1), (max(0, seam - 1500), 2000)):
                n = min(n, token.length - first)
                two.mb.map[:n] = bytes(n)
                status_is(two.read(token, two.mb.segment(0, n), token.segment(first, n)), 0)
                same_bytes(two.mb.map[:n], data[first:first + n], '%d bytes at %d' % (n, first))
        two.a.do(REVOKE, two.ea, key=token.grant)


@test()
def the_peer_writes_over_seams(t):
    writes(t)


def writes(t):
    two = Pieces(t)
    rng = random.Random(22)
    flags = raw.F_PLACED if raw.SENT_IS_DONE else 0
    for count in (2, 5, RANGES):
        pieces = two.cut(rng, count, 900)
        token = two.grant_of(pieces, read=False)
        expected = {m: bytearray(m.map[:]) for m in two.buffers}
        place = [(m, o + i) for m, o, n in pieces for i in range(n)]
        if two.snapshots:
            for m, at in place:
                expected[m][at] = 0
        for seam in rng.sample(seams(pieces), min(count - 1, 10)):
            first = max(0, seam - rng.randrange(1, 700))
            n = min(rng.randrange(seam - first + 1, 1500), token.length - first)
            source = rng.randrange(SIZE - n)
            status_is(two.write(token, two.mb.segment(source, n), token.segment(first, n), flags=flags), 0)
            for i, (m, at) in enumerate(place[first:first + n]):
                expected[m][at] = two.mb.map[source + i]
        if two.snapshots:
            recv = two.a.start(RECV, two.ea)
            two.b.do(SEND, two.eb)
            status_is(two.a.finish(recv), 0)
        two.a.do(REVOKE, two.ea, key=token.grant)
        for m, content in expected.items():
            same_bytes(m.map[:], content, 'memory after WRITEs into %d pieces' % count)


@test(config=like('siw'))
def pieces_of_a_copy(t):
    """Where grants are copies they are of several pieces too."""
    writes(t)
    two = Pieces(t)
    pieces = two.cut(random.Random(23), 40)
    status_is(two.read(two.grant_of(pieces)), 0)
    data = bytes_of(pieces)
    same_bytes(two.mb.map[:len(data)], data, 'all of them')


@test()
def outside_the_pieces_by_one_byte(t):
    two = Pieces(t)
    rng = random.Random(24)
    for read in (True, False):
        for before, after in ((1, 0), (0, 1), (1, 1), (4096, 0), (0, 4096)):
            pieces = two.cut(rng, 7, 400)
            memory = [bytes(m.map[:]) for m in two.buffers]
            token = two.grant_of(pieces, read)
            n = token.length + before + after
            done = (two.read if read else two.write)(token, two.mb.segment(0, n),
                                                      (token.address - before, n, token.rkey))
            status_is(done, *(raw.REFUSED if read else raw.REFUSED_WRITE))
            two.disconnected()
            if read:
                unchanged(two.mb, 2)
            elif raw.OVER_TCP:
                # It came in segments, and the good ones have arrived.
                for m, o, k in pieces:
                    i = two.buffers.index(m)
                    memory[i] = memory[i][:o] + bytes(m.map[o:o + k]) + memory[i][o + k:]
            for m, content in zip(two.buffers, memory):
                same_bytes(m.map[:], content, 'memory after %d bytes too many' % (before + after))
            two.again()


@test()
def each_end_of_pieces(t):
    two = Pieces(t)
    rng = random.Random(25)
    ends = ['revoke', 'expiry', 'disconnect'] + ['invalidated'] * two.invalidates
    for how in ends:
        pieces = two.cut(rng, 9)
        token = two.grant_of(pieces, lifetime_ms=50 if how == 'expiry' else 0)
        if how != 'expiry':  # by then it may have expired
            check(two.a.call_raw('buffer_remove', buffer=pieces[4][0].number).status != 0, 'a granted buffer went')
        if how == 'revoke':
            two.a.do(REVOKE, two.ea, key=token.grant)
        elif how == 'expiry':
            until(lambda: not two.a.rows('grants'), 'the grant has expired')
        elif how == 'invalidated':
            recv = two.a.start(RECV, two.ea)
            two.b.do(SEND, two.eb, flags=raw.F_INVALIDATE, key=token.rkey)
            equal(two.a.finish(recv).grant, token.grant, 'the grant that the RECV names')
        else:
            two.again()
        two.mb.map[:] = pattern(2, SIZE)
        status_is(two.read(token), *raw.REFUSED)
        unchanged(two.mb, 2)
        two.again()
        equal(two.a.rows('grants'), [], 'grants')
    for m in two.buffers:
        m.remove()


@test()
def as_many_pieces_as_a_key_has(t):
    two = Pieces(t)
    segments = [two.ma.segment(16 * i, 3) for i in range(RANGES + 1)]
    table = two.a.buffer(SIZE)
    table.put_list(0, segments)
    def grant(n, **options):
        return two.a.run(GRANT, two.ea, list_buffer=table.number, local_count=n, flags=raw.F_GRANT_READ, **options)
    token = grant(RANGES)
    status_is(token, 0)
    equal(token.byte_len, 3 * RANGES, 'bytes')
    done = grant(RANGES + 1)
    status_is(done, E.UNSUPPORTED)
    check('256' in done.text and '257' in done.text, 'what it says: ' + done.text)
    # Pieces of nothing do not count.
    table.put_list(0, [(0, 0, 0)] * 1000 + segments[:RANGES] + [(5, 0, 99)] * 1000)
    status_is(grant(2000 + RANGES), 0)
    table.put_list(0, [(0, 0, 0)] * 9)
    status_is(grant(9), EINVAL)
    # In all they are at most 4 GiB - 1.
    big = two.ma.segment(0, SIZE)
    table.put_list(0, [big] * 4096)
    status_is(grant(4096), EINVAL, E.UNSUPPORTED)
    for bad in ((SIZE, 1, two.ma.number), ((1 << 64) - 1, 2, two.ma.number), (0, 1, 999)):
        table.put_list(0, segments[:40] + [bad] + segments[40:80])
        status_is(grant(81), EINVAL, E.LOCAL_ACCESS, ENOENT)
    equal(len(two.a.rows('grants')), 2, 'grants')


@test(config=like('mthca'))
def one_piece_is_all_that_a_key_has(t):
    two = Pieces(t)
    done = two.a.run(GRANT, two.ea, [two.ma.segment(0, 1), two.ma.segment(5, 1)], flags=raw.F_GRANT_READ)
    status_is(done, E.UNSUPPORTED)
    check('1 pieces' in done.text and ' 2' in done.text, 'what it says: ' + done.text)
    status_is(two.read(two.grant_of([(two.ma, 0, 10)])), 0)


# ---- links

class Linked(Two):
    """A pair whose first sends tokens in its messages: message is what it sends."""

    def __init__(self, t, **options):
        super().__init__(t, **options)
        self.message = self.a.buffer(65536)
        self.inbox = self.b.buffer(65536)

    def linked(self, offset, length, patches, read=True, lifetime_ms=0, extra=0):
        """A GRANT of a's memory with these patches, [(offset, width, field)]."""
        return self.a.request(GRANT, self.ea, [self.ma.segment(offset, length)], list(patches),
                              flags=(raw.F_GRANT_READ if read else raw.F_GRANT_WRITE) | raw.F_LINK | extra,
                              argument=lifetime_ms)

    def sending(self, n, **options):
        return self.a.request(SEND, self.ea, [self.message.segment(0, n)], **options)

    def recv(self):
        return self.b.start(RECV, self.eb, [self.inbox.segment()])

    def both(self, *requests):
        """Posts them in one packet; their completions."""
        return [self.a.finish(cookie) for cookie in self.a.submit(*requests)]

    def arrived(self, recv, n):
        done = self.b.finish(recv)
        status_is(done, 0)
        equal(done.byte_len, n, 'bytes that arrived')
        return bytes(self.inbox.map[:n])

    def reads(self, address, length, rkey, offset):
        """By the token as the message brought it."""
        status_is(self.read(None, self.mb.segment(0, length), (address, length, rkey)), 0)
        same_bytes(self.mb.map[:length], self.ma.map[offset:offset + length], 'what the token shows')

    def works(self):
        """A grant and a SEND without a link, after whatever went before."""
        recv = self.recv()
        self.message.map[:64] = b'~' * 64
        status_is(self.both(self.sending(64))[0], 0)
        equal(self.arrived(recv, 64), b'~' * 64, 'a message without a link')
        self.b.do(READ, self.eb, [self.mb.segment(0, 5)], [self.grant(0, 5).segment()])


def encoded(token, field, width):
    value = {ADDRESS: token.address, LENGTH: token.byte_len, RKEY: token.rkey}[field & 0xff]
    return value.to_bytes(width, 'big' if field & BIG else 'little')


@test()
def each_field_in_each_width_and_order(t):
    two = Linked(t)
    rng = random.Random(31)
    choices = [(field | big, width) for field, width in FIELDS for big in (0, BIG)]
    for number in (1, 2, 3):
        # Each alone, and then some of the others together, in any order in the message.
        sets = [(c,) for c in choices] if number == 1 else [rng.sample(choices, number) for _ in range(12)]
        for chosen in sets:
            size = rng.randrange(8 * number + 8, 200)
            places = sorted(rng.sample(range(size // 8), number))
            rng.shuffle(places)
            patches = [(8 * place + rng.randrange(9 - width), width, field)
                       for place, (field, width) in zip(places, chosen)]
            content = rng.randbytes(size)
            two.message.map[:size] = content
            offset, length = rng.randrange(1000), rng.randrange(1, 70000)
            recv = two.recv()
            grant, sent = two.both(two.linked(offset, length, patches), two.sending(size))
            status_is(grant, 0)
            status_is(sent, 0)
            for at, width, field in patches:
                content = content[:at] + encoded(grant, field, width) + content[at + width:]
            same_bytes(two.arrived(recv, size), content, 'the message with patches %s' % patches)
            same_bytes(two.message.map[:size], content, 'the memory that was sent')
            two.reads(grant.address, length, grant.rkey, offset)
            two.a.do(REVOKE, two.ea, key=grant.grant)


@test()
def many_grants_into_one_message(t):
    two = Linked(t)
    for count in (2, 50, RANGES):
        requests = [two.linked(100 * i, 100, [(20 * i, 8, ADDRESS | BIG), (20 * i + 8, 4, LENGTH | BIG),
                                              (20 * i + 12, 8, RKEY)]) for i in range(count)]
        recv = two.recv()
        done = two.both(*requests, two.sending(20 * count))
        for completion in done:
            status_is(completion, 0)
        content = two.arrived(recv, 20 * count)
        for i in random.Random(count).sample(range(count), min(count, 8)):
            part = content[20 * i:20 * i + 20]
            two.reads(int.from_bytes(part[:8], 'big'), int.from_bytes(part[8:12], 'big'),
                      int.from_bytes(part[12:], 'little'), 100 * i)
        for completion in done[:-1]:
            two.a.do(REVOKE, two.ea, key=completion.grant)
    two.works()


@test()
def a_field_over_the_border_of_segments(t):
    two = Linked(t)
    # In many pieces (more than any list has), in few, and through both buffers.
    for lengths in ([3, 5, 0, 1, 7, 24], [1] * 40, [9, 31], [15, 1, 0, 0, 2, 22]):
        segments, at = [], 0
        for i, n in enumerate(lengths):
            segments.append((two.message if i % 2 else two.ma).segment(500000 % two.message.size + 3 * at, n))
            at += n
        patches = [(1, 8, ADDRESS), (11, 8, RKEY | BIG), (32, 8, LENGTH)]
        recv = two.recv()
        grant, sent = two.both(two.linked(0, 4000, patches), two.a.request(SEND, two.ea, segments))
        status_is(grant, 0)
        status_is(sent, 0)
        content = two.arrived(recv, 40)
        for offset, width, field in patches:
            equal(content[offset:offset + width], encoded(grant, field, width), 'field %d' % field)
        two.a.do(REVOKE, two.ea, key=grant.grant)


@test()
def a_patch_outside_its_message(t):
    two = Linked(t)
    for offset in (25, 24, 32, 1 << 31, (1 << 64) - 1, (1 << 64) - 8, 1 << 63):
        recv = two.recv()
        patch = (offset if offset > 24 else 25, 8, ADDRESS)
        grant, sent = two.both(two.linked(0, 100, [patch]), two.sending(32))
        status_is(grant, 0)
        status_is(sent, EINVAL)
        check(str(patch[0]) in sent.text and '32' in sent.text, 'what it says: ' + sent.text)
        # An empty one is too short as well; the peer's RECV is still there, and the link waits on.
        status_is(two.a.run(SEND, two.ea), EINVAL)
        if patch[0] < 1000:
            status_is(two.both(two.sending(64))[0], 0)
            equal(two.arrived(recv, 64)[patch[0]:patch[0] + 8], encoded(grant, ADDRESS, 8), 'the address')
            two.works()
        else:
            two.again()
    two.works()


@test()
def a_grant_that_is_refused(t):
    """Its SEND does not go, wherever the GRANT failed."""
    two = Linked(t)
    good = [(0, 8, ADDRESS)]
    refused = [two.a.request(GRANT, two.ea, [two.ma.segment(2 * i, 1)], good, flags=raw.F_GRANT_READ | raw.F_LINK)
               for i in range(1)]
    refused[0].local.add(address=SIZE, length=1, key=two.ma.number)
    refused += [two.linked(0, 100, patches) for patches in (
        [], good * 4, [(0, 3, ADDRESS)], [(0, 4, ADDRESS)], [(0, 3, RKEY)], [(0, 8, 3)], [(0, 0, LENGTH)],
        [(0, 255, LENGTH)], [(0, 8, 0x1000)], [(0, 8, 0xffffffff)], good + [(8, 5, RKEY)])]
    refused.append(two.linked(0, 0, good))
    refused.append(two.linked(0, 100, good, extra=raw.F_GRANT_WRITE))
    for request in refused:
        recv = two.recv()
        two.message.map[:64] = b'?' * 64
        grant, fine, sent = two.both(request, two.linked(0, 100, [(8, 8, RKEY)]), two.sending(64))
        status_is(grant, EINVAL, E.LOCAL_ACCESS)
        status_is(fine, 0)
        status_is(sent, E.GRANT_ENDED)
        equal(bytes(two.message.map[:64]), b'?' * 64, 'the message that did not go')
        two.a.do(REVOKE, two.ea, key=fine.grant)
        # That was all: the next goes, to the same RECV.
        status_is(two.both(two.sending(64))[0], 0)
        equal(two.arrived(recv, 64), b'?' * 64, 'the next message')
    # A length that its three bytes do not hold.
    large = Linked(t, size=1 << 24)
    recv = large.recv()
    grant, sent = large.both(large.linked(0, 1 << 24, [(0, 3, LENGTH)]), large.sending(9))
    status_is(grant, EINVAL)
    status_is(sent, E.GRANT_ENDED)
    grant, sent = large.both(large.linked(0, (1 << 24) - 1, [(0, 3, LENGTH)]), large.sending(9))
    status_is(sent, 0)
    equal(large.arrived(recv, 9)[:3], b'\xff' * 3, 'the length')


@test(config='limits { grants = 2 }')
def a_grant_above_the_limit(t):
    two = Linked(t)
    recv = two.recv()
    done = two.both(*[two.linked(0, 100, [(8 * i, 8, ADDRESS)]) for i in range(3)], two.sending(64))
    equal([c.status for c in done], [0, 0, E.QUOTA, E.GRANT_ENDED], 'statuses')
    for completion in done[:2]:
        two.a.do(REVOKE, two.ea, key=completion.grant)
    status_is(two.both(two.linked(0, 100, [(0, 8, ADDRESS)]), two.sending(64))[1], 0)
    two.arrived(recv, 64)


@test(config=like('mthca', 'limits { pinned = 3MiB }'))
def a_grant_that_cannot_be_made(t):
    """It is admitted, and then there is no room for its registration."""
    two = Linked(t, recv_stage_bytes=4096)
    recv = two.recv()
    first, sent = two.both(two.linked(0, SIZE, [(0, 8, ADDRESS)]), two.sending(64))
    status_is(first, 0)
    status_is(sent, 0)
    two.arrived(recv, 64)
    for _ in range(3):
        recv = two.recv()
        grant, fine, sent = two.both(two.linked(0, SIZE, [(0, 8, ADDRESS)]), two.linked(0, 100, [(8, 8, ADDRESS)]),
                                     two.sending(64))
        status_is(grant, E.QUOTA, EAGAIN, ENOMEM)
        status_is(sent, E.GRANT_ENDED)
        status_is(fine, 0)
        status_is(two.both(two.sending(3))[0], 0)
        two.arrived(recv, 3)
        two.a.do(REVOKE, two.ea, key=fine.grant)
    two.a.do(REVOKE, two.ea, key=first.grant)
    recv = two.recv()
    status_is(two.both(two.linked(0, SIZE, [(0, 8, ADDRESS)]), two.sending(64))[1], 0)
    two.arrived(recv, 64)


@test()
def a_grant_is_taken_back(t):
    """Cancelled before it began, with a fence before it that holds it up."""
    two = Linked(t, size=16 << 20)
    back = two.b.grant(two.eb, two.mb.segment())
    never = 0
    for _ in range(20):
        recv = two.recv()
        read = two.a.request(READ, two.ea, [two.ma.segment()], [back.segment()])
        grant = two.linked(0, 100, [(0, 8, ADDRESS), (8, 4, RKEY)], extra=raw.F_FENCE)
        sent = two.sending(64)
        cancel = two.a.request(CANCEL, argument=grant.cookie)
        _, granted, sent, cancelled = two.both(read, grant, sent, cancel)
        status_is(cancelled, 0)
        if granted.status == 0:
            status_is(sent, 0)
            two.arrived(recv, 64)
            two.a.do(REVOKE, two.ea, key=granted.grant)
            continue
        status_is(granted, ECANCELED)
        status_is(sent, E.GRANT_ENDED)
        never += 1
        status_is(two.both(two.sending(3))[0], 0)
        two.arrived(recv, 3)
    t.note('%d of 20 were taken back in time' % never)
    two.works()


@test()
def a_message_is_taken_back(t):
    """Its links go with it, and the grants stay."""
    two = Linked(t, size=16 << 20)
    back = two.b.grant(two.eb, two.mb.segment())
    for _ in range(20):
        recv = two.recv()
        read = two.a.request(READ, two.ea, [two.ma.segment()], [back.segment()])
        sent = two.sending(64, flags=raw.F_FENCE)
        cancel = two.a.request(CANCEL, argument=sent.cookie)
        _, grant, sent, cancelled = two.both(read, two.linked(0, 100, [(0, 8, ADDRESS)]), sent, cancel)
        status_is(cancelled, 0)
        status_is(grant, 0)
        two.message.map[:64] = b'.' * 64
        if sent.status == 0:
            equal(two.arrived(recv, 64)[:8], encoded(grant, ADDRESS, 8), 'the address')
        elif cancelled.immediate == raw.CANCEL_NEVER_STARTED:
            status_is(sent, ECANCELED)
            status_is(two.both(two.sending(64))[0], 0)
            equal(two.arrived(recv, 64), b'.' * 64, 'the next message')
        else:
            two.again()  # it was under way: what had arrived of it nobody knows
            back = two.b.grant(two.eb, two.mb.segment())
            continue
        two.a.do(REVOKE, two.ea, key=grant.grant)
    two.works()


@test()
def a_connection_ends_in_between(t):
    two = Linked(t)
    for _ in range(10):
        status_is(two.both(two.linked(0, 100, [(0, 8, ADDRESS)]))[0], 0)
        two.again()  # nobody waits for that link any more
        two.works()
    for free in (True, False):
        # GRANT and SEND are under way when the peer goes.
        recv = two.recv()
        cookies = two.a.submit(*[r for i in range(50) for r in
                                 (two.linked(0, 100, [(0, 8, ADDRESS)]), two.sending(64))])
        if free:
            two.b.call('endpoint_free', endpoint=two.eb)
        else:
            two.b.call('disconnect', endpoint=two.eb)
        for cookie in cookies:
            two.a.finish(cookie)
        if not free:
            check(two.b.finish(recv).status <= 0, 'the RECV')
            two.b.call('endpoint_free', endpoint=two.eb)
        two.a.call('endpoint_free', endpoint=two.ea)
        two.connect()
        two.works()


@test()
def many_links_and_no_message(t):
    two = Linked(t)
    granted, refused = [], 0
    for _ in range(20):
        for done in two.both(*[two.linked(0, 10, [(0, 8, ADDRESS), (8, 8, RKEY), (16, 8, LENGTH)])
                               for _ in range(100)]):
            status_is(done, 0, EAGAIN)
            refused += done.status != 0
            if done.status == 0:
                granted.append(done.grant)
                two.a.do(REVOKE, two.ea, key=done.grant)  # dead, and still linked
    equal(len(granted), RANGES, 'links that wait')
    equal(refused, 2000 - RANGES, 'links that were refused')
    recv = two.recv()
    status_is(two.both(two.sending(64))[0], E.GRANT_ENDED)
    status_is(two.both(two.sending(64))[0], 0)
    two.arrived(recv, 64)
    two.works()


# ---- nonsense

@test()
def the_flag_on_everything_else(t):
    two = Linked(t)
    token = two.grant(0, 100)
    far = [token.segment(0, 8)]
    for opcode, local, remote in ((READ, True, True), (WRITE, True, True), (SEND, True, False),
                                  (RECV, True, False), (REVOKE, False, False), (CANCEL, False, False)):
        s, ep, buffer = (two.b, two.eb, two.mb) if opcode != REVOKE else (two.a, two.ea, two.ma)
        for patches in ([], [(0, 8, ADDRESS)]):
            done = s.run(opcode, ep, [buffer.segment(0, 8)] if local else [], (far if remote else []) + patches,
                         flags=raw.F_LINK, key=token.grant if opcode == REVOKE else 0, argument=1)
            status_is(done, E.UNSUPPORTED, EINVAL)
    unchanged(two.ma, 1)
    unchanged(two.mb, 2)
    # Patches without the flag.
    status_is(two.a.run(GRANT, two.ea, [two.ma.segment(0, 9)], [(0, 8, ADDRESS)], flags=raw.F_GRANT_READ), EINVAL)
    two.works()


@test()
def patches_of_any_kind(t):
    """Every width, fields and offsets at random: refused, or the message has exactly these bytes."""
    two = Linked(t)
    rng = random.Random(41)
    statuses = {}
    for i in range(600):
        width = i % 256 if i < 256 else rng.choice((3, 4, 8, rng.getrandbits(32)))
        field = rng.choice((ADDRESS, LENGTH, RKEY)) | rng.choice((0, BIG))
        if rng.random() < 0.2:
            field = rng.getrandbits(32)
        offset = rng.choice((rng.randrange(64), (1 << 64) - rng.randrange(1, 20), rng.getrandbits(64), 56, 57, 60))
        patches = [(offset, width, field)] + [(0, 8, ADDRESS)] * rng.choice((0, 0, 1, 2, 3))
        two.message.map[:64] = b'm' * 64
        recv = two.recv()
        grant, sent = two.both(two.linked(0, 100, patches), two.sending(64))
        statuses[grant.status, sent.status] = statuses.get((grant.status, sent.status), 0) + 1
        fits = offset + width <= 64
        if grant.status != 0:
            status_is(grant, EINVAL)
            status_is(sent, E.GRANT_ENDED)
            status_is(two.both(two.sending(64))[0], 0)
            equal(two.arrived(recv, 64), b'm' * 64, 'a message')
        elif not fits:
            status_is(sent, EINVAL)
            two.again()
        else:
            status_is(sent, 0)
            content = two.arrived(recv, 64)
            if len(patches) == 1:
                equal(content, b'm' * offset + encoded(grant, field, width) + b'm' * (64 - offset - width),
                      'the message')
        if grant.status == 0 and fits:
            two.a.do(REVOKE, two.ea, key=grant.grant)
    t.note('; '.join('%s, %s: %d' % (*map(raw.status_name, k), n) for k, n in sorted(statuses.items())))
    check(len(statuses) == 3, 'not all kinds: %s' % statuses)


@test()
def explanations_without_end(t):
    two = Linked(t)
    token = two.grant(0, 4096)
    for _ in range(30):
        cookies = two.b.submit(*[two.b.request(READ, two.eb, [two.mb.segment(0, 8)] * 32, [token.segment(0, 256)],
                                               flags=raw.F_EXPLAIN) for _ in range(50)])
        for cookie in cookies:
            status_is(two.b.finish(cookie), 0)
        two.b.query('plans')
    equal(len([row for row in two.b.rows('plans') if row['bytes'] == 256]), 64, 'what is kept')


@test()
def questions_of_any_kind(t):
    s = t.session()
    rng = random.Random(43)
    words = ['', 'x' * 4096, '\x01\x7f', 'read', '4096x4294967295', '1x1,' * 1024, 'session=' + '9' * 4000,
             'buffer=' + ':' * 4000, 'peer=' + '[' * 4000, 'uid=-1', 'key=18446744073709551616', '%s%n' * 1000,
             '\u00e4\U0001f600' * 500, '=' * 4096]
    seen = set()
    for i in range(400):
        arguments = [rng.choice(words) for _ in range(rng.randrange(9))]
        reply = s.call_raw('query', table=rng.choice(('explain', 'keys', 'key-history', 'plans', 'status')),
                           arguments=arguments, cursor=rng.choice((0, 0, rng.getrandbits(64))))
        seen.add(reply.status)
        if reply.status != 0:
            status_is(reply, EINVAL, EMSGSIZE)
    check(EINVAL in seen, 'statuses: %s' % seen)
    # More words, longer words, and words that are no text end the session, or are refused.
    for arguments in ([b'a'] * 9, [b'a' * 4097], [b'\xff\xfe'], [b'a\0b'], [b'a' * 4096] * 8):
        victim = t.session()
        body = b'\x0a\x07explain' + b''.join(b'\x1a' + varint(len(a)) + a for a in arguments)
        number = next(f.number for f in raw.pb.ClientMessage.DESCRIPTOR.fields if f.name == 'query')
        try:
            victim.send_bytes(b'\x08\x63' + varint(number << 3 | 2) + varint(len(body)) + body)
            reply = victim.wait_reply(0x63)
            status_is(reply, EINVAL)
        except raw.Ended as e:
            status_is(e, E.PROTOCOL)
    s.query('keys')


def varint(n):
    out = b''
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])
