# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Memory files: what is taken, what is refused, and what a client can still do to a file that it shared."""
import ctypes
import fcntl
import os
import socket
import struct
import tempfile
import time

import raw
from harness import Skip, check, equal, status_is, stopped, test, until
from raw import E, Ended, Memfd, F_ADD_SEALS, SEAL_GROW, SEAL_SHRINK, SEAL_WRITE, SEAL_SEAL, \
    SEAL_FUTURE_WRITE

PAGE = 4096
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def punch(fd, offset, length):
    """0, or the errno."""
    if LIBC.fallocate(fd, raw.PUNCH_HOLE, offset, length) == 0:
        return 0
    return ctypes.get_errno()


def add(s, fd, size):
    return s.call_raw('buffer_add', fds=[fd], size_bytes=size)


def refused(s, file, size, *statuses):
    fd = file if isinstance(file, int) else file.fd
    status_is(add(s, fd, size), *(statuses or (E.BUFFER_UNFIT,)))
    check(len(s.rows('buffers')) == 0, 'a refused buffer is in the table')


@test()
def a_buffer_is_shared_and_sealed(t):
    s = t.session()
    b = s.buffer(3 * PAGE)
    equal(b.seals(), SEAL_SEAL | SEAL_SHRINK | SEAL_GROW | SEAL_FUTURE_WRITE, 'seals')
    equal(len(s.rows('buffers')), 1, 'rows of the table of buffers')
    b.remove()
    equal(len(s.rows('buffers')), 0, 'rows of the table of buffers')
    status_is(s.call_raw('buffer_remove', buffer=b.number), -2)


@test()
def sizes(t):
    s = t.session()
    for size in (1, 100, PAGE - 1, PAGE, PAGE + 1, 1 << 20):
        s.buffer(size).remove()


@test()
def what_is_no_memory_file(t):
    s = t.session()
    r, w = os.pipe()
    a, b = socket.socketpair()
    with tempfile.TemporaryFile() as f, a, b:
        f.truncate(PAGE)
        for fd in (r, w, f.fileno(), a.fileno(), s.fileno()):
            refused(s, fd, PAGE)
    os.close(r)
    os.close(w)
    for path in ('/dev/zero', '/dev/null', '/proc/self/mem', '/'):
        fd = os.open(path, os.O_RDONLY)
        refused(s, fd, PAGE)
        os.close(fd)
    fd = os.open('/tmp', os.O_PATH)
    refused(s, fd, PAGE)
    os.close(fd)


@test()
def seals_that_do_not_fit(t):
    s = t.session()
    for seals in (0, SEAL_GROW, SEAL_SHRINK, SEAL_SHRINK | SEAL_GROW | SEAL_WRITE):
        m = Memfd(PAGE, seals=0)
        if seals & SEAL_WRITE:
            m.map.close()
            m.map = None
        if seals:
            fcntl.fcntl(m.fd, F_ADD_SEALS, seals)
        refused(s, m, PAGE)
    # Sealed for good, or for writing by others: it was added before, as far as the daemon can see.
    for seals in (SEAL_SEAL, SEAL_FUTURE_WRITE, SEAL_SEAL | SEAL_FUTURE_WRITE):
        m = Memfd(PAGE, seals=SEAL_SHRINK | SEAL_GROW | seals)
        refused(s, m, PAGE, E.BUFFER_UNFIT, E.BUFFER_SEALED)
    m = Memfd(0, seals=0)
    fcntl.fcntl(m.fd, F_ADD_SEALS, SEAL_SHRINK | SEAL_GROW)
    refused(s, m, PAGE)


@test()
def a_file_without_sealing(t):
    s = t.session()
    fd = os.memfd_create('e2e', os.MFD_CLOEXEC)
    os.posix_fallocate(fd, 0, PAGE)
    refused(s, fd, PAGE)
    os.close(fd)


@test()
def a_read_only_descriptor(t):
    s = t.session()
    m = Memfd(PAGE)
    fd = os.open('/proc/self/fd/%d' % m.fd, os.O_RDONLY)
    refused(s, fd, PAGE)
    os.close(fd)
    fd = os.open('/proc/self/fd/%d' % m.fd, os.O_PATH)
    refused(s, fd, PAGE)
    os.close(fd)


@test()
def sizes_that_are_not_the_files(t):
    s = t.session()
    for declared in (1, PAGE - 1, PAGE + 1, 2 * PAGE, 1 << 29, 1 << 40):
        refused(s, Memfd(PAGE), declared, E.BUFFER_UNFIT, E.QUOTA)
    for declared in (0, (1 << 40) + 1, 1 << 63, (1 << 64) - 1):
        refused(s, Memfd(PAGE), declared, E.BUFFER_UNFIT, -22)


@test()
def pages_that_are_not_allocated(t):
    s = t.session()
    refused(s, Memfd(16 * PAGE, allocate=False), 16 * PAGE)
    m = Memfd(16 * PAGE)
    equal(punch(m.fd, 5 * PAGE, PAGE), 0, 'punching a hole before')
    refused(s, m, 16 * PAGE)


@test()
def no_hole_can_be_punched_afterwards(t):
    s = t.session()
    b = s.buffer(16 * PAGE, content=b'here' * 100)
    equal(punch(b.fd, 0, PAGE), 1, 'punching a hole afterwards (EPERM)')
    for change in (lambda: os.ftruncate(b.fd, PAGE), lambda: os.ftruncate(b.fd, 32 * PAGE),
                   lambda: fcntl.fcntl(b.fd, F_ADD_SEALS, SEAL_WRITE)):
        try:
            change()
        except OSError as e:
            check(e.errno in (1, 16), 'errno %d' % e.errno)
        else:
            raise AssertionError('the file can still be changed')


@test()
def a_file_is_added_once_in_its_life(t):
    s, other = t.session(), t.session(1)
    b = s.buffer(PAGE)
    status_is(add(s, b.fd, PAGE), E.BUFFER_SEALED)
    status_is(add(other, b.fd, PAGE), E.BUFFER_SEALED)
    b.remove()
    status_is(add(s, b.fd, PAGE), E.BUFFER_SEALED)
    equal(len(s.rows('buffers')), 0, 'rows of the table of buffers')


@test()
def no_descriptor_or_too_many(t):
    def ends_or_refuses(fds):
        s = t.session()
        try:
            reply = s.call_raw('buffer_add', fds=fds, size_bytes=PAGE)
            status_is(reply, -22, E.BUFFER_UNFIT, E.PROTOCOL)
            equal(len(s.rows('buffers')), 0, 'rows of the table of buffers')
        except Ended as e:
            status_is(e, E.PROTOCOL)
        s.close()
    files = [Memfd(PAGE) for _ in range(253)]
    ends_or_refuses([])
    ends_or_refuses([f.fd for f in files[:2]])
    ends_or_refuses([f.fd for f in files])


@test()
def both_see_the_same_bytes(t):
    pair = t.pair()
    a, b = pair.a.buffer(PAGE, content=b'a' * PAGE), pair.b.buffer(PAGE, content=b'b' * PAGE)
    token = pair.a.grant(pair.ea, a.segment())
    pair.b.do(raw.READ, pair.eb, [b.segment()], [token.segment()])
    equal(bytes(b.map), b'a' * PAGE, 'what was read')
    a.map[:] = b'c' * PAGE  # after it was added: the map goes on
    if pair.snapshots:
        pair.b.do(raw.READ, pair.eb, [b.segment()], [token.segment()])
        equal(bytes(b.map) == b'a' * PAGE, True, 'a copy shows what was there')
        token = pair.a.grant(pair.ea, a.segment())
    pair.b.do(raw.READ, pair.eb, [b.segment()], [token.segment()])
    equal(bytes(b.map), b'c' * PAGE, 'what was read')
    token = pair.a.grant(pair.ea, a.segment(), read=False)
    b.map[:] = b'd' * PAGE
    pair.b.do(raw.WRITE, pair.eb, [b.segment()], [token.segment()])
    pair.b.do(raw.READ, pair.eb, [b.segment(0, 1)], [pair.a.grant(pair.ea, a.segment(0, 1)).segment()])
    pair.landed(token)
    equal(bytes(a.map), b'd' * PAGE, 'what was written')


@test()
def a_buffer_in_use_is_not_removed(t):
    pair = t.pair()
    b = pair.a.buffer(PAGE)
    grant = pair.a.grant(pair.ea, b.segment(0, 100))
    status_is(pair.a.call_raw('buffer_remove', buffer=b.number), -16)
    pair.a.do(raw.REVOKE, pair.ea, key=grant.grant)
    cookie = pair.a.start(raw.RECV, pair.ea, [b.segment()])
    status_is(pair.a.call_raw('buffer_remove', buffer=b.number), -16)
    pair.a.call('disconnect', endpoint=pair.ea)
    status_is(pair.a.finish(cookie), E.FLUSHED)
    b.remove()


def lingering_socket(linger_s):
    """A TCP socket with data that its peer will not take: whoever closes it last waits."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(('127.0.0.1', 0))
        listener.listen(1)
        mine = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, linger_s))
    mine.setblocking(False)
    try:
        while True:
            mine.send(b'x' * 65536)
    except BlockingIOError:
        pass
    return mine, peer


def pass_last(t, s, mine):
    """Sends the socket to a daemon that reads it only when this process has no descriptor of it left: then
    its close is the daemon's."""
    with stopped(t.daemon):
        serial = s.post('buffer_add', fds=[mine.fileno()], size_bytes=PAGE)
        mine.close()
    return s.wait_reply(serial)


@test(users=2)
def closing_a_lingering_socket_holds_up_nobody_else(t):
    # Longer than any machine stalls; its peer ends it before.
    mine, peer = lingering_socket(30)
    status_is(pass_last(t, t.session(), mine), E.BUFFER_UNFIT)
    begin = time.monotonic()
    t.session(1).query('status')
    took = time.monotonic() - begin
    t.note('another session was answered after %.1f ms' % (took * 1000))
    # Still being closed: its owner gets no new session, and is told why.
    status = {row['name']: int(row['value']) for row in t.admin().query('status')}
    equal(status['slow_closes'], 1, 'descriptors being closed')
    until(lambda: slow_close_refused(t), 'a new session of its owner is refused', 20)
    t.session(1)
    peer.close()  # unread data: a reset, and the close ends
    until(lambda: not slow_close_refused(t), 'its owner is served again')


def slow_close_refused(t):
    try:
        t.session().close()
    except (Ended, raw.Failed) as e:
        status_is(e, E.SLOW_CLOSE)
        return True
    return False


@test(users=2)
def many_lingering_sockets_of_one_user(t):
    """More than there are threads that close: other users' descriptors are closed all the same."""
    pairs = [lingering_socket(30) for _ in range(24)]
    s = t.session(hello=False)
    # The daemon reads this when the sender has closed its own: it is stopped meanwhile.
    data = s.message('hello', major=1).SerializeToString()
    with stopped(t.daemon):
        s.try_send(data, [mine.fileno() for mine, _ in pairs])
        for mine, _ in pairs:
            mine.close()
    status_is(s.wait_end(), E.PROTOCOL)
    until(lambda: slow_close_refused(t), 'a new session of their owner is refused', 20)
    for _ in range(20):
        with t.daemon.session(t.uid(1)) as other:
            other.buffer(PAGE).remove()
    check(slow_close_refused(t), 'the sockets were closed before the test was over')
    for _, peer in pairs:
        peer.close()
    until(lambda: not slow_close_refused(t), 'their owner is served again')


@test(users=2)
def lingering_sockets_beside_garbage_and_unread(t):
    """In a packet that ends the session, and in one that the daemon never reads."""
    for data in (b'\xff', b'x' * 70000, None):
        mine, peer = lingering_socket(2)
        s = t.session(hello=data is not None)
        if data is None:
            s.send_bytes(s.message('hello', major=99).SerializeToString())
            data = s.message('query', table='status').SerializeToString()
        try:
            s.send_bytes(data, [mine.fileno()])
        except Ended:
            pass
        mine.close()
        s.close()
        for _ in range(3):
            with t.daemon.session(t.uid(1)) as other:
                other.query('status')
        peer.close()
        until(lambda: not slow_close_refused(t), 'its owner is served again')


@test(root=True)
def huge_pages(t):
    path = '/proc/sys/vm/nr_hugepages'
    with open(path, encoding='ascii') as f:
        before = int(f.read())
    with open('/proc/meminfo', encoding='ascii') as f:
        sizes = [int(line.split()[1]) * 1024 for line in f if line.startswith('Hugepagesize')]
    if not sizes:
        raise Skip('this kernel has no huge pages')
    size = sizes[0]
    try:
        try:
            with open(path, 'w', encoding='ascii') as f:
                f.write(str(before + 4))
            with open(path, encoding='ascii') as f:
                enough = int(f.read()) >= before + 2
        except OSError as e:
            raise Skip('cannot reserve huge pages: %s' % e) from None
        if not enough:
            raise Skip('the kernel has no huge page to spare')
        pair = t.pair((0, 0))
        try:
            a = pair.a.buffer(size, flags=raw.MFD_HUGETLB)
        except OSError as e:
            raise Skip('no memory file of huge pages: %s' % e) from None
        a.map[size - 5:] = b'huge!'
        b = pair.b.buffer(PAGE)
        token = pair.a.grant(pair.ea, a.segment(size - 5, 5))
        pair.b.do(raw.READ, pair.eb, [b.segment(0, 5)], [token.segment()])
        equal(bytes(b.map[:5]), b'huge!', 'what was read')
        equal(punch(a.fd, 0, size), 1, 'punching a hole (EPERM)')
    finally:
        try:
            with open(path, 'w', encoding='ascii') as f:
                f.write(str(before))
        except OSError:
            pass
