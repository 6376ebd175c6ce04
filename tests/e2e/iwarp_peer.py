# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An iWARP peer on a socket, for tests: it says what it is told to, right or wrong, and is strict with what
it hears. Everything that waits has a time-out."""
import collections
import dataclasses
import socket
import struct
import time

import iwarp
from iwarp import (INVALIDATES, NAMES, QN_READ, QN_SEND, QN_TERMINATE, READ_REQUEST, READ_RESPONSE, SEND,
                   SENDS, TERMINATE, WRITE, Mpa, ReadRequest, Wrong, need)

TIMEOUT = 30.0


class Silence(Exception):
    """Nothing came in time."""


@dataclasses.dataclass
class Message:
    """A whole message. op None: the end of the stream, `end` is 'FIN' or 'reset'."""
    op: int
    data: bytes = b''
    stag: int = 0
    to: int = 0
    request: ReadRequest = None  # a READ request, or what a READ response answers
    terminate: iwarp.Terminate = None
    segments: int = 0
    end: str = ''

    def __str__(self):
        if self.op is None:
            return self.end
        if self.terminate is not None:
            return 'Terminate %d/%d/%02x' % self.terminate[:3]
        return '%s of %d bytes' % (NAMES[self.op], len(self.data))


class Receiver:
    """The messages of one direction of a stream. Knows of the other direction which READs were asked for."""

    def __init__(self, crc):
        self.crc = crc
        self.data = bytearray()
        self.reads = collections.deque()  # ReadRequests of the other direction without their response
        self.msn = {QN_SEND: 1, QN_READ: 1, QN_TERMINATE: 1}
        self.open = None  # the first segment of a message, while its last has not come
        self.pieces = []
        self.segments = collections.Counter()  # by opcode
        self.largest = 0  # FPDU, in bytes
        self.terminated = False

    def take(self):
        """The next whole message of what is there, or None."""
        while True:
            taken = iwarp.fpdu_take(self.data, self.crc)
            if taken is None:
                return None
            ulpdu, size = taken
            del self.data[:size]
            self.largest = max(self.largest, size)
            message = self.segment(iwarp.decode(ulpdu))
            if message is not None:
                return message

    def segment(self, s):
        need(not self.terminated, '%s after a Terminate' % s)
        self.segments[s.op] += 1
        if s.op == TERMINATE:
            self.open = None  # what was being sent is given up, at a boundary of segments
        if s.tagged:
            self.tagged(s)
        else:
            self.untagged(s)
        if self.open is None:
            self.open, self.pieces = s, []
        self.pieces.append(s.payload)
        if not s.last:
            return None
        first, data, self.open = self.open, b''.join(self.pieces), None
        return self.whole(first, data)

    def tagged(self, s):
        if self.open is not None:
            need((s.op, s.stag) == (self.open.op, self.open.stag), '%s within %s' % (s, self.open))
            need(s.to == self.open.to + sum(len(p) for p in self.pieces), '%s does not continue its message' % s)
        if s.op == READ_RESPONSE:
            need(self.reads, '%s, and nothing was asked for' % s)
            asked, begin = self.reads[0], self.open.to if self.open is not None else s.to
            need((s.stag, begin) == (asked.sink_stag, asked.sink_to), '%s does not answer %s' % (s, asked))
            end = s.to + len(s.payload) - begin
            need(end <= asked.length, '%s is longer than %s' % (s, asked))
            need(s.last == (end == asked.length), '%s: last flag, and %d of %d bytes' % (s, end, asked.length))

    def untagged(self, s):
        need(s.msn == self.msn[s.qn], '%s, not MSN %d' % (s, self.msn[s.qn]))
        if self.open is not None:
            need((s.op, s.stag) == (self.open.op, self.open.stag), '%s within %s' % (s, self.open))
        need(s.mo == (sum(len(p) for p in self.pieces) if self.open is not None else 0), '%s: wrong MO' % s)
        if s.last:
            self.msn[s.qn] += 1
        if s.op in (READ_REQUEST, TERMINATE):
            need(s.last, '%s of more than one segment' % s)

    def whole(self, first, data):
        segments = len(self.pieces)
        if first.op == READ_REQUEST:
            need(len(data) == iwarp.READ_REQUEST_BYTES, 'a READ request of %d bytes' % len(data))
            return Message(first.op, request=ReadRequest(*struct.unpack('>IQIIQ', data)), segments=segments)
        if first.op == TERMINATE:
            self.terminated = True
            return Message(first.op, data, terminate=iwarp.terminate_decode(data), segments=segments)
        request = self.reads.popleft() if first.op == READ_RESPONSE else None
        return Message(first.op, data, first.stag, first.to, request, segments=segments)

    def ended(self):
        need(not self.data, 'the stream ends within an FPDU, after %d bytes of it' % len(self.data))
        need(self.open is None, 'the stream ends within a message: %s' % self.open)


class Peer:
    """One connection. `payload`: bytes of each segment that it sends."""

    def __init__(self, sock, timeout=TIMEOUT, payload=1400):
        self.sock = sock
        self.timeout = timeout
        self.payload = payload
        self.crc = True
        self.in_ = None
        self.early = bytearray()  # received before the start was over
        self.msn = {QN_SEND: 1, QN_READ: 1, QN_TERMINATE: 1}
        self.request = self.reply = None
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        """A TCP reset instead of a FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        self.sock.close()

    # ---- bytes

    def send_bytes(self, data, piece=0):
        """piece: so many bytes a packet."""
        self.sock.settimeout(self.timeout)
        try:
            for i in range(0, len(data), piece or len(data)):
                self.sock.sendall(data[i:i + (piece or len(data))])
        except socket.timeout:
            raise Silence('the other side takes no bytes') from None

    def _more(self, deadline, into):
        """False at the end; how it ended is then in self.end."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise Silence('nothing heard')
        self.sock.settimeout(left)
        try:
            data = self.sock.recv(1 << 18)
        except socket.timeout:
            raise Silence('nothing heard') from None
        except ConnectionResetError:
            self.end = 'reset'
            return False
        self.end = 'FIN'
        into += data
        return bool(data)

    def silent(self, seconds):
        """Nothing comes for so long, and the connection stays open."""
        need(not self.early and (self.in_ is None or not self.in_.data), 'bytes are waiting')
        try:
            extra = bytearray()
            if not self._more(time.monotonic() + seconds, extra):
                raise Wrong('the stream ended (%s)' % self.end)
            raise Wrong('%d bytes came: %s' % (len(extra), bytes(extra[:64]).hex()))
        except Silence:
            pass

    # ---- the start

    def hear_frame(self, request):
        deadline = time.monotonic() + self.timeout
        while len(self.early) < 20 or len(self.early) < iwarp.mpa_length(self.early):
            if not self._more(deadline, self.early):
                raise Wrong('the stream ended (%s) after %d bytes of an MPA frame' % (self.end, len(self.early)))
        size = iwarp.mpa_length(self.early)
        frame = iwarp.mpa_decode(bytes(self.early[:size]), request)
        del self.early[:size]
        # RFC 5044 7.1.2: the initiator's first FPDU comes after the reply, the responder's after that FPDU.
        need(not self.early, '%d bytes are glued to an MPA frame' % len(self.early))
        if request:
            self.request = frame
        else:
            self.reply = frame
        return frame

    def ask(self, **fields):
        """As the initiator: sends a request, and hears a reply."""
        self.send_request(**fields)
        return self.hear_reply()

    def send_request(self, **fields):
        self.request = Mpa(True, **fields)
        self.send_bytes(self.request.encode())

    def hear_reply(self):
        reply = self.hear_frame(False)
        if not reply.reject:
            self.begin()
        return reply

    def hear_request(self):
        return self.hear_frame(True)

    def answer(self, **fields):
        """As the responder. What is not said is agreed to as asked."""
        asked = self.request
        agreed = {'revision': asked.revision, 'enhanced': asked.enhanced, 'crc': asked.crc, 'ird': asked.ord,
                  'ord': asked.ird}
        agreed.update(fields)
        self.reply = Mpa(False, **agreed)
        self.send_bytes(self.reply.encode())
        if not self.reply.reject:
            self.begin()

    def begin(self):
        # RFC 5044 7.1.1: both sides use a CRC where either asks for it.
        self.crc = self.request.crc or self.reply.crc
        self.in_ = Receiver(self.crc)
        self.in_.data, self.early = self.early, bytearray()

    # ---- saying

    def fpdu(self, ulpdu, **how):
        return iwarp.fpdu(ulpdu, self.crc, **how)

    def send(self, ulpdu, **how):
        self.send_bytes(self.fpdu(ulpdu, **how))

    def cut(self, data):
        """(offset, piece, last) of each segment."""
        step = self.payload
        if not data:
            yield 0, b'', True
        for at in range(0, len(data), step):
            yield at, data[at:at + step], at + step >= len(data)

    def stream_write(self, stag, to, data, op=WRITE):
        return b''.join(self.fpdu(iwarp.tagged(op, stag, to + at, piece, last)) for at, piece, last in self.cut(data))

    def write(self, stag, to, data):
        self.send_bytes(self.stream_write(stag, to, data))

    def next_msn(self, qn):
        self.msn[qn] += 1
        return self.msn[qn] - 1

    def stream_message(self, data, op=SEND, stag=0):
        msn = self.next_msn(QN_SEND)
        return b''.join(self.fpdu(iwarp.untagged(op, msn, piece, at, last=last, stag=stag))
                        for at, piece, last in self.cut(data))

    def message(self, data, op=SEND, stag=0):
        """A SEND of one of the four kinds."""
        self.send_bytes(self.stream_message(data, op, stag))

    def stream_read(self, length, stag, to, sink_stag=0x5eed, sink_to=0x1000):
        request = ReadRequest(sink_stag, sink_to, length, stag, to)
        self.in_.reads.append(request)
        return self.fpdu(iwarp.untagged(READ_REQUEST, self.next_msn(QN_READ), iwarp.read_request(request)))

    def read(self, length, stag, to, **sink):
        """Asks for a READ; hear() brings the response."""
        self.send_bytes(self.stream_read(length, stag, to, **sink))

    def respond(self, request, data):
        """Answers a READ request."""
        self.send_bytes(self.stream_write(request.sink_stag, request.sink_to, data, READ_RESPONSE))

    def terminate(self, layer, type_, code, **what):
        self.send(iwarp.untagged(TERMINATE, self.next_msn(QN_TERMINATE),
                                 iwarp.terminate(layer, type_, code, **what)))

    def rtr(self):
        """What the reply wants before the responder may speak (RFC 6581 9.1). Returns 'WRITE', 'READ' or None."""
        if not self.reply.peer_to_peer:
            return None
        if self.reply.rtr_write:
            self.write(0, 0, b'')
            return 'WRITE'
        if self.reply.rtr_read:
            self.read(0, 0, 0, sink_stag=0, sink_to=0)
            response = self.hear(READ_RESPONSE)
            need(response.data == b'', 'the response to an RTR has data')
            return 'READ'
        raise Wrong('peer-to-peer without an RTR')

    # ---- hearing

    def hear(self, *ops, timeout=None):
        """The next whole message, which must be one of these."""
        deadline = time.monotonic() + (timeout or self.timeout)
        while True:
            message = self.in_.take()
            if message is None and not self._more(deadline, self.in_.data):
                if self.end == 'FIN':
                    self.in_.ended()
                message = Message(None, end=self.end)
            if message is not None:
                need(not ops or message.op in ops, 'heard: %s, expected %s' % (message, ', '.join(
                    'the end' if op is None else NAMES[op] for op in ops)))
                return message

    def hear_send(self, op=SEND):
        message = self.hear(*SENDS)
        need(message.op == op, 'heard: %s, expected %s' % (message, NAMES[op]))
        need(message.op in INVALIDATES or message.stag == 0, 'an STag to invalidate')
        return message

    def hear_terminate(self):
        """A Terminate, and the FIN behind it. What was on its way before is passed over."""
        while True:
            message = self.hear()
            need(message.op is not None, 'the stream ended (%s) without a Terminate' % message.end)
            if message.op == TERMINATE:
                break
        end = self.hear()
        need(end.op is None, 'heard after the Terminate: %s' % end)
        return message.terminate


class Listener:
    """Where peers are called."""

    def __init__(self, host='127.0.0.1', mss=0, receive_bytes=0, backlog=16):
        family = socket.AF_INET6 if ':' in host else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        if mss:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.bind((host, 0))
        self.sock.listen(backlog)
        self.host, self.port = host, self.sock.getsockname()[1]

    def accept(self, timeout=TIMEOUT, **options):
        self.sock.settimeout(timeout)
        try:
            sock, _ = self.sock.accept()
        except socket.timeout:
            raise Silence('nobody connects') from None
        return Peer(sock, timeout, **options)

    def close(self):
        self.sock.close()


def call(host, port, mss=0, receive_bytes=0, timeout=TIMEOUT, source=None, **options):
    """A peer that is connected, and has said nothing."""
    sock = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if mss:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        if source:
            sock.bind((source, 0))
        sock.settimeout(timeout)
        sock.connect((host, port))
    except BaseException:
        sock.close()
        raise
    return Peer(sock, timeout, **options)
