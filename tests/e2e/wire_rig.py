# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The daemon on one end of a TCP connection, a scripted iWARP peer on the other."""
import contextlib
import random
import socket

import raw
from harness import equal, same_bytes
from iwarp import READ_REQUEST, READ_RESPONSE, WRITE, Wrong
from iwarp_peer import Listener, call
from raw import Pair, RECV, SEND


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(('::1', 0))
        return True
    except OSError:
        return False


HOSTS = ('127.0.0.1', '::1') if has_ipv6() else ('127.0.0.1',)
# What a peer of revision 2 asks for that lets the daemon speak first.
ASK = {'enhanced': True, 'ird': 16, 'ord': 16, 'peer_to_peer': True, 'rtr_write': True, 'rtr_read': True}
WITH_CRC, NO_CRC = 'device iwarp { crc = yes }\n', 'device iwarp { crc = no }\n'


def needs_tcp(t):
    if raw.FABRIC != 'iwarp':
        t.skip('the wire of a device is in the kernel')


def pattern(seed, size):
    return random.Random(seed).randbytes(size)


class Wired:
    """A session `s` with endpoint `e`, and a peer `p` at the other end."""

    def __init__(self, t, s, e, p):
        self.t, self.s, self.e, self.p = t, s, e, p

    def buffer(self, size, seed=None):
        return self.s.buffer(size, content=None if seed is None else pattern(seed, size))

    def recv(self, segment):
        return self.s.start(RECV, self.e, [segment])

    def disconnected(self, timeout=None):
        return self.s.wait_event('disconnected', lambda x: x.endpoint == self.e, timeout)

    # ---- what the peer does with what the daemon posts, in any number of work requests

    def collect_write(self, size):
        """What it WRITEs, as {STag: (first TO, bytes)}."""
        heard = {}
        while sum(len(data) for _, data in heard.values()) < size:
            message = self.p.hear(WRITE)
            to, data = heard.get(message.stag, (message.to, b''))
            equal(message.to, to + len(data), 'TO of a WRITE')
            heard[message.stag] = (to, data + message.data)
        return heard

    def serve_reads(self, stag, to, memory):
        """Answers READs of this memory until all of it has been asked for, in order."""
        at = 0
        while at < len(memory):
            request = self.p.hear(READ_REQUEST).request
            equal((request.source_stag, request.source_to), (stag, to + at), 'the source of a READ')
            self.p.respond(request, memory[at:at + request.length])
            at += request.length
        equal(at, len(memory), 'bytes asked for')

    def read(self, length, stag, to):
        """The peer READs."""
        self.p.read(length, stag, to)
        return self.p.hear(READ_RESPONSE).data

    def round_trip(self, memory, data=b'still here'):
        """A SEND each way through that buffer: the connection works."""
        cookie = self.recv(memory.segment(0, 100))
        self.p.message(data)
        got = self.s.finish(cookie)
        equal((got.status, got.byte_len), (0, len(data)), 'a RECV')
        same_bytes(memory.map[:len(data)], data, 'the message')
        self.s.do(SEND, self.e, [memory.segment(0, len(data))])
        same_bytes(self.p.hear_send().data, data, 'the message back')


def session_of(t, session, user=0):
    return session if session is not None else t.session(user)


def passive(t, session=None, host=HOSTS[0], accept_data=b'', rtr=True, port=None, mss=0, receive_bytes=0,
            payload=1400, **ask):
    """The peer connects, the daemon accepts."""
    needs_tcp(t)
    s = session_of(t, session)
    listener = None
    if port is None:
        listener, port = s.listen(host)
    p = t.keep(call(host, port, mss, receive_bytes, payload=payload))
    p.send_request(**{**ASK, **ask})
    request = s.wait_event('connect_request', lambda x: listener in (None, x.listener))
    e = s.endpoint(request=request.request)
    accepting = s.post('accept', endpoint=e, private_data=accept_data)
    equal(p.hear_reply().reject, False, 'a rejection')
    if rtr:
        p.rtr()
    raw_reply = s.wait_reply(accepting)
    equal((raw_reply.status, raw_reply.text), (0, ''), 'accept')
    if rtr:
        Pair.wait_connected(s, e)
    if listener is not None:
        s.call('unlisten', listener=listener)  # a user may have sixteen
    w = Wired(t, s, e, p)
    w.port, w.request = port, request
    return w


def active(t, session=None, host=HOSTS[0], private_data=b'', mss=0, receive_bytes=0, payload=1400, **answer):
    """The daemon connects, the peer accepts."""
    needs_tcp(t)
    s = session_of(t, session)
    where = t.keep(Listener(host, mss, receive_bytes))
    e = s.endpoint(host, where.port)
    connecting = s.post('connect', endpoint=e, private_data=private_data)
    p = t.keep(where.accept(payload=payload))
    p.hear_request()
    p.answer(**answer)
    if p.reply.peer_to_peer:
        hear_rtr(p)
    reply = s.wait_reply(connecting)
    equal((reply.status, reply.text), (0, ''), 'connect')
    Pair.wait_connected(s, e)
    return Wired(t, s, e, p)


def hear_rtr(p):
    """What the initiator says before the responder may. Returns the opcode."""
    message = p.hear(WRITE, READ_REQUEST)
    if message.op == READ_REQUEST:
        if not p.reply.rtr_read:
            raise Wrong('a READ for an RTR, which was not offered')
        equal(message.request.length, 0, 'length of an RTR')
        p.respond(message.request, b'')
    else:
        if not p.reply.rtr_write:
            raise Wrong('a WRITE for an RTR, which was not offered')
        equal(message.data, b'', 'data of an RTR')
    return message.op


@contextlib.contextmanager
def sent_to(p, *also):
    """A reset may come while the peer still sends: what it heard tells."""
    try:
        yield
    except (BrokenPipeError, ConnectionResetError, *also):
        pass
