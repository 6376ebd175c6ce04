# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A client of the daemon in a second language: the socket protocol of proto/client.proto with nothing
of the project's code in between, so that a test can also say what no library would.

Session is one connection. Everything that waits has a time-out and raises Timeout; the end of a session
raises Ended, with the Goodbye if there was one.
"""
import array
import collections
import contextlib
import errno
import fcntl
import mmap
import os
import select
import socket
import struct
import time
import weakref

import client_pb2 as pb

PACKET_MAX = 65536

# Where tests listen and connect, and the kind of fabric that must carry what goes there: "iwarp", or the
# name of a device without its number.
ADDRESS = os.environ.get('XFER_TEST_ADDRESS', '127.0.0.1')
FABRIC = os.environ.get('XFER_TEST_FABRIC', 'iwarp')
LOOPBACK = ADDRESS.startswith('127.')
# XFER_TEST_SHORTCUT=no: the endpoints of one daemon meet over TCP. Who the peer is nobody knows then, and a WRITE
# or SEND has succeeded when it is sent: that it was refused shows in the end of the connection.
OVER_TCP = FABRIC == 'iwarp' and os.environ.get('XFER_TEST_SHORTCUT') == 'no'
# XFER_TEST_FORCE=RUNG: every transfer goes that way, where it can at all. XFER_TEST_PROFILE=NAME: the iwarp fabric
# behaves like such a device. Daemons whose configuration speaks of the same are not meant.
FORCE = os.environ.get('XFER_TEST_FORCE', '')
PROFILE = os.environ.get('XFER_TEST_PROFILE', '')
# What speaks iWARP says by the end of the connection that something was refused.
LATE = FABRIC == 'siw' or PROFILE in ('cxgb4', 'siw', 'worst')
SENT_IS_DONE = LATE or OVER_TCP
# How soon a SEND fails that meets no RECV: never by itself where the fabric is a device that speaks iWARP,
# which ends the connection instead, and lets the SEND succeed.
WAITS_FOR_RECV = not LATE
# Private data arrives with zeros behind it.
PADS = FABRIC == 'rxe'
# All time-outs are multiplied by this: an emulated machine is slow.
SLOW = int(os.environ.get('XFER_TEST_SLOW', '1'))


def fewer(count):
    """Of what is long because it is large: a cable of an emulated machine carries a hundredth."""
    return count if LOOPBACK else max(2, count // 20)


# proto/errors.h
ERRORS = {
    'PROTOCOL': 5000, 'VERSION': 5001, 'DAEMON_GONE': 5002, 'BUFFER_SEALED': 5003,
    'BUFFER_UNFIT': 5004, 'BUFFER_FAULT': 5005, 'QUOTA': 5006, 'DENIED': 5007, 'FLUSHED': 5008,
    'REMOTE_ACCESS': 5009, 'REMOTE_FAULT': 5010, 'LOCAL_ACCESS': 5011, 'MESSAGE_TOO_LONG': 5012,
    'RECEIVER_NOT_READY': 5013, 'STALLED': 5014, 'PEER_GONE': 5015, 'REJECTED': 5016,
    'BACKLOG': 5017, 'SHUTDOWN': 5018, 'DEVICE': 5019, 'QUARANTINE': 5020,
    'UNKNOWN_OPERATION': 5021, 'GRANT_ENDED': 5022, 'SLOW_CLOSE': 5023, 'UNSUPPORTED': 5024, 'PEER_PROTOCOL': 5025,
}
E = type('E', (), {name: -number for name, number in ERRORS.items()})
# What a peer hears that reaches for what it was not granted. An iWARP device says it by the end of the
# connection: what waits is flushed, and a WRITE may have been sent, and have succeeded, before.
REFUSED = (E.REMOTE_ACCESS,) if not LATE else (E.REMOTE_ACCESS, E.REMOTE_FAULT, E.FLUSHED, E.PEER_GONE)
REFUSED_WRITE = (*REFUSED, 0) if SENT_IS_DONE else REFUSED
# What a SEND gets that meets no RECV, ever.
NO_RECV = (E.RECEIVER_NOT_READY,) if not SENT_IS_DONE else (0, E.RECEIVER_NOT_READY) if OVER_TCP and not LATE else (0, E.FLUSHED, E.PEER_GONE, E.REMOTE_FAULT)
# What a connect gets for which there was no room at a listener: a device's rejection says no more than that it
# is one, and who gives up before it came hears that nobody answered.
BACKLOGGED = (E.BACKLOG,) if FABRIC == 'iwarp' and not OVER_TCP else (E.REJECTED, -errno.ETIMEDOUT)
# EndpointReady.capabilities
INVALIDATES, IMMEDIATE, SNAPSHOTS = 1, 2, 4

# proto/ring.h
READ, WRITE, SEND, RECV, GRANT, REVOKE, CANCEL = range(1, 8)
F_FENCE, F_QUIET, F_SOLICITED, F_PLACED = 0x1, 0x2, 0x4, 0x8
F_INVALIDATE, F_IMMEDIATE, F_LINK, F_EXPLAIN = 0x10, 0x20, 0x40, 0x80
F_GRANT_READ, F_GRANT_WRITE = 0x100, 0x200
CF_IMMEDIATE, CF_INVALIDATED, CF_SOLICITED = 0x1, 0x2, 0x4
CANCEL_NEVER_STARTED, CANCEL_FENCED, CANCEL_QUARANTINED, CANCEL_TOO_LATE = range(4)
SEGMENTS_MAX = 4096
SEGMENTS_INLINE = 64

# linux/fcntl.h, linux/memfd.h
F_ADD_SEALS, F_GET_SEALS = 1033, 1034
SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_WRITE, SEAL_FUTURE_WRITE = 1, 2, 4, 8, 16
MFD_HUGETLB = 4
PUNCH_HOLE = 0x3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


class Timeout(Exception):
    pass


class Ended(Exception):
    """The daemon ended the session. status and text are the Goodbye's, or None."""

    def __init__(self, goodbye):
        self.status = goodbye.status if goodbye is not None else None
        self.text = goodbye.text if goodbye is not None else None
        super().__init__('session ended: %s %s' % (status_name(self.status), self.text))


class Failed(Exception):
    """A reply or completion with a status."""

    def __init__(self, what, status, text):
        self.status = status
        self.text = text
        super().__init__('%s: %s: %s' % (what, status_name(status), text))


def status_name(status):
    if status is None:
        return 'no Goodbye'
    for name, number in ERRORS.items():
        if status == -number:
            return 'E_' + name
    return errno.errorcode.get(-status, str(status))


@contextlib.contextmanager
def as_user(uid, gid):
    """What the kernel shows the daemon is who connects: root becomes that user for the moment."""
    if os.geteuid() != 0 or uid is None:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


SESSIONS = weakref.WeakSet()


def open_socket(path, uid=None, gid=None):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        with as_user(uid, gid):
            sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


class Session:
    def __init__(self, path, uid=None, gid=None, hello=True, name='e2e', timeout=40, minor=0,
                 features=0, major=1):
        self.timeout = timeout * SLOW
        self.serial = 0
        self.cookie = 0
        self.goodbye = None
        self.ended = False
        self.replies = {}
        self.events = collections.deque()
        self.completions = {}
        self.capabilities = {}  # of endpoints
        self.order = []  # cookies in the order of their completions
        self.sock = open_socket(path, uid, gid)
        SESSIONS.add(self)
        self.hello_reply = None
        if hello:
            try:
                self.hello(major, minor, features, name)
            except BaseException:
                self.sock.close()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def fileno(self):
        return self.sock.fileno()

    # ---- sending

    def send_bytes(self, data, fds=(), timeout=None):
        """One packet as it is. Reads what the daemon says while it takes nothing."""
        deadline = time.monotonic() + (timeout or self.timeout)
        while not self.try_send(data, fds):
            left = deadline - time.monotonic()
            if left <= 0:
                raise Timeout('the daemon takes no packet')
            readable, _, _ = select.select([self.sock], [self.sock], [], left)
            if readable:
                self._receive()

    def try_send(self, data, fds=()):
        """False where the socket is full."""
        control = []
        if fds:
            control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))]
        try:
            self.sock.sendmsg([data], control, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            return True
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            self._drain_to_end()
            raise Ended(self.goodbye) from None

    def _drain_to_end(self):
        with contextlib.suppress(Timeout):
            self.wait_end(2)

    def message(self, body, serial=None, **fields):
        message = pb.ClientMessage()
        if serial is None:
            self.serial += 1
            serial = self.serial
        message.serial = serial
        part = getattr(message, body)
        part.SetInParent()
        for name, value in fields.items():
            if isinstance(value, (list, tuple)):
                getattr(part, name).extend(value)
            else:
                setattr(part, name, value)
        return message

    def post(self, body, fds=(), **fields):
        """Sends a request, returns its serial."""
        message = self.message(body, **fields)
        self.send_bytes(message.SerializeToString(), fds)
        return message.serial

    def call_raw(self, body, fds=(), **fields):
        """The reply, whatever its status."""
        return self.wait_reply(self.post(body, fds, **fields))

    def call(self, body, fds=(), **fields):
        reply = self.call_raw(body, fds, **fields)
        if reply.status != 0:
            raise Failed(body, reply.status, reply.text)
        return reply

    # ---- receiving

    def _receive(self):
        """Takes one packet that is there. False where none is; Ended at the end."""
        if self.ended:
            raise Ended(self.goodbye)
        try:
            data = self.sock.recv(PACKET_MAX + 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b''
        if not data:
            self.ended = True
            raise Ended(self.goodbye)
        assert len(data) <= PACKET_MAX, 'the daemon sent a packet over 64 KiB'
        message = pb.DaemonMessage()
        message.ParseFromString(data)
        self._sort(message)
        return True

    def _sort(self, message):
        kind = message.WhichOneof('body')
        assert self.goodbye is None, 'the daemon said %s after its Goodbye' % kind
        if kind in ('reply', 'query_reply', 'hello_reply'):
            assert message.serial not in self.replies, 'a second reply'
            self.replies[message.serial] = getattr(message, kind)
        elif kind == 'completions':
            for completion in message.completions.completions:
                assert completion.cookie not in self.completions, 'a second completion'
                self.completions[completion.cookie] = completion
                self.order.append(completion.cookie)
        elif kind == 'goodbye':
            self.goodbye = message.goodbye
        elif kind is None:
            raise AssertionError('the daemon sent a message without a body')
        else:
            self.events.append((kind, getattr(message, kind)))

    def pump(self, timeout=0):
        """Takes what is there, waits that long for the first. Returns how many packets."""
        taken = 0
        while True:
            if self._receive():
                taken += 1
                continue
            if taken or timeout <= 0:
                return taken
            readable, _, _ = select.select([self.sock], [], [], timeout)
            if not readable:
                return 0

    def wait_for(self, found, what, timeout=None):
        """Receives until found() is not None, and returns that."""
        deadline = time.monotonic() + (timeout or self.timeout)
        while True:
            result = found()
            if result is not None:
                return result
            left = deadline - time.monotonic()
            if left <= 0:
                raise Timeout('no %s in time' % what)
            try:
                self.pump(left)
            except Ended:
                # It may have come right before the end.
                result = found()
                if result is None:
                    raise
                return result

    def wait_reply(self, serial, timeout=None):
        return self.wait_for(lambda: self.replies.pop(serial, None), 'reply', timeout)

    def wait_event(self, kind, where=lambda event: True, timeout=None):
        def found():
            for i, (k, event) in enumerate(self.events):
                if k == kind and where(event):
                    del self.events[i]
                    return event
            return None
        return self.wait_for(found, kind, timeout)

    def wait_end(self, timeout=None):
        """Receives until the daemon closes. Returns the Goodbye, or None."""
        deadline = time.monotonic() + (timeout or self.timeout)
        try:
            while not self.ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Timeout('the daemon did not end the session')
                self.pump(left)
        except Ended:
            pass
        return self.goodbye

    # ---- the calls

    def hello(self, major=1, minor=0, features=0, name='e2e'):
        serial = self.post('hello', major=major, minor=minor, features=features, name=name)
        reply = self.wait_reply(serial)
        if isinstance(reply, pb.Reply):
            raise Failed('hello', reply.status, reply.text)
        self.hello_reply = reply
        return reply

    def buffer(self, size, **options):
        return Buffer(self, size, **options)

    def listen(self, host=ADDRESS, port=0, backlog=0):
        """(number, port) of a listener."""
        reply = self.call('listen', host=host, port=port, backlog=backlog)
        return reply.number, int(reply.address.rsplit(':', 1)[1])

    def endpoint(self, host=ADDRESS, port=0, request=0, **options):
        """The number of an endpoint that is ready."""
        if request:
            host, port = '', 0
        number = self.call('endpoint_new', host=host, port=port, request=request,
                           **options).number
        ready = self.wait_event('endpoint_ready', lambda e: e.endpoint == number)
        if ready.status != 0:
            raise Failed('endpoint_ready', ready.status, ready.text)
        self.capabilities[number] = ready.capabilities
        if host == ADDRESS and 'require' not in options:
            assert ready.fabric.rstrip('0123456789') == FABRIC, 'fabric %s' % ready.fabric
        return number

    def request(self, opcode, endpoint=0, local=(), remote=(), flags=0, key=0, argument=0,
                cookie=None, wr_id=None, **by_reference):
        if cookie is None:
            self.cookie += 1
            cookie = self.cookie
        if FORCE and READ <= opcode <= RECV:
            flags |= F_EXPLAIN
        request = pb.Request(opcode=opcode, flags=flags, endpoint=endpoint, key=key, cookie=cookie,
                             wr_id=cookie * 7 if wr_id is None else wr_id, argument=argument,
                             **by_reference)
        for segments, to in ((local, request.local), (remote, request.remote)):
            for address, length, segment_key in segments:
                to.add(address=address, length=length, key=segment_key)
        return request

    def submit(self, *requests):
        """Sends requests in one Submit, returns their cookies."""
        message = pb.ClientMessage()
        message.submit.requests.extend(requests)
        self.send_bytes(message.SerializeToString())
        return [request.cookie for request in requests]

    def start(self, opcode, endpoint=0, local=(), remote=(), **options):
        """Submits one request, returns its cookie."""
        request = self.request(opcode, endpoint, local, remote, **options)
        cookie = self.submit(request)[0]
        if opcode == RECV:
            # It is posted before the peer does anything: a SEND may not wait for it, nor an end.
            self.query('devices')
        return cookie

    def finish(self, cookie, timeout=None):
        """The completion, whatever its status."""
        return self.wait_for(lambda: self.completions.pop(cookie, None), 'completion', timeout)

    def run(self, opcode, endpoint=0, local=(), remote=(), **options):
        return self.finish(self.start(opcode, endpoint, local, remote, **options))

    def do(self, opcode, endpoint=0, local=(), remote=(), **options):
        """Runs a request that must succeed."""
        completion = self.run(opcode, endpoint, local, remote, **options)
        if completion.status != 0:
            raise Failed('opcode %d' % opcode, completion.status, completion.text)
        return completion

    def grant(self, endpoint, segment, read=True, lifetime_ms=0):
        completion = self.do(GRANT, endpoint, [segment], argument=lifetime_ms,
                             flags=F_GRANT_READ if read else F_GRANT_WRITE)
        return Token(completion.address, segment[1], completion.rkey, completion.grant)

    def query(self, table, *arguments):
        """The table as a list of dictionaries."""
        columns, rows, cursor = None, [], 0
        while True:
            reply = self.call('query', table=table, cursor=cursor, arguments=arguments)
            if columns is None:
                columns = [(c.name, c.number) for c in reply.columns]
            cells = list(reply.cells)
            assert len(cells) % len(columns) == 0, 'cells are no multiple of columns'
            for i in range(0, len(cells), len(columns)):
                rows.append({name: int(cell) if number and cell != '' else cell
                             for (name, number), cell in zip(columns, cells[i:])})
            cursor = reply.cursor
            if cursor == 0:
                return rows

    def rows(self, table):
        """Those that are not the bystander's, whose user may be this one's."""
        others = [row['session'] for row in self.query('sessions')
                  if str(row['name']).startswith('bystander')]
        return [row for row in self.query(table) if row['session'] not in others]


class Token(collections.namedtuple('Token', 'address length rkey grant')):
    def segment(self, offset=0, length=None):
        """A piece of the granted bytes as a remote segment."""
        if length is None:
            length = self.length - offset
        return (self.address + offset, length, self.rkey)


class Memfd:
    """A memory file and its map, without a daemon."""

    def __init__(self, size, seals=SEAL_SHRINK | SEAL_GROW, allocate=True, flags=0):
        self.size = size
        self.fd = os.memfd_create('e2e', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
        self.map = None
        if size:
            os.ftruncate(self.fd, size)
            if allocate:
                os.posix_fallocate(self.fd, 0, size)
            self.map = mmap.mmap(self.fd, size)
        if seals:
            fcntl.fcntl(self.fd, F_ADD_SEALS, seals)

    def seals(self):
        return fcntl.fcntl(self.fd, F_GET_SEALS)

    def close(self):
        if self.map is not None:
            self.map.close()
            self.map = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self):
        with contextlib.suppress(Exception):
            self.close()


class Buffer(Memfd):
    """Memory shared with the daemon."""

    def __init__(self, session, size, content=None, **options):
        super().__init__(size, **options)
        if content is not None:
            self.map[:len(content)] = content
        self.session = session
        self.number = session.call('buffer_add', fds=[self.fd], size_bytes=size).number

    def segment(self, offset=0, length=None):
        if length is None:
            length = self.size - offset
        return (offset, length, self.number)

    def put_list(self, offset, segments):
        """Writes a list of segments for a request by reference."""
        self.map[offset:offset + 16 * len(segments)] = pack_segments(segments)

    def remove(self):
        self.session.call('buffer_remove', buffer=self.number)


def settled(session):
    """The daemon has had turns since: what was ready before the first of these questions came has been seen to. Of
    two sockets, one with a question and one that a peer closed, it may look at either first."""
    for _ in range(3):
        session.query('devices')


def pack_segments(segments):
    return b''.join(struct.pack('=QII', *segment) for segment in segments)


class Pair:
    """Two sessions with an endpoint each, connected to each other. The first listens."""

    def __init__(self, a, b, **options):
        self.a, self.b = a, b
        self.options = options
        self.listener, self.port = a.listen()
        self.connect()

    def connect(self, private_data=b'', accept_data=b''):
        self.eb = self.b.endpoint(port=self.port, **self.options)
        connecting = self.b.post('connect', endpoint=self.eb, private_data=private_data)
        self.request = self.a.wait_event('connect_request',
                                         lambda e: e.listener == self.listener)
        self.ea = self.a.endpoint(request=self.request.request, **self.options)
        accepting = self.a.post('accept', endpoint=self.ea, private_data=accept_data)
        for session, serial in ((self.b, connecting), (self.a, accepting)):
            reply = session.wait_reply(serial)
            if reply.status != 0:
                raise Failed('connect', reply.status, reply.text)
        self.connected = [self.wait_connected(self.a, self.ea), self.wait_connected(self.b, self.eb)]

    @staticmethod
    def wait_connected(session, endpoint):
        connected = session.wait_event('connected', lambda e: e.endpoint == endpoint)
        if connected.status != 0:
            raise Failed('connected', connected.status, connected.text)
        return connected

    @property
    def snapshots(self):
        """A grant shows a copy, made when it is granted; what is written shows when it ends."""
        return bool(self.a.capabilities[self.ea] & SNAPSHOTS)

    @property
    def invalidates(self):
        return bool(self.a.capabilities[self.ea] & INVALIDATES)

    @property
    def immediate(self):
        return bool(self.a.capabilities[self.ea] & IMMEDIATE)

    def landed(self, token):
        """What the peer has WRITTEN by this token is to be seen by the first."""
        if self.snapshots:
            self.a.do(REVOKE, self.ea, key=token.grant)

    def free(self):
        for session, endpoint in ((self.a, self.ea), (self.b, self.eb)):
            session.call('endpoint_free', endpoint=endpoint)

    def again(self):
        """A fresh connection over the same listener, the old one freed."""
        self.free()
        self.connect()
