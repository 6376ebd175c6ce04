# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The file protocol (tools/file-proto.h) against the other side at its worst: each side of xferctl meets a peer
that is written here, keeps its word about what it got, and goes on."""
import errno
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import time

import raw
from harness import become, check, equal, test, until
from raw import E, READ, RECV, SEND, WRITE
from test_tools import Served, digest, make

MIB = 1 << 20
PLACE = 4160  # of a message
GET, PUT = 1, 2
PATH, OPENED, GRANT, DONE, RESULT = 1, 2, 3, 4, 5

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xff]
    return crc ^ 0xffffffff


def private(operation=GET, flags=1, magic=b'XFRF', version=1):
    return magic + struct.pack('>BBH', version, operation, flags)


def path(name, size=0):
    name = name if isinstance(name, bytes) else name.encode()
    return struct.pack('>BBHIQ', PATH, 0, len(name), 0, size) + name


def opened(size, chunk=MIB):
    return struct.pack('>BBHIQ', OPENED, 0, 0, chunk, size)


def grant(chunk, token, length=None, crc=0):
    return struct.pack('>BBHIQIIII', GRANT, 0, 0, chunk, token.address,
                       token.length if length is None else length, token.rkey, crc, 0)


def done(chunk, length, crc):
    return struct.pack('>BBHIII', DONE, 0, 0, chunk, length, crc)


def result(error, text=b''):
    return struct.pack('>BBHI', RESULT, 0, len(text), error) + text


class Peer:
    """One end of a connection: RECVs, SENDs, memory for a few chunks."""

    def __init__(self, t, user, data=0):
        self.s = t.session(user)
        self.memory = self.s.buffer((10 + 10) * PLACE)
        self.data = self.s.buffer(data) if data else None
        self.waiting = []
        self.sends = 0

    def post_recvs(self, count=10):
        for i in range(count):
            self.waiting.append((self.s.start(RECV, self.e, [self.memory.segment(i * PLACE, PLACE)]), i))

    def start_send(self, message, **options):
        at = (10 + self.sends % 10) * PLACE
        self.sends += 1
        self.memory.map[at:at + len(message)] = message
        return self.s.start(SEND, self.e, [self.memory.segment(at, len(message))], **options)

    def send(self, message, **options):
        return self.s.finish(self.start_send(message, **options))

    def recv(self):
        """The next message, or None at the end of the connection."""
        cookie, i = self.waiting.pop(0)
        completion = self.s.finish(cookie)
        if completion.status != 0:
            return None
        message = bytes(self.memory.map[i * PLACE:i * PLACE + completion.byte_len])
        self.waiting.append((self.s.start(RECV, self.e, [self.memory.segment(i * PLACE, PLACE)]), i))
        return message

    def result(self):
        """Skips to the RESULT: (errno, text), or None if the connection ends before."""
        while True:
            message = self.recv()
            if message is None:
                return None
            if message[0] == RESULT:
                return struct.unpack('>I', message[4:8])[0], message[8:].decode()

    @property
    def invalidates(self):
        """Whether SENDs may end grants: flag bit 0."""
        return int(bool(self.s.capabilities[self.e] & raw.INVALIDATES))

    def grant(self, offset, length, read=False):
        return self.s.grant(self.e, self.data.segment(offset, length), read=read)

    def close(self):
        self.s.close()


class Asker(Peer):
    """Connects to xferctl serve."""

    def __init__(self, t, served, operation=GET, user=0, data=0, recvs=10, data_of_connect=None):
        super().__init__(t, user, data)
        self.e = self.s.endpoint(port=served.port)
        self.post_recvs(recvs)
        self.s.call('connect', endpoint=self.e,
                    private_data=private(operation) if data_of_connect is None else data_of_connect)
        self.connected = self.s.wait_event('connected', lambda e: e.endpoint == self.e)

    def open(self, name, size=0):
        """PATH and OPENED: the size, or the errno of a refusal."""
        self.send(path(name, size))
        message = self.recv()
        if message[0] == RESULT:
            return -struct.unpack('>I', message[4:8])[0]
        equal(message[:8], opened(0)[:8], 'OPENED')
        return struct.unpack('>Q', message[8:])[0]


def still_serves(t, served, name='good'):
    """As if nothing had been."""
    served.alive()
    if not os.path.exists(served.path(name)):
        make(served.path(name), 3 * MIB + 17)
    to = os.path.join(t.dir, 'still')
    status, _, errors = t.xferctl('get', served.url + name, to, user=2)
    equal(status, 0, 'status of a good get (%s)' % errors)
    equal(digest(to), digest(served.path(name)), 'SHA-256')


@test(users=3)
def a_get_by_hand(t):
    """The protocol as it is written down, message by message."""
    served = Served(t)
    make(served.path('f'), 5000)
    with open(served.path('f'), 'rb') as f:
        content = f.read()
    a = Asker(t, served, data=MIB)
    equal(a.connected.status, 0, 'status of connect (%s)' % a.connected.text)
    # Asked for or not, what the fabric cannot do the server does not promise.
    equal(a.connected.private_data[:8], private(GET, a.invalidates), 'private data of accept')
    equal(a.open('f'), 5000, 'size')
    token = a.grant(0, 5000)
    equal(a.send(grant(0, token)).status, 0, 'status of SEND')
    equal(a.recv(), done(0, 5000, crc32c(content)), 'DONE')
    equal(a.data.map[:5000], content, 'the file')
    equal(a.recv(), result(0), 'RESULT of the server')
    equal(a.send(result(0)).status, 0, 'status of our RESULT')
    # With flag bit 0, DONE has ended the grant.
    equal(a.s.run(raw.REVOKE, a.e, key=token.grant).status, E.GRANT_ENDED if a.invalidates else 0,
          'status of REVOKE')
    a.close()
    still_serves(t, served)


@test(users=3)
def a_put_by_hand(t):
    served = Served(t, '--writable')
    content = bytes(range(256)) * 20
    a = Asker(t, served, PUT, data=MIB)
    a.data.map[:5120] = content
    equal(a.open('new', 5120), 5120, 'size')
    token = a.grant(0, 5120, read=True)
    a.send(grant(0, token, crc=crc32c(content)))
    equal(a.recv(), done(0, 5120, crc32c(content)), 'DONE')
    check(not os.path.exists(served.path('new')), 'the file has its name before RESULT')
    a.send(result(0))
    equal(a.recv(), result(0), 'RESULT')
    with open(served.path('new'), 'rb') as f:
        equal(f.read(), content, 'the file')
    a.close()
    still_serves(t, served)


@test(users=3)
def connects_that_are_refused(t):
    served = Served(t)
    for data, words in ((b'', 'xferctl serve'), (b'HELO', 'xferctl serve'), (private(magic=b'XFRG'), 'serve'),
                        (private(version=2), 'version 1'), (private(operation=3), 'serve'),
                        (private(flags=0x8000), 'serve'), (private(PUT), 'read-only'),
                        (private()[:7], 'serve'), (private() + b'\0' * 40 + b'x', 'serve')):
        if len(data) == 7 and raw.PADS:
            continue  # with a zero behind it, it is a whole one
        a = Asker(t, served, data_of_connect=data)
        equal(a.connected.status, E.REJECTED, 'status for %r' % data)
        answer = a.connected.private_data
        equal(answer[:5], b'XFRF\1', 'private data of the rejection')
        check(words.encode() in answer[12:], '%r: %r' % (data, answer))
        a.close()
    a = Asker(t, served, data_of_connect=private() + b'\0' * 40)
    equal(a.connected.status, 0, 'status of one that is padded')
    a.close()
    still_serves(t, served)


def bad_messages():
    token = raw.Token(0x1000, MIB, 0x1234567, 0)
    yield 'nothing', b''
    yield 'one byte', b'\1'
    yield 'a type that is none', b'\xff' * 16
    yield 'an empty path', path('')
    yield 'a path with NUL', path(b'f\0g')
    yield 'a path that is longer than it says', path('f') + b'g'
    yield 'a path that is shorter than it says', path('file')[:-1]
    yield 'a GRANT before PATH', grant(0, token)
    yield 'an OPENED', opened(5)
    yield 'a DONE', done(0, 5, 5)
    yield 'success at once', result(0)
    yield 'a RESULT with a NUL', result(5, b'a\0b')
    yield 'a RESULT that says more than it may', result(5, b'x' * 505)


@test(users=3, timeout=60)
def first_messages(t):
    served = Served(t)
    make(served.path('f'), 100)
    for what, message in bad_messages():
        a = Asker(t, served)
        a.send(message)
        answer = a.result()
        check(answer is None or answer[0] != 0, '%s: answered with %r' % (what, answer))
        a.close()
    still_serves(t, served)


@test(users=3, timeout=60)
def later_messages(t):
    served = Served(t)
    make(served.path('f'), 3 * MIB + 5)

    def chunk_out_of_turn(a):
        a.send(grant(1, a.grant(0, MIB)))

    def chunk_twice(a):
        a.send(grant(0, a.grant(0, MIB)))
        a.send(grant(0, a.grant(0, MIB)))

    def wrong_length(a):
        a.send(grant(0, a.grant(0, MIB), length=MIB - 1))

    def last_length(a):
        for i in range(3):
            a.send(grant(i, a.grant(0, MIB)))
        a.send(grant(3, a.grant(0, 6)))

    def one_more(a):
        for i in range(3):
            a.send(grant(i, a.grant(0, MIB)))
        a.send(grant(3, a.grant(0, 5)))
        a.send(grant(4, a.grant(0, 5)))

    def no_such_key(a):
        a.send(grant(0, raw.Token(a.grant(0, MIB).address, MIB, 0xdeadbeef, 0)))

    def too_small_a_grant(a):
        a.send(grant(0, a.grant(0, MIB - 1), length=MIB))

    def only_readable(a):
        a.send(grant(0, a.grant(0, MIB, read=True)))

    def path_twice(a):
        a.send(path('f'))

    def success_too_early(a):
        a.send(grant(0, a.grant(0, MIB)))
        a.send(result(0))

    def too_long(a):
        a.s.start(SEND, a.e, [a.data.segment(0, 5000)])

    def gives_up(a):
        a.send(result(errno.ENOSPC, b'no \x1b[31mroom'))
        return True

    for act in (chunk_out_of_turn, chunk_twice, wrong_length, last_length, one_more, no_such_key,
                too_small_a_grant, only_readable, path_twice, success_too_early, too_long, gives_up):
        a = Asker(t, served, data=MIB)
        equal(a.open('f'), 3 * MIB + 5, 'size')
        silent = act(a)
        answer = a.result()
        if silent:
            equal(answer, None, 'the answer to one who gives up')
        check(answer is None or answer[0] != 0 or act is one_more,
              '%s: answered with %r' % (act.__name__, answer))
        a.close()
    still_serves(t, served)
    served.listens()
    check('\x1b' not in served.said, 'an escape sequence of a client reached the log')
    check('no ?[31mroom' in served.said, 'what the client said: ' + served.said)


@test(users=3)
def who_does_not_listen(t):
    """GRANTs as fast as they go, and no RECV for what comes back."""
    served = Served(t)
    make(served.path('f'), 40 * MIB)
    a = Asker(t, served, data=8 * MIB, recvs=1)
    equal(a.open('f'), 40 * MIB, 'size')
    # The one RECV that recv() posted again takes one DONE; from there on, the server's SENDs meet none.
    for i in range(40):
        granted = a.s.run(raw.GRANT, a.e, [a.data.segment(i % 8 * MIB, MIB)], flags=raw.F_GRANT_WRITE)
        token = raw.Token(granted.address, MIB, granted.rkey, granted.grant)
        if granted.status != 0 or a.send(grant(i, token)).status != 0:
            break
    a.s.wait_event('disconnected')
    a.close()
    until(lambda: served.listens() and 'get f: failed' in served.said, 'serve says that it failed')
    still_serves(t, served)


@test(users=3, timeout=60)
def the_silent_and_the_many(t):
    served = Served(t, '--clients', '8')
    make(served.path('f'), 100)
    # Half of the places for one user; the other half is for others. Through a device nobody knows who it is.
    knows = raw.LOOPBACK and not raw.OVER_TCP
    askers = [Asker(t, served) for _ in range(4 if knows else 8)]
    for a in askers:
        equal(a.connected.status, 0, 'status of connect')
    late = Asker(t, served)
    equal(late.connected.status, E.REJECTED, 'status of one too many')
    check(b'as many clients' in late.connected.private_data, 'why: %r' % late.connected.private_data)
    late.close()
    if knows:
        still_serves(t, served)
    askers.pop().close()
    until(lambda: status_of_connect(t, served) == 0, 'the place is free again')


def status_of_connect(t, served):
    """What a connect gets."""
    a = Asker(t, served)
    a.close()
    return a.connected.status


@test(users=3)
def a_file_that_changes(t):
    served = Served(t)
    make(served.path('longer'), 100)
    make(served.path('shorter'), 100)
    a = Asker(t, served, data=MIB)
    equal(a.open('longer'), 100, 'size')
    with open(served.path('longer'), 'ab') as f:
        f.write(b'x')
    a.send(grant(0, a.grant(0, 100)))
    answer = a.result()
    equal(answer[0], errno.ESTALE, 'errno of a file that grows (%s)' % answer[1])
    a.close()
    a = Asker(t, served, data=MIB)
    equal(a.open('shorter'), 100, 'size')
    os.truncate(served.path('shorter'), 50)
    a.send(grant(0, a.grant(0, 100)))
    answer = a.result()
    equal(answer[0], errno.ENODATA, 'errno of a file that shrinks (%s)' % answer[1])
    a.close()
    still_serves(t, served)


@test(users=3)
def puts_that_fail(t):
    served = Served(t, '--writable')
    os.mkdir(served.path('dir'))
    os.mkfifo(served.path('fifo'))
    before = sorted(os.listdir(served.dir))
    for name, size, error in (('../f', 1, errno.EXDEV), ('dir', 1, errno.EISDIR), ('fifo', 1, errno.EEXIST),
                              ('no/f', 1, errno.ENOENT), ('/f', 1, errno.EXDEV),
                              ('f', 1 << 50, errno.ENOSPC)):
        a = Asker(t, served, PUT)
        equal(a.open(name, size), -error, 'errno for %s' % name)
        a.close()
    a = Asker(t, served, PUT)
    a.send(path('f', (1 << 52) + 1))  # beyond what chunk numbers can count
    answer = a.result()
    check(answer is None or answer[0] != 0, 'a size beyond the protocol')
    a.close()
    a = Asker(t, served, PUT, data=MIB)
    a.open('f', 5)
    a.send(grant(0, a.grant(0, 5, read=True), crc=12345))
    answer = a.result()
    equal(answer[0], errno.EBADMSG, 'errno of a wrong CRC32c (%s)' % answer[1])
    a.close()
    a = Asker(t, served, PUT, data=MIB)
    a.open('f', 5)
    until(lambda: len(os.listdir(served.dir)) > len(before), 'the file under its temporary name')
    a.close()
    until(lambda: sorted(os.listdir(served.dir)) == before, 'nothing is left of it')
    still_serves(t, served)


@test(users=3, timeout=60)
def sigterm_and_a_transfer(t):
    served = Served(t)
    make(served.path('f'), 100)
    a = Asker(t, served, data=MIB)
    equal(a.open('f'), 100, 'size')
    served.process.terminate()
    # It has been told, and finds that out when it runs.
    until(lambda: status_of_connect(t, served) != 0, 'connections are refused')
    served.alive()
    # What runs may finish.
    a.send(grant(0, a.grant(0, 100)))
    equal(a.result(), (0, ''), 'RESULT')
    a.send(result(0))
    a.close()
    equal(served.process.wait(60), 0, 'status of serve')


@test(users=3, timeout=60)
def sigterm_twice(t):
    served = Served(t)
    make(served.path('f'), 100)
    a = Asker(t, served, data=MIB)
    equal(a.open('f'), 100, 'size')
    served.process.terminate()
    until(lambda: status_of_connect(t, served) != 0, 'connections are refused')
    served.alive()
    served.process.send_signal(signal.SIGINT)
    answer = a.result()
    check(answer and answer[0] == errno.ESHUTDOWN and 'stopping' in answer[1], 'RESULT: %r' % (answer,))
    equal(served.process.wait(60), 0, 'status of serve')


# ---- the other way round: xferctl get and put against a bad server

class BadServer(Peer):
    def __init__(self, t, data=0):
        super().__init__(t, 1, data)
        self.t = t
        self.listener, self.port = self.s.listen()
        self.where = os.path.join(t.dir, 'where')
        os.mkdir(self.where)
        os.chmod(self.where, 0o777)
        self.to = os.path.join(self.where, 'got')
        self.what = 'a bad server'

    def start(self, *arguments, **options):
        self.process = self.t.spawn([self.t.build.xferctl, *arguments], **options)
        self.request = self.s.wait_event('connect_request')

    def start_get(self, **options):
        self.start('get', 'xfer://%s:%d/f' % (raw.ADDRESS, self.port), self.to, **options)

    def start_put(self):
        source = os.path.join(self.t.dir, 'source')
        make(source, 5000)
        self.start('put', source, 'xfer://%s:%d/f' % (raw.ADDRESS, self.port))

    def accept(self, data=None):
        self.e = self.s.endpoint(request=self.request.request)
        self.waiting = []
        self.post_recvs()
        mine = bytes(self.request.private_data[:8])
        self.s.call('accept', endpoint=self.e, private_data=mine if data is None else data)
        connected = self.s.wait_event('connected', lambda e: e.endpoint == self.e)
        equal(connected.status, 0, 'status of accept')

    def fails(self, words=''):
        """xferctl ended with status 1, a sentence with these words, and no trace."""
        output, errors = self.process.communicate(timeout=60)
        errors = errors.decode('utf-8', 'replace')
        equal(self.process.returncode, 1, '%s: status of xferctl (%s%s)' % (self.what, output, errors))
        check(words in errors, '%s: what it says: %s' % (self.what, errors))
        check('\x1b' not in errors, 'an escape sequence of a server reached the terminal')
        equal(os.listdir(self.where), [], 'files left')
        self.s.call('endpoint_free', endpoint=self.e)

    def token(self):
        """The chunk, its remote segment, and its CRC32c in a GRANT."""
        message = self.recv()
        equal(message[0], GRANT, 'type of the message')
        _, _, _, chunk, address, length, rkey, crc, _ = struct.unpack('>BBHIQIIII', message)
        return chunk, (address, length, rkey), crc


@test(users=2, timeout=60)
def servers_that_do_not_speak_it(t):
    b = BadServer(t)
    for data in (b'', b'HELO', private(version=2), private(PUT)):
        b.start_get()
        b.accept(data)
        b.fails('file protocol')
    b.start_get()
    b.s.call('reject', request=b.request.request, private_data=b'XFRF\1\0' + struct.pack('>HI', 9, 1) + b'not \x1b you')
    b.e = 0
    output, errors = b.process.communicate(timeout=60)
    equal(b.process.returncode, 1, 'status')
    check(b'refuses: not ? you' in errors, 'what it says: %r' % errors)


@test(users=2, timeout=120)
def what_servers_answer(t):
    b = BadServer(t, data=MIB)
    for what, messages, words in (
            ('an error', [result(errno.ENOENT, b'no such \x1b[2J')], 'no such ?[2J'),
            ('an error without a word', [result(errno.EACCES)], 'Permission denied'),
            ('an error that is none', [result(0xffffffff)], ''),
            ('success at once', [result(0)], 'RESULT'),
            ('a GRANT', [grant(0, raw.Token(1, 1, 1, 0))], 'type 3'),
            ('a PATH', [path('f')], 'type 1'),
            ('garbage', [b'\0'], 'malformed'),
            ('a chunk of another size', [opened(100, 4096)], 'malformed'),
            ('a size beyond all', [opened(1 << 63)], 'malformed'),
            ('a file that does not fit', [opened(1 << 50)], 'left'),
            ('OPENED twice', [opened(0), opened(0)], 'OPENED'),
            ('DONE at once', [done(0, 5, 5)], 'DONE'),
            ('DONE of nothing', [opened(0), done(0, 0, 0)], 'DONE')):
        b.what = what
        b.start_get()
        b.accept()
        equal(b.recv(), path('f'), 'PATH')
        for message in messages:
            b.send(message)
        b.fails(words)


@test(users=2, timeout=120)
def what_servers_do_with_chunks(t):
    b = BadServer(t, data=MIB)
    size = 2 * MIB + 5

    def begin():
        b.start_get()
        b.accept()
        b.recv()
        b.send(opened(size))
        return [b.token() for _ in range(3)]

    def write(chunk):
        b.s.do(WRITE, b.e, [b.data.segment(0, chunk[1][1])], [chunk[1]])

    begin()
    b.send(done(1, MIB, 0))
    b.fails('chunk 1')
    begin()
    b.send(done(0, MIB - 1, 0))
    b.fails('not its turn')
    begin()
    b.send(done(0, MIB, 0))  # and nothing written
    b.fails('CRC32c')
    chunks = begin()
    write(chunks[0])
    b.send(done(0, MIB, crc32c(b'\0' * MIB)))
    b.send(done(0, MIB, crc32c(b'\0' * MIB)))
    b.fails('DONE')
    begin()
    b.send(result(0))
    b.fails('RESULT')
    begin()
    b.s.call('disconnect', endpoint=b.e)
    b.fails()
    # It ends another chunk's grant than the one that it says is DONE: that key is dead, the file is right.
    chunks = begin()
    for chunk in chunks:
        write(chunk)
    zeros = crc32c(b'\0' * MIB)
    inv = {'flags': raw.F_INVALIDATE, 'key': chunks[1][1][2]} if b.invalidates else {}
    b.send(done(0, MIB, zeros), **inv)
    b.send(done(1, MIB, zeros))
    b.send(done(2, 5, crc32c(b'\0' * 5)))
    b.send(result(0))
    equal(b.recv(), result(0), 'RESULT')
    equal(b.process.wait(30), 0, 'status')
    equal(os.path.getsize(b.to), size, 'size')


@test(users=2, timeout=60)
def puts_to_bad_servers(t):
    b = BadServer(t, data=MIB)

    def begin():
        b.start_put()
        b.accept()
        equal(b.recv(), path('f', 5000), 'PATH')
        b.send(opened(5000))
        return b.token()

    b.start_put()
    b.accept()
    b.recv()
    b.send(opened(4999))
    b.fails('another size')
    chunk, remote, crc = begin()
    b.s.do(READ, b.e, [b.data.segment(0, 5000)], [remote])
    equal(crc32c(b.data.map[:5000]), crc, 'CRC32c in the GRANT')
    b.send(done(0, 5000, crc ^ 1))
    b.fails('CRC32c')
    _, _, crc = begin()
    b.send(done(0, 5000, crc))
    equal(b.recv(), result(0), 'RESULT')
    b.send(result(errno.ENOSPC, b'the disk is full'))
    b.fails('the disk is full')
    # It may not write to what is granted for reading.
    _, remote, _ = begin()
    tried = b.s.run(WRITE, b.e, [b.data.segment(0, 5000)], [remote])
    check(tried.status != 0 or raw.SENT_IS_DONE, 'a WRITE to a put')
    b.fails()


@test(users=2)
def a_progress_bar_on_a_terminal(t):
    b = BadServer(t, data=MIB)
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
    process = None
    try:
        env = t.build.environment(XFER_SOCKET=t.daemon.socket)
        process = subprocess.Popen([t.build.xferctl, 'get', 'xfer://%s:%d/f' % (raw.ADDRESS, b.port), b.to],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal,
                                   env=env, cwd=t.dir, preexec_fn=become(t.uid(0)))
        b.request = b.s.wait_event('connect_request')
        b.accept()
        b.recv()
        b.send(opened(2 * MIB))
        zeros = crc32c(b'\0' * MIB)
        for chunk in (b.token(), b.token()):
            time.sleep(0.25)
            b.s.do(WRITE, b.e, [b.data.segment(0, MIB)], [chunk[1]])
            b.send(done(chunk[0], MIB, zeros))
        b.send(result(0))
        equal(process.wait(30), 0, 'status')
        shown = os.read(main, 65536).decode()
        check('\r' in shown and ' 50%' in shown and '/s' in shown and 'left' in shown, 'shown: %r' % shown)
        check(shown.endswith('\r\x1b[K'), 'the bar is taken away: %r' % shown)
        output = process.stdout.read().decode()
        check('2 MiB' in output.replace('2.0', '2') and 'verified' in output, 'the last line: %r' % output)
    finally:
        if process and process.poll() is None:
            process.kill()
            process.wait()
        if process:
            process.stdout.close()
        os.close(main)
        os.close(terminal)


@test(users=2)
def json_and_standard_output(t):
    served = Served(t, '--writable', '--json')
    make(served.path('f\x1b'), 2 * MIB)
    url = served.url + 'f%1b'
    status, out, errors = t.xferctl('--json', 'get', url, os.path.join(t.dir, 'got'))
    equal(status, 0, 'status (%s)' % errors)
    said = json.loads(out)
    equal((said['operation'], said['bytes'], said['chunks'], said['verified'], said['url']),
          ('get', 2 * MIB, 2, True, url), 'what get says')
    status, out, errors = t.xferctl('get', served.url + 'missing', '-')
    equal((status, out), (1, ''), 'status, output')
    process = t.spawn([t.build.xferctl, 'get', url, '-'])
    out, errors = process.communicate(timeout=60)
    with open(served.path('f\x1b'), 'rb') as f:
        check(out == f.read(), 'standard output is not the file')
    check(b'verified' in errors, 'what it says: %r' % errors)

    def lines():
        served.listens()
        return [json.loads(line) for line in served.said.splitlines()]
    until(lambda: len(lines()) == 4, 'four lines of serve')
    equal([(line['path'], line['verified']) for line in lines()[1:]],
          [('f\x1b', True), ('missing', False), ('f\x1b', True)], 'what serve says')
