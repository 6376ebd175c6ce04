# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040) as bytes, read from the RFCs with nothing
of the project's code in between: a second opinion. Encoders take any value, also wrong ones; decoders are
strict and raise Wrong, with the rule that was broken."""
import collections
import dataclasses
import struct

REQUEST_KEY = b'MPA ID Req Frame'
REPLY_KEY = b'MPA ID Rep Frame'
# RFC 5044 7.1.1; S is RFC 6581's. 08 is siw's: FPDUs may be longer than the MSS.
F_MARKERS, F_CRC, F_REJECT, F_ENHANCED, F_LONG = 0x80, 0x40, 0x20, 0x10, 0x08
# RFC 6581 9.1: A and B stand in IRD, C and D in ORD. An RTR is an FPDU with a SEND, WRITE or READ of no bytes.
PEER_TO_PEER, RTR_SEND, RTR_WRITE, RTR_READ = 0x8000, 0x4000, 0x8000, 0x4000
IRD_MASK = 0x3fff
PRIVATE_MAX = 512

WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INV, SEND_SE, SEND_SE_INV, TERMINATE = range(8)
NAMES = ('WRITE', 'READ request', 'READ response', 'SEND', 'SEND with invalidate', 'SEND with SE',
         'SEND with SE and invalidate', 'Terminate')
SENDS = (SEND, SEND_INV, SEND_SE, SEND_SE_INV)
INVALIDATES = (SEND_INV, SEND_SE_INV)
TAGGED = (WRITE, READ_RESPONSE)
QN_SEND, QN_READ, QN_TERMINATE = range(3)
QN_OF = {READ_REQUEST: QN_READ, TERMINATE: QN_TERMINATE, **{op: QN_SEND for op in SENDS}}
TAGGED_BYTES, UNTAGGED_BYTES, READ_REQUEST_BYTES = 14, 18, 28


class Wrong(Exception):
    """The other side broke the standard."""


def need(condition, rule):
    if not condition:
        raise Wrong(rule)


# ---- CRC32c (RFC 3385), reflected, as in iSCSI

def _table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
        table.append(n)
    return tuple(table)


CRC_TABLE = _table()


def crc32c(data):
    crc, table = 0xffffffff, CRC_TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xff]
    return crc ^ 0xffffffff


# ---- MPA's start

@dataclasses.dataclass
class Mpa:
    """A request or a reply. private_data: the user's, without the four bytes of revision 2."""
    request: bool
    revision: int = 2
    markers: bool = False
    crc: bool = False
    reject: bool = False
    enhanced: bool = False
    long: bool = False
    reserved: int = 0  # the three bits that nobody defined
    ird: int = 0
    ord: int = 0
    peer_to_peer: bool = False
    rtr_send: bool = False
    rtr_write: bool = False
    rtr_read: bool = False
    private_data: bytes = b''

    def encode(self, length=None, key=None):
        flags = self.reserved
        for name, bit in (('markers', F_MARKERS), ('crc', F_CRC), ('reject', F_REJECT),
                          ('enhanced', F_ENHANCED), ('long', F_LONG)):
            flags |= bit if getattr(self, name) else 0
        data = b''
        if self.enhanced:
            data = struct.pack('>HH', self.ird | (PEER_TO_PEER if self.peer_to_peer else 0) |
                               (RTR_SEND if self.rtr_send else 0),
                               self.ord | (RTR_WRITE if self.rtr_write else 0) |
                               (RTR_READ if self.rtr_read else 0))
        data += self.private_data
        return ((REQUEST_KEY if self.request else REPLY_KEY) if key is None else key) + struct.pack(
            '>BBH', flags, self.revision, len(data) if length is None else length) + data


def mpa_length(data):
    """How many bytes the frame has that begins with these 20."""
    return 20 + struct.unpack('>H', data[18:20])[0]


def mpa_decode(data, request):
    """All of a frame, and no more."""
    need(data[:16] == (REQUEST_KEY if request else REPLY_KEY), 'the key is %r (RFC 5044 7.1.1)' % data[:16])
    flags, revision, length = struct.unpack('>BBH', data[16:20])
    need(revision in (1, 2), 'revision %d' % revision)
    need(length <= PRIVATE_MAX, '%d bytes of private data (RFC 5044 7.1.1: at most 512)' % length)
    need(len(data) == 20 + length, 'the frame has %d bytes, not %d' % (len(data), 20 + length))
    need(not flags & 0x07, 'reserved flags %02x are set' % flags)
    need(revision == 2 or not flags & F_ENHANCED, 'S in revision 1')
    # RFC 5044 7.1.2: R is reserved in a request.
    need(not (request and flags & F_REJECT), 'R in a request')
    frame = Mpa(request, revision, bool(flags & F_MARKERS), bool(flags & F_CRC), bool(flags & F_REJECT),
                bool(flags & F_ENHANCED), bool(flags & F_LONG))
    data = data[20:]
    if frame.enhanced:
        need(len(data) >= 4, 'S with %d bytes of private data (RFC 6581 9)' % len(data))
        ird, ord_ = struct.unpack('>HH', data[:4])
        frame.ird, frame.peer_to_peer, frame.rtr_send = ird & IRD_MASK, bool(ird & PEER_TO_PEER), bool(ird & RTR_SEND)
        frame.ord = ord_ & IRD_MASK
        frame.rtr_write, frame.rtr_read = bool(ord_ & RTR_WRITE), bool(ord_ & RTR_READ)
        data = data[4:]
    frame.private_data = data
    return frame


# ---- FPDUs (RFC 5044 4.1)

def fpdu(ulpdu, crc=True, length=None, pad=b'\0', crc_xor=0):
    """crc False: the field is there and 0."""
    head = struct.pack('>H', len(ulpdu) if length is None else length) + ulpdu
    head += pad * (-len(head) % 4)
    return head + struct.pack('<I', (crc32c(head) if crc else 0) ^ crc_xor)


def fpdu_bytes(ulpdu_bytes):
    return 2 + ulpdu_bytes + -(2 + ulpdu_bytes) % 4 + 4


def fpdu_take(data, crc):
    """(ULPDU, bytes taken) of what begins here; None where some of it is missing."""
    if len(data) < 2:
        return None
    length = struct.unpack('>H', data[:2])[0]
    size = fpdu_bytes(length)
    if len(data) < size:
        return None
    pad = bytes(data[2 + length:size - 4])
    need(pad == bytes(len(pad)), 'the padding is %r (RFC 5044 4.1)' % pad)
    if crc:
        has = struct.unpack('<I', data[size - 4:size])[0]
        need(has == crc32c(data[:size - 4]), 'the CRC is %08x, not %08x' % (has, crc32c(data[:size - 4])))
    return bytes(data[2:2 + length]), size


# ---- DDP and RDMAP headers

def tagged(op, stag, to, payload=b'', last=True, ddp=1, rdmap=1, flags=0, rdmap_flags=0):
    """A tagged segment. ddp, rdmap: the versions."""
    return struct.pack('>BBIQ', 0x80 | (0x40 if last else 0) | flags | ddp, rdmap << 6 | rdmap_flags | op,
                       stag, to & 0xffffffffffffffff) + payload


def untagged(op, msn, payload=b'', mo=0, qn=None, last=True, stag=0, ddp=1, rdmap=1, flags=0, rdmap_flags=0):
    return struct.pack('>BBIIII', (0x40 if last else 0) | flags | ddp, rdmap << 6 | rdmap_flags | op, stag,
                       QN_OF.get(op, 0) if qn is None else qn, msn & 0xffffffff, mo) + payload


ReadRequest = collections.namedtuple('ReadRequest', 'sink_stag sink_to length source_stag source_to')


def read_request(request):
    return struct.pack('>IQIIQ', *request)


@dataclasses.dataclass
class Segment:
    op: int
    last: bool
    tagged: bool
    payload: bytes
    stag: int
    to: int = 0
    qn: int = 0
    msn: int = 0
    mo: int = 0

    def __str__(self):
        where = 'TO %x' % self.to if self.tagged else 'QN %d MSN %d MO %d' % (self.qn, self.msn, self.mo)
        return '%s, %s, %d bytes%s' % (NAMES[self.op], where, len(self.payload), ', last' if self.last else '')


def decode(ulpdu):
    """One segment, strictly: also reserved bits, which a receiver ignores, are 0 when sent."""
    need(len(ulpdu) >= 2, 'a ULPDU of %d bytes' % len(ulpdu))
    ddp, rdmap = ulpdu[0], ulpdu[1]
    need(ddp & 3 == 1, 'DDP version %d' % (ddp & 3))
    need(not ddp & 0x3c, 'reserved bits of DDP are set: %02x' % ddp)
    need(rdmap >> 6 == 1, 'RDMAP version %d' % (rdmap >> 6))
    need(not rdmap & 0x30, 'reserved bits of RDMAP are set: %02x' % rdmap)
    op, last, is_tagged = rdmap & 0xf, bool(ddp & 0x40), bool(ddp & 0x80)
    need(op <= TERMINATE, 'opcode %d' % op)
    need(is_tagged == (op in TAGGED), '%s in %s segment' % (NAMES[op], 'a tagged' if is_tagged else 'an untagged'))
    need(len(ulpdu) >= (TAGGED_BYTES if is_tagged else UNTAGGED_BYTES), 'a header of %d bytes' % len(ulpdu))
    if is_tagged:
        stag, to = struct.unpack('>IQ', ulpdu[2:14])
        return Segment(op, last, True, ulpdu[14:], stag, to)
    stag, qn, msn, mo = struct.unpack('>IIII', ulpdu[2:18])
    need(stag == 0 or op in INVALIDATES, '%s has an STag to invalidate' % NAMES[op])
    need(qn == QN_OF[op], '%s on queue %d' % (NAMES[op], qn))
    return Segment(op, last, False, ulpdu[18:], stag, 0, qn, msn, mo)


# ---- Terminate (RFC 5040 4.8)

Terminate = collections.namedtuple('Terminate', 'layer type code segment request',
                                   defaults=(None, None))


def terminate(layer, type_, code, ulpdu=None, request=None, swapped=False):
    """The body. ulpdu: the segment at fault, of which the length and the header are quoted; request: of a
    READ request, the 28 bytes. swapped: as siw has it."""
    flags = (0xc0 if not swapped else 0x03) if ulpdu is not None else 0
    flags |= (0x20 if not swapped else 0x04) if request is not None else 0
    body = struct.pack('>BBBB', (layer << 4 | type_) if not swapped else (type_ << 4 | layer), code, flags, 0)
    if ulpdu is not None:
        body += struct.pack('>H', len(ulpdu)) + ulpdu[:TAGGED_BYTES if ulpdu[0] & 0x80 else UNTAGGED_BYTES]
    if request is not None:
        body += request
    return body


def terminate_decode(body):
    """Strictly, as the RFC has it. segment: (ULPDU length, header bytes) where they are quoted."""
    need(len(body) >= 4, 'a Terminate of %d bytes' % len(body))
    need(not body[2] & 0x1f and not body[3], 'reserved bits of a Terminate are set: %02x%02x' % tuple(body[2:4]))
    has_length, has_header, has_request = body[2] & 0x80, body[2] & 0x40, body[2] & 0x20
    need(not has_header or has_length, 'D without M')
    rest, segment, request = body[4:], None, None
    if has_length:
        need(len(rest) >= 2, 'M without a length')
        length, rest = struct.unpack('>H', rest[:2])[0], rest[2:]
        header = b''
        if has_header:
            need(rest, 'D without a header')
            size = TAGGED_BYTES if rest[0] & 0x80 else UNTAGGED_BYTES
            need(len(rest) >= size, 'D with a header of %d bytes' % len(rest))
            header, rest = rest[:size], rest[size:]
        segment = (length, header)
    if has_request:
        need(len(rest) >= READ_REQUEST_BYTES, 'R with %d bytes' % len(rest))
        request, rest = rest[:READ_REQUEST_BYTES], rest[READ_REQUEST_BYTES:]
    need(not rest, '%d bytes behind a Terminate' % len(rest))
    return Terminate(body[0] >> 4, body[0] & 0xf, body[1], segment, request)
