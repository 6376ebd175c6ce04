# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Clients that die: at any moment the daemon undoes all they had, and their peers are told."""
import os
import signal
import time

import raw
from harness import check, equal, status_is, test, until
from raw import E, Ended, Pair, Session, READ, WRITE, SEND, RECV, settled

ENOTCONN = -107
ENDS = (E.FLUSHED, E.REMOTE_ACCESS, E.REMOTE_FAULT, E.PEER_GONE)


def sessions_named(t, name):
    with t.daemon.session(None, admin=True) as admin:
        return [row for row in admin.query('sessions') if name in [str(c) for c in row.values()]]


def gone(t, name):
    until(lambda: not sessions_named(t, name), 'the session "%s" is gone' % name)


def in_child(t, work, user=0):
    """Runs work(session) in a process of its own, which then waits to be killed."""
    path = t.daemon.socket

    def main(sock):
        session = Session(path, name='victim')
        keep = work(session, sock)
        sock.send(b'ready')
        time.sleep(240)
        del keep
    return t.child(main, user)


@test()
def before_hello(t):
    path = t.daemon.socket

    def main(sock):
        keep = raw.open_socket(path)
        sock.send(b'ready')
        time.sleep(240)
        del keep
    for _ in range(5):
        child = t.child(main)
        child.expect(b'ready')
        child.kill()


@test()
def with_everything_it_can_have(t):
    def work(s, _sock):
        pair = Pair(s, s)
        buffers = [s.buffer(1 << 20) for _ in range(4)]
        for i in range(50):
            s.grant(pair.ea, buffers[0].segment(i, 100))
            s.start(RECV, pair.eb, [buffers[1].segment(64 * i, 64)])
        _, port = s.listen()
        s.endpoint(port=port)
        e = s.endpoint(port=port)
        s.call('connect', endpoint=e)
        return pair, buffers
    for _ in range(3):
        child = in_child(t, work)
        child.expect(b'ready')
        equal(len(sessions_named(t, 'victim')), 1, 'sessions of the victim')
        child.kill()
        gone(t, 'victim')


@test()
def in_the_middle_of_calls(t):
    """Calls whose replies nobody will read, on their way to helpers."""
    def work(s, sock):
        files = [raw.Memfd(1 << 20) for _ in range(16)]
        sock.send(b'go')
        for i, f in enumerate(files):
            s.post('buffer_add', fds=[f.fd], size_bytes=1 << 20)
            s.post('endpoint_new', host='localhost', port=1 + i)
            s.post('listen', host='localhost')
        return files
    for pause in (0, 0.001, 0.003, 0.01):
        child = in_child(t, work)
        child.expect(b'go')
        time.sleep(pause)
        child.kill()
        gone(t, 'victim')


@test()
def with_transfers_in_flight(t):
    def work(s, _sock):
        pair = Pair(s, s)
        size = 16 << 20
        a, b = s.buffer(size), s.buffer(size)
        token = s.grant(pair.ea, a.segment())
        for _ in range(16):
            s.start(READ, pair.eb, [b.segment()], [token.segment()])
        return pair, a, b
    for _ in range(5):
        child = in_child(t, work)
        child.expect(b'ready')
        child.kill()
        gone(t, 'victim')


def owner_in_child(t, size, user=1):
    """A child that listens, accepts, grants size bytes and tells the token."""
    def work(s, sock):
        listener, port = s.listen()
        sock.send(b'%d' % port)
        request = s.wait_event('connect_request')
        e = s.endpoint(request=request.request)
        s.call('accept', endpoint=e)
        Pair.wait_connected(s, e)
        m = s.buffer(size, content=b'v' * size)
        read, write = s.grant(e, m.segment()), s.grant(e, m.segment(), read=False)
        sock.send(b'%d %d %d' % (read.address, read.rkey, write.rkey))
        return m, listener
    return in_child(t, work, user)


def connect_to_child(t, child, size):
    s = t.session()
    e = s.endpoint(port=int(child.hear()))
    s.call('connect', endpoint=e)
    Pair.wait_connected(s, e)
    address, read, write = (int(x) for x in child.hear().split())
    child.expect(b'ready')
    return s, e, raw.Token(address, size, read, 0), raw.Token(address, size, write, 0)


@test(timeout=60)
def while_its_peer_reads_from_it(t):
    size = 64 << 20
    for opcode, pauses in ((READ, (0, 0.01)), (WRITE, (0.002,))):
        for pause in pauses:
            # A busy machine may let all of them end before the kill: then once more.
            for _ in range(10):
                if killed_meanwhile(t, size, opcode, pause):
                    break
            else:
                raise AssertionError('all transfers were faster than the kill')


def killed_meanwhile(t, size, opcode, pause):
    """False where there was nothing left to do when the owner was killed."""
    child = owner_in_child(t, size)
    s, e, read, write = connect_to_child(t, child, size)
    m = s.buffer(size)
    token = read if opcode == READ else write
    cookies = [s.start(opcode, e, [m.segment()], [token.segment()]) for _ in range(40)]
    time.sleep(pause)
    child.kill()
    statuses = [s.finish(cookie).status for cookie in cookies]
    # The last may meet an end that has been there already.
    check(all(x in (0, ENOTCONN, *ENDS) for x in statuses), 'statuses %s' %
          [raw.status_name(x) for x in set(statuses)])
    equal(sorted(statuses, key=lambda x: x != 0), statuses, 'successes before failures')
    status_is(s.wait_event('disconnected', lambda x: x.endpoint == e), E.PEER_GONE, E.REMOTE_FAULT,
              E.REMOTE_ACCESS)
    s.call('endpoint_free', endpoint=e)
    m.remove()
    gone(t, 'victim')
    s.close()
    return statuses[-1] != 0


@test()
def while_its_peer_waits_for_a_message(t):
    child = owner_in_child(t, 4096)
    s, e, _, _ = connect_to_child(t, child, 4096)
    m = s.buffer(4096)
    recvs = [s.start(RECV, e, [m.segment(64 * i, 64)]) for i in range(10)]
    send = s.start(SEND, e, [m.segment(0, 64)])
    child.kill()
    for cookie in recvs:
        status_is(s.finish(cookie), *ENDS)
    status_is(s.finish(send), *raw.NO_RECV, *ENDS)
    # Which comes first: the kill, or the end of the time that a SEND waits for a RECV.
    status_is(s.wait_event('disconnected'), E.PEER_GONE, E.RECEIVER_NOT_READY)


@test()
def with_connection_requests_open(t):
    path = t.daemon.socket

    def main(sock):
        s = Session(path, name='victim')
        e = s.endpoint(port=int(sock.recv(100)))
        s.call('connect', endpoint=e)
        sock.send(b'ready')
        time.sleep(240)
    a = t.session(1)
    _, port = a.listen()
    for answer in (False, True):
        child = t.child(main)
        child.tell(b'%d' % port)
        child.expect(b'ready')
        request = a.wait_event('connect_request')
        e = a.endpoint(request=request.request) if answer else None
        child.kill()
        gone(t, 'victim')
        settled(a)
        if e is None:
            reply = a.call_raw('endpoint_new', request=request.request)
            if reply.status == 0 and raw.FABRIC != 'iwarp':
                # Devices do not say that a peer has given up before it is answered.
                a.call('endpoint_free', endpoint=reply.number)
                continue
            status_is(reply, -2)
            continue
        reply = a.call_raw('accept', endpoint=e)
        if reply.status == 0:
            status_is(a.wait_event('connected'), E.PEER_GONE, -111)
        else:
            status_is(reply, -2, -22, E.PEER_GONE)


@test()
def a_forked_child_keeps_the_socket(t):
    """The process that said hello is dead, its child still holds the socket: the session ends all the same."""
    path = t.daemon.socket

    def main(sock):
        session = Session(path, name='forker')
        session.buffer(4096)
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm(120)
                session.wait_end(100)
                sock.send(b'the child saw the end')
            finally:
                os._exit(0)
        sock.send(b'ready')
        time.sleep(240)
    child = t.child(main)
    child.expect(b'ready')
    equal(len(sessions_named(t, 'forker')), 1, 'sessions')
    child.kill()
    child.expect(b'the child saw the end')
    gone(t, 'forker')


@test()
def exec_and_exit(t):
    """A session ends with its process, also where that was polite."""
    path = t.daemon.socket

    def main(sock):
        session = Session(path, name='leaver')
        session.buffer(4096)
        sock.send(b'ready')
    child = t.child(main)
    child.expect(b'ready')
    equal(child.wait(), 0, 'status of the child')
    gone(t, 'leaver')


@test()
def shutdown_of_one_direction(t):
    s = t.session()
    s.buffer(4096)
    s.sock.shutdown(1)
    try:
        check(s.wait_end() is None or s.goodbye.text, 'an empty Goodbye')
    except Ended:
        pass
    s = t.session()
    s.sock.shutdown(0)
    question = s.message('query', table='status').SerializeToString()
    try:
        s.send_bytes(question)
    except Ended:
        pass


@test(users=2)
def charges_are_back_at_zero(t):
    admin = t.admin()

    def used():
        return [row for row in admin.query('quotas')
                if row['who'] == 'user' and row['id'] in (t.uid(0), t.uid(1)) and row['used'] != 0]
    child = owner_in_child(t, 1 << 20)
    s = connect_to_child(t, child, 1 << 20)[0]
    s.buffer(4096)
    limits = {row['limit'] for row in used()}
    for limit in ('sessions', 'buffers', 'pinned', 'endpoints', 'listeners', 'grants'):
        check(limit in limits, 'nothing is charged for ' + limit)
    s.close()
    child.kill()
    until(lambda: not used(), 'the charges of the dead are gone')


@test(config='times { revoke = 5s }')
def a_revoke_does_not_lengthen_a_grant(t):
    """Held up behind a SEND that nobody receives, it ends at the deadline, before that SEND's time-out."""
    if raw.SENT_IS_DONE:
        t.skip('a SEND without a RECV holds up nothing')
    pair = t.pair((0, 0))
    m = pair.a.buffer(4096)
    # What takes a slow machine longer than the grant lives shows nothing: then once more.
    for _ in range(20):
        token = pair.a.grant(pair.ea, m.segment(), lifetime_ms=200)
        send, revoke = pair.a.submit(pair.a.request(SEND, pair.ea, [m.segment()]),
                                     pair.a.request(raw.REVOKE, pair.ea, key=token.grant))
        revoked, sent = pair.a.finish(revoke), pair.a.finish(send)
        status_is(sent, E.RECEIVER_NOT_READY)
        if revoked.status == 0:
            break
        status_is(revoked, E.GRANT_ENDED)
        pair.again()
    status_is(revoked, 0)
    equal(pair.a.order[-2:], [revoke, send], 'the order of completions')
