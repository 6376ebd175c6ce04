# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Peers that break the rules of MPA, DDP and RDMAP: each ends its own stream with the Terminate that the
RFCs have for it, nothing of the segment at fault is written, and nobody else notices."""
import iwarp
import raw
from harness import check, equal, same_bytes, status_is, test
from iwarp import READ_REQUEST, READ_RESPONSE, SEND, SEND_INV, TERMINATE, WRITE, ReadRequest, read_request
from raw import E, READ, REVOKE
from wire_rig import NO_CRC, WITH_CRC, active, passive, pattern, sent_to

SIZE = 64 << 10
READABLE, WRITABLE, LANDING = 4096, 16384, 40960  # where in the buffer
GRANTED, RECV_BYTES = 4096, 1000
TOP = 1 << 64

# Layer, type, code (RFC 5040 4.8, RFC 5041 7, RFC 5044 8).
R_STAG, R_BOUNDS, R_RIGHTS, R_STREAM, R_WRAP = ((0, 1, code) for code in range(5))
R_INVALIDATE, R_VERSION, R_OPCODE = (0, 1, 9), (0, 2, 5), (0, 2, 6)
T_STAG, T_BOUNDS, T_STREAM, T_WRAP, T_VERSION = ((1, 1, code) for code in range(5))
U_QN, U_NO_BUFFER, U_MSN, U_MO, U_TOO_LONG, U_VERSION = ((1, 2, code) for code in range(1, 7))
M_CRC, M_LENGTH = (2, 0, 2), (2, 0, 3)

# What clients hear of it: that the peer broke the rules; or, where it reached for what is not its own, that it
# is gone.
PROTECTION = {R_STAG, R_BOUNDS, R_RIGHTS, R_STREAM, R_WRAP, T_STAG, T_BOUNDS, T_STREAM, T_WRAP, U_NO_BUFFER}


def reasons(terminate):
    if terminate == U_TOO_LONG:
        return (E.MESSAGE_TOO_LONG, E.PEER_PROTOCOL)
    return (E.PEER_PROTOCOL, E.PEER_GONE) if terminate in PROTECTION else (E.PEER_PROTOCOL,)


class Victim:
    """An endpoint that a bad peer reaches: one grant to READ, one to WRITE, a RECV; and beside it, in the same
    session, one of a good peer."""

    def __init__(self, t, s, make=passive, **how):
        self.w = w = make(t, s, **how)
        self.t, self.s, self.p = t, s, w.p
        self.memory = s.buffer(SIZE, content=pattern(1, SIZE))
        self.readable = s.grant(w.e, self.memory.segment(READABLE, GRANTED))
        self.writable = s.grant(w.e, self.memory.segment(WRITABLE, GRANTED), read=False)
        self.recv = w.recv(self.memory.segment(LANDING, RECV_BYTES))
        self.shall = bytearray(pattern(1, SIZE))

    def send(self, *ulpdus):
        """In one packet, so that a reset cannot cut in between."""
        with sent_to(self.p):
            self.p.send_bytes(b''.join(self.p.fpdu(u) if isinstance(u, bytes) and not isinstance(u, Raw) else u
                                       for u in ulpdus))

    def verdict(self, expected, ulpdu, what):
        """The right Terminate, and what it quotes; the memory as it was."""
        try:
            seen = self.p.hear_terminate()
        except iwarp.Wrong as e:
            raise AssertionError('%s: %s' % (what, e)) from e
        if expected is not None:
            check(seen[:3] in expected, '%s: Terminate %d/%d/%02x, expected %s' % (
                what, *seen[:3], ' or '.join('%d/%d/%02x' % x for x in expected)))
        if seen.segment is not None and ulpdu is not None:
            length, header = seen.segment
            equal(length, len(ulpdu), '%s: the quoted length' % what)
            check(header in (b'', ulpdu[:len(header)]), '%s: the quoted header' % what)
        if seen.request is not None and ulpdu is not None:
            equal(seen.request, ulpdu[18:46], '%s: the quoted READ request' % what)
        status_is(self.w.disconnected(), *reasons(seen[:3]))
        status_is(self.s.finish(self.recv), E.FLUSHED, E.MESSAGE_TOO_LONG, 0)
        same_bytes(self.memory.map, self.shall, what + ': memory')

    def close(self):
        self.s.call('endpoint_free', endpoint=self.w.e)
        self.p.close()


class Raw(bytes):
    """Sent as it is, not as the ULPDU of an FPDU."""


def run(t, cases, make=passive, **how):
    s = t.session()
    good = active(t, s)
    small = s.buffer(4096)
    for what, expected, case in cases:
        v = Victim(t, s, make, **how)
        ulpdu = case(v)
        v.verdict(expected, ulpdu, what)
        v.close()
        good.round_trip(small)
    return s


def bad_write(**fields):
    """A case: one WRITE that would be good but for this."""
    def case(v):
        what = {'stag': v.writable.rkey, 'to': v.writable.address, 'payload': b'!' * 100}
        for name, value in fields.items():
            what[name] = value(v) if callable(value) else value
        ulpdu = iwarp.tagged(WRITE, **what)
        v.send(ulpdu)
        return ulpdu
    return case


def bad_read(**fields):
    def case(v):
        what = {'sink_stag': 1, 'sink_to': 2, 'length': 100, 'source_stag': v.readable.rkey,
                'source_to': v.readable.address}
        for name, value in fields.items():
            what[name] = value(v) if callable(value) else value
        ulpdu = iwarp.untagged(READ_REQUEST, v.p.next_msn(1), read_request(ReadRequest(**what)))
        v.send(ulpdu)
        return ulpdu
    return case


def bad_message(op=SEND, payload=b'!' * 100, msn=1, before=(), **fields):
    def case(v):
        ulpdu = iwarp.untagged(op, msn, payload, **{k: x(v) if callable(x) else x for k, x in fields.items()})
        v.send(*before, ulpdu)
        return ulpdu
    return case


def dead(v):
    """The key of a grant that was revoked."""
    token = v.s.grant(v.w.e, v.memory.segment(0, 4096), read=False)
    v.s.do(REVOKE, v.w.e, key=token.grant)
    return token.rkey


def of_another(read):
    """The key of a grant to another peer of the same client."""
    def key(v):
        other = passive(v.t, v.s)
        return v.s.grant(other.e, v.memory.segment(0, 4096), read=read).rkey
    return key


def of_a_stranger(v):
    """Of another client."""
    s = v.t.session(1)
    other = passive(v.t, s)
    return s.grant(other.e, s.buffer(4096).segment(), read=False).rkey


@test(timeout=90)
def writes(t):
    run(t, (
        ('an STag of nothing', {T_STAG}, bad_write(stag=0xdeadbe01)),
        ('STag 0', {T_STAG}, bad_write(stag=0)),
        ('another key of that STag', {T_STAG}, bad_write(stag=lambda v: v.writable.rkey ^ 1)),
        ('another index of that key', {T_STAG}, bad_write(stag=lambda v: v.writable.rkey ^ 0x10000)),
        ('a dead STag', {T_STAG}, bad_write(stag=dead)),
        ('the STag of another stream', {T_STREAM}, bad_write(stag=of_another(False))),
        ('the STag of another client', {T_STREAM}, bad_write(stag=of_a_stranger)),
        ('a byte before', {T_BOUNDS}, bad_write(to=lambda v: v.writable.address - 1)),
        ('a byte too far', {T_BOUNDS}, bad_write(to=lambda v: v.writable.address + GRANTED - 99)),
        ('behind', {T_BOUNDS}, bad_write(to=lambda v: v.writable.address + GRANTED)),
        ('far away', {T_BOUNDS}, bad_write(to=lambda v: v.writable.address ^ 1 << 62)),
        ('more than there is', {T_BOUNDS}, bad_write(payload=b'!' * (GRANTED + 1))),
        ('a TO that wraps', {T_WRAP, T_BOUNDS}, bad_write(to=TOP - 50)),
        ('what may be READ only', {R_RIGHTS}, bad_write(stag=lambda v: v.readable.rkey,
                                                        to=lambda v: v.readable.address)),
        ('DDP version 0', {T_VERSION}, bad_write(ddp=0)),
        ('DDP version 2', {T_VERSION}, bad_write(ddp=2)),
        ('RDMAP version 0', {R_VERSION}, bad_write(rdmap=0)),
        ('RDMAP version 3', {R_VERSION}, bad_write(rdmap=3)),
    ))


@test()
def the_second_segment_of_a_write(t):
    """What came before it is in place; of itself, nothing."""
    def case(v):
        at = v.writable.address
        bad = iwarp.tagged(WRITE, v.writable.rkey, at + GRANTED - 10, b'!' * 100)
        v.send(iwarp.tagged(WRITE, v.writable.rkey, at, b'a' * 64, last=False), bad,
               iwarp.tagged(WRITE, v.writable.rkey, at + 100, b'c' * 64))
        v.shall[WRITABLE:WRITABLE + 64] = b'a' * 64
        return bad
    run(t, (('a bad second segment', {T_BOUNDS}, case),))


@test(timeout=90)
def reads(t):
    run(t, (
        ('an STag of nothing', {R_STAG}, bad_read(source_stag=0xdeadbe01)),
        ('STag 0', {R_STAG}, bad_read(source_stag=0)),
        ('another key of that STag', {R_STAG}, bad_read(source_stag=lambda v: v.readable.rkey ^ 1)),
        ('a dead STag', {R_STAG}, bad_read(source_stag=dead)),
        ('the STag of another stream', {R_STREAM}, bad_read(source_stag=of_another(True))),
        ('the STag of another client', {R_STREAM}, bad_read(source_stag=of_a_stranger)),
        ('a byte before', {R_BOUNDS}, bad_read(source_to=lambda v: v.readable.address - 1)),
        ('a byte too far', {R_BOUNDS}, bad_read(length=GRANTED + 1)),
        ('behind', {R_BOUNDS}, bad_read(source_to=lambda v: v.readable.address + GRANTED)),
        ('4 GiB', {R_BOUNDS}, bad_read(length=0xffffffff)),
        ('a TO that wraps', {R_WRAP, R_BOUNDS}, bad_read(source_to=TOP - 50)),
        ('what may be WRITTEN only', {R_RIGHTS}, bad_read(source_stag=lambda v: v.writable.rkey,
                                                          source_to=lambda v: v.writable.address)),
        # A sink whose TO would wrap: the request is refused, or what answers it wraps at the peer.
    ))


@test(timeout=90)
def read_requests_of_another_shape(t):
    good = read_request(ReadRequest(1, 2, 100, 3, 4))
    run(t, (
        ('28 bytes and one', {U_TOO_LONG}, bad_message(READ_REQUEST, good + b'!')),
        ('28 bytes less one', None, bad_message(READ_REQUEST, good[:-1])),
        ('none', None, bad_message(READ_REQUEST, b'')),
        ('without the last flag', None, bad_message(READ_REQUEST, good, last=False)),
        ('MO 4', {U_MO}, bad_message(READ_REQUEST, good, mo=4)),
        ('MSN 0', {U_MSN}, bad_message(READ_REQUEST, good, msn=0)),
        ('MSN 2 first', {U_MSN}, bad_message(READ_REQUEST, good, msn=2)),
        ('queue 0', {U_QN, R_OPCODE}, bad_message(READ_REQUEST, good, qn=0)),
        ('queue 2', {U_QN, R_OPCODE}, bad_message(READ_REQUEST, good, qn=2)),
        ('DDP version 3', {U_VERSION}, bad_message(READ_REQUEST, good, ddp=3)),
        ('RDMAP version 2', {R_VERSION}, bad_message(READ_REQUEST, good, rdmap=2)),
    ))


@test(timeout=90)
def messages(t):
    first = iwarp.untagged(SEND, 1, b'', last=True)
    part = iwarp.untagged(SEND, 1, b'', last=False)
    run(t, (
        ('queue 3', {U_QN}, bad_message(qn=3)),
        ('queue 2^32-1', {U_QN}, bad_message(qn=0xffffffff)),
        ('queue 1', {U_QN, R_OPCODE}, bad_message(qn=1)),
        ('queue 2', {U_QN, R_OPCODE}, bad_message(qn=2)),
        ('MSN 0', {U_MSN}, bad_message(msn=0)),
        ('MSN 2 first', {U_MSN}, bad_message(msn=2)),
        ('MSN 2^32-1', {U_MSN}, bad_message(msn=0xffffffff)),
        ('MSN 1 again', {U_MSN}, bad_message(before=(first,))),
        ('MSN 3 behind 1', {U_MSN}, bad_message(msn=3, before=(first,))),
        ('MO 1', {U_MO}, bad_message(mo=1)),
        ('MO 2^32-1', {U_MO, U_TOO_LONG}, bad_message(mo=0xffffffff)),
        ('MO 1 of a second segment', {U_MO}, bad_message(mo=1, before=(part,))),
        ('DDP version 0', {U_VERSION}, bad_message(ddp=0)),
        ('DDP version 3', {U_VERSION}, bad_message(ddp=3)),
        ('RDMAP version 0', {R_VERSION}, bad_message(rdmap=0)),
        ('RDMAP version 2', {R_VERSION}, bad_message(rdmap=2)),
        ('opcode 8', {R_OPCODE}, bad_message(8)),
        ('opcode 15', {R_OPCODE}, bad_message(15)),
        ('a WRITE in an untagged segment', {R_OPCODE}, bad_message(WRITE)),
        ('a READ response in an untagged segment', {R_OPCODE}, bad_message(READ_RESPONSE)),
        ('another message within one', None, bad_message(SEND_INV, stag=1, mo=0, before=(part,))),
    ))


@test(timeout=90)
def tagged_segments_of_messages(t):
    def op(number):
        def case(v):
            ulpdu = iwarp.tagged(number, v.writable.rkey, v.writable.address, b'!' * 100)
            v.send(ulpdu)
            return ulpdu
        return case
    run(t, [('opcode %d in a tagged segment' % n, {R_OPCODE}, op(n)) for n in (1, 3, 4, 5, 6, 7, 8, 15)])


@test()
def messages_too_long_for_their_recv(t):
    def at_once(v):
        ulpdu = iwarp.untagged(SEND, 1, b'!' * (RECV_BYTES + 1))
        v.send(ulpdu)
        return ulpdu

    def at_last(v):
        """What fitted may have been placed; nothing around it."""
        bad = iwarp.untagged(SEND, 1, b'!' * 2, mo=RECV_BYTES - 1)
        v.send(iwarp.untagged(SEND, 1, b'!' * (RECV_BYTES - 1), last=False), bad)
        v.shall[LANDING:LANDING + RECV_BYTES - 1] = b'!' * (RECV_BYTES - 1)
        return bad

    s = run(t, (('a byte too long', {U_TOO_LONG}, at_once),
                ('a byte too long in its second segment', {U_TOO_LONG}, at_last)))
    v = Victim(t, s)
    at_once(v)
    status_is(s.finish(v.recv), E.MESSAGE_TOO_LONG)
    status_is(v.w.disconnected(), E.MESSAGE_TOO_LONG)


@test()
def a_message_that_meets_no_recv(t):
    def case(v):
        v.shall[LANDING:LANDING + 5] = b'first'
        bad = iwarp.untagged(SEND, 2, b'second')
        v.send(iwarp.untagged(SEND, 1, b'first'), bad)
        return bad
    run(t, (('the second of two', {U_NO_BUFFER}, case),))


@test(timeout=90)
def invalidations(t):
    """Of what is not this stream's to end: it ends the stream, and not the grant."""
    s = t.session()
    other = passive(t, s)
    memory = s.buffer(4096, content=pattern(3, 4096))
    kept = s.grant(other.e, memory.segment())
    stranger = t.session(1)
    third = passive(t, stranger)
    theirs = stranger.buffer(4096, content=pattern(4, 4096))
    foreign = stranger.grant(third.e, theirs.segment())
    some = {R_STAG, R_STREAM, R_INVALIDATE}
    cases = (('an STag of nothing', 0xdeadbe01), ('STag 0', 0), ('the STag of another stream', kept.rkey),
             ('the STag of another client', foreign.rkey), ('a dead STag', dead))
    for op in iwarp.INVALIDATES:
        for what, stag in cases:
            v = Victim(t, s)
            # The message itself may be in place: what it asks for comes after it.
            v.shall[LANDING:LANDING + 5] = b'words'
            ulpdu = iwarp.untagged(op, 1, b'words', stag=stag(v) if callable(stag) else stag)
            v.send(ulpdu)
            seen = v.p.hear_terminate()
            check(seen[:3] in some, '%s: Terminate %d/%d/%02x' % (what, *seen[:3]))
            if bytes(v.memory.map[LANDING:LANDING + 5]) != b'words':
                v.shall[:] = pattern(1, SIZE)
            got = s.finish(v.recv)
            check(not got.flags & raw.CF_INVALIDATED, '%s: it ended a grant' % what)
            same_bytes(v.memory.map, v.shall, what + ': memory')
            v.close()
    same_bytes(other.read(4096, kept.rkey, kept.address), memory.map, 'the grant of another stream')
    same_bytes(third.read(4096, foreign.rkey, foreign.address), theirs.map, 'the grant of another client')


@test(timeout=90)
def what_was_invalidated_is_dead(t):
    for read in (True, False):
        def case(v, read=read):
            token = v.readable if read else v.writable
            first = iwarp.untagged(SEND_INV, 1, b'', stag=token.rkey)
            if read:
                bad = iwarp.untagged(READ_REQUEST, 1, read_request(ReadRequest(1, 2, 8, token.rkey, token.address)))
            else:
                bad = iwarp.tagged(WRITE, token.rkey, token.address, b'!' * 8)
            v.send(first, bad)
            return bad
        run(t, (('an invalidated STag', {R_STAG if read else T_STAG}, case),))


@test()
def unasked_read_responses(t):
    def case(stag):
        def act(v):
            ulpdu = iwarp.tagged(READ_RESPONSE, stag(v), v.writable.address, b'!' * 100)
            v.send(ulpdu)
            return ulpdu
        return act
    either = {T_STAG, T_BOUNDS, R_OPCODE}
    run(t, (('to an STag of nothing', either, case(lambda v: 0x12345601)),
            ('to STag 0', either, case(lambda v: 0)),
            ('to what may be WRITTEN', either, case(lambda v: v.writable.rkey)),
            ('to what may be READ', either, case(lambda v: v.readable.rkey))))


def responses():
    """(what, expected, segments) where 2,000 bytes were asked for as r."""
    def seg(r, at, data, last=True, stag=0, op=READ_RESPONSE):
        return iwarp.tagged(op, r.sink_stag ^ stag, r.sink_to + at, data, last)
    x = b'!' * 1000
    yield 'another STag', {T_STAG, R_OPCODE}, lambda r: [seg(r, 0, x * 2, stag=0x100)]
    yield 'another key', {T_STAG, R_OPCODE}, lambda r: [seg(r, 0, x * 2, stag=1)]
    yield 'a TO that is one more', {T_BOUNDS}, lambda r: [seg(r, 1, x * 2)]
    yield 'a TO that is one less', {T_BOUNDS}, lambda r: [seg(r, -1, x * 2)]
    yield 'a byte too long', {T_BOUNDS}, lambda r: [seg(r, 0, x * 2 + b'!')]
    yield 'a byte too long in its second segment', {T_BOUNDS}, lambda r: [
        seg(r, 0, x, last=False), seg(r, 1000, x + b'!')]
    yield 'a gap', {T_BOUNDS}, lambda r: [seg(r, 0, x[:900], last=False), seg(r, 1000, x)]
    yield 'the same bytes twice', {T_BOUNDS}, lambda r: [seg(r, 0, x, last=False), seg(r, 0, x)]
    yield 'an end too early', None, lambda r: [seg(r, 0, x, last=True)]
    yield 'an end too late', None, lambda r: [seg(r, 0, x * 2, last=False)]
    yield 'a WRITE to the sink', {T_STAG, R_RIGHTS}, lambda r: [seg(r, 0, x * 2, op=WRITE)]


@test(timeout=90)
def read_responses(t):
    s = t.session()
    good = active(t, s)
    small = s.buffer(4096)
    for what, expected, segments in responses():
        v = Victim(t, s, active)
        cookie = s.start(READ, v.w.e, [v.memory.segment(0, 2000)], [(77, 2000, 88)])
        ulpdus = segments(v.p.hear(READ_REQUEST).request)
        v.send(*ulpdus)
        # What came before the segment at fault is in place, and so may be what only ended wrongly.
        placed = 1000 if len(ulpdus) > 1 else 0
        if what == 'a gap':
            placed = 900
        if raw.FORCE == 'stage':
            placed = 0  # what went wrong stays in the slab
        v.shall[:placed] = b'!' * placed
        if expected is None:
            done = s.finish(cookie)
            n = 2000 if 'late' in what else 1000
            if bytes(v.memory.map[:n]) == b'!' * n:
                v.shall[:n] = b'!' * n
        else:
            done = s.finish(cookie)
        check(done.status != 0, what + ': the READ succeeded')
        v.verdict(expected, ulpdus[-1], what)
        v.close()
        good.round_trip(small)


@test(config=WITH_CRC, timeout=90)
def checksums_that_are_wrong(t):
    def wrong(flip, make):
        def case(v):
            ulpdu = make(v)
            data = bytearray(iwarp.fpdu(ulpdu))
            data[flip] ^= 0x10
            v.send(Raw(data))
        return case

    def write(v):
        return iwarp.tagged(WRITE, v.writable.rkey, v.writable.address, b'!' * 1001)

    def message(_):
        return iwarp.untagged(SEND, 1, b'!' * 501)

    cases = [('a WRITE, byte %d' % i, {M_CRC}, wrong(i, write)) for i in (2, 5, 9, 12, 16, 17, 500, -5, -4, -1)]
    cases += [('a SEND, byte %d' % i, {M_CRC}, wrong(i, message)) for i in (3, 9, 13, 17, 20, 300, -5, -4, -1)]
    run(t, cases)


@test(config=WITH_CRC)
def a_bad_checksum_in_a_long_message(t):
    """Good segments before it are in place; it, and what is behind it, is not."""
    def case(v):
        at = v.writable.address
        with sent_to(v.p):
            v.p.send_bytes(
                v.p.fpdu(iwarp.tagged(WRITE, v.writable.rkey, at, b'a' * 500, last=False)) +
                v.p.fpdu(iwarp.tagged(WRITE, v.writable.rkey, at + 500, b'!' * 500, last=False), crc_xor=1) +
                v.p.fpdu(iwarp.tagged(WRITE, v.writable.rkey, at + 1000, b'!' * 500)))
        v.shall[WRITABLE:WRITABLE + 500] = b'a' * 500
    run(t, (('the second of three', {M_CRC}, case),))


def lengths(t, crc):
    def short(n):
        def case(v):
            v.send(bytes.fromhex('c14011223344')[:n].ljust(n, b'\0'))
        return case
    run(t, [('a ULPDU of %d bytes' % n, {M_LENGTH}, short(n)) for n in (0, 1, 2, 13)] +
        [('an untagged one of 17', {M_LENGTH}, lambda v: v.send(iwarp.untagged(SEND, 1)[:17]))], crc=crc)


@test(config=WITH_CRC)
def ulpdus_that_are_too_short(t):
    lengths(t, True)


@test(config=NO_CRC)
def ulpdus_that_are_too_short_without_a_crc(t):
    lengths(t, False)


@test()
def the_longest_ulpdu(t):
    """65,535 bytes: taken whole, or refused as a whole."""
    s = t.session()
    for long in (True, False):
        v = Victim(t, s, long=long)
        big = s.buffer(70000, content=bytes(70000))
        token = s.grant(v.w.e, big.segment(), read=False)
        data = pattern(6, 65535 - 14)
        v.send(iwarp.tagged(WRITE, token.rkey, token.address, data), iwarp.untagged(SEND, 1, b'done'))
        done = s.finish(v.recv)
        if done.status == 0:
            same_bytes(big.map, data + bytes(70000 - len(data)), 'what was written')
        else:
            equal(v.p.hear_terminate()[:3], M_LENGTH, 'the Terminate')
            same_bytes(big.map, bytes(70000), 'memory')


@test(config=WITH_CRC)
def padding_is_not_looked_at(t):
    """RFC 5044 4.1: set to zero by the sender, and ignored by the receiver. Its CRC counts."""
    for n in (1, 2, 3):
        v = Victim(t, t.session())
        with sent_to(v.p):
            v.p.send(iwarp.untagged(SEND, 1, b'x' * (100 + n)), pad=b'\xee')
        got = v.s.finish(v.recv)
        if got.status == 0:
            equal(got.byte_len, 100 + n, 'byte_len')
        else:
            equal(v.p.hear_terminate()[0], 2, 'the layer of the Terminate')


@test()
def reserved_bits_are_not_looked_at(t):
    """RFC 5041 4.1, RFC 5040 4.1: set to zero by the sender, and ignored by the receiver."""
    v = Victim(t, t.session())
    v.send(iwarp.tagged(WRITE, v.writable.rkey, v.writable.address, b'w' * 10, flags=0x3c, rdmap_flags=0x30),
           iwarp.untagged(SEND, 1, b'x' * 100, flags=0x3c, rdmap_flags=0x30, stag=0x1234))
    status_is(v.s.finish(v.recv), 0)
    v.shall[WRITABLE:WRITABLE + 10] = b'w' * 10
    v.shall[LANDING:LANDING + 100] = b'x' * 100
    same_bytes(v.memory.map, v.shall, 'memory')


@test(timeout=90)
def nothing_is_taken_after_the_terminate(t):
    """Good segments right behind a bad one, and long after it."""
    def behind(v):
        bad = iwarp.tagged(WRITE, 0xdeadbe01, 0, b'!')
        v.send(bad, iwarp.tagged(WRITE, v.writable.rkey, v.writable.address, b'!' * 1000),
               iwarp.untagged(SEND, 1, b'!' * 100),
               iwarp.untagged(READ_REQUEST, 1, read_request(ReadRequest(1, 2, 8, v.readable.rkey, v.readable.address))),
               iwarp.untagged(TERMINATE, 1, bytes(4)))
        return bad

    s = run(t, (('what is behind', {T_STAG}, behind),))
    v = Victim(t, s)
    v.send(iwarp.tagged(WRITE, 0xdeadbe01, 0, b'!'))
    seen = v.p.hear(TERMINATE).terminate
    equal(seen[:3], T_STAG, 'the Terminate')
    with sent_to(v.p):
        for _ in range(50):
            v.p.write(v.writable.rkey, v.writable.address, b'!' * 1000)
    v.w.disconnected()
    same_bytes(v.memory.map, v.shall, 'memory')


@test()
def a_terminate_in_the_middle_of_much(t):
    """While the daemon's own data waits to be sent: it comes at a boundary of an FPDU, and is the last."""
    s = t.session()
    v = Victim(t, s, receive_bytes=64 << 10)
    memory = s.buffer(1 << 20)
    cookies = [s.start(raw.WRITE, v.w.e, [memory.segment()], [(0, 1 << 20, 1)]) for _ in range(10)]
    bad = iwarp.tagged(WRITE, 0xdeadbe01, 0, b'!')
    v.send(bad)
    v.verdict({T_STAG}, bad, 'a bad STag')
    for cookie in cookies:
        s.finish(cookie)


@test(timeout=120)
def noise_in_place_of_fpdus(t):
    """Random bytes, and good FPDUs with random bytes changed: whatever comes of it, it is this stream's."""
    import random
    rng = random.Random(12)
    s = t.session()
    good = active(t, s)
    small = s.buffer(4096)
    for i in range(60):
        v = Victim(t, s, crc=False)
        if i % 2:
            data = rng.randbytes(rng.randrange(1, 3000))
        else:
            data = bytearray(v.p.stream_write(v.writable.rkey, v.writable.address, b'!' * 500) +
                             v.p.stream_message(b'!' * 300) + v.p.stream_read(64, v.readable.rkey, v.readable.address))
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with sent_to(v.p):
            v.p.send_bytes(bytes(data))
            v.p.sock.shutdown(1)
        v.w.disconnected()
        outside = bytes(v.memory.map)
        for low, high in ((WRITABLE, WRITABLE + GRANTED), (LANDING, LANDING + RECV_BYTES)):
            outside = outside[:low] + bytes(v.shall[low:high]) + outside[high:]
        same_bytes(outside, v.shall, 'memory that was not offered')
        v.close()
        good.round_trip(small)
