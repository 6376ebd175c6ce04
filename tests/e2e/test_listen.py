# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Listeners, connections, private data, and who may listen and connect where."""
import os

from harness import FIRST_UID, GID, check, equal, status_is, stopped, test
from raw import ADDRESS, FABRIC, OVER_TCP, RECV, E, Ended, Pair, settled

EINVAL, ENOENT = -22, -2
ECONNREFUSED, EADDRINUSE, EADDRNOTAVAIL = -111, -98, -99


@test()
def private_data_goes_both_ways(t):
    a, b = t.session(), t.session(1)
    listener, port = a.listen()
    eb = b.call('endpoint_new', host=ADDRESS, port=port).number
    ready = b.wait_event('endpoint_ready')
    equal(ready.endpoint, eb, 'endpoint')
    equal(ready.fabric.rstrip('0123456789'), FABRIC, 'fabric')
    check(ready.route and ready.peer_address == '%s:%d' % (ADDRESS, port), 'route %s peer %s' %
          (ready.route, ready.peer_address))
    check(ready.max_segments >= 1 and ready.max_message_bytes >= 1 << 20, 'limits of the fabric')
    question = bytes(i % 251 for i in range(ready.private_connect_bytes))
    answer = bytes(i % 241 for i in range(ready.private_accept_bytes))
    b.call('connect', endpoint=eb, private_data=question)
    request = a.wait_event('connect_request')
    equal((request.listener, request.private_data), (listener, question), 'the request')
    # Who the peer is only iwarp knows, within one daemon.
    mine = os.getuid() if t.uid(1) is None else t.uid(1)
    equal(request.peer_uid, mine if FABRIC == 'iwarp' and not OVER_TCP else -1, 'peer_uid')
    ea = a.endpoint(request=request.request)
    a.call('accept', endpoint=ea, private_data=answer)
    equal(Pair.wait_connected(b, eb).private_data, answer, 'private data of the accept')
    Pair.wait_connected(a, ea)


@test()
def too_much_private_data(t):
    s = t.session()
    _, port = s.listen()
    e = s.call('endpoint_new', host=ADDRESS, port=port).number
    most = s.wait_event('endpoint_ready').private_connect_bytes
    status_is(s.call_raw('connect', endpoint=e, private_data=b'x' * (most + 1)), EINVAL, -90)
    status_is(s.call_raw('connect', endpoint=e, private_data=b'x' * 60000), EINVAL, -90)
    s.call('connect', endpoint=e, private_data=b'x' * most)
    equal(len(s.wait_event('connect_request').private_data), most, 'private data')


@test()
def reject_tells_why(t):
    a, b = t.session(), t.session(1)
    _, port = a.listen()
    eb = b.endpoint(port=port)
    b.call('connect', endpoint=eb)
    request = a.wait_event('connect_request')
    status_is(a.call_raw('reject', request=request.request, private_data=b'x' * 60000), EINVAL, -90)
    a.call('reject', request=request.request, private_data=b'not today')
    refused = b.wait_event('connected', lambda e: e.endpoint == eb)
    status_is(refused, E.REJECTED)
    # Some devices pad it with zeros.
    equal(refused.private_data[:9], b'not today', 'private data')
    check(not refused.private_data[9:].strip(b'\0'), 'what follows it: %r' % refused.private_data)
    check(len(refused.private_data) == 9 or FABRIC == 'rxe', 'private data is padded')
    status_is(a.call_raw('reject', request=request.request), ENOENT)
    status_is(a.call_raw('endpoint_new', request=request.request), ENOENT)


@test()
def nobody_listens(t):
    s = t.session()
    listener, port = s.listen()
    s.call('unlisten', listener=listener)
    e = s.endpoint(port=port)
    s.call('connect', endpoint=e)
    status_is(s.wait_event('connected'), ECONNREFUSED)
    # The same where a RECV waits: its flush does not hide why.
    e = s.endpoint(port=port)
    memory = s.buffer(4096)
    cookie = s.start(RECV, e, [memory.segment()])
    s.call('connect', endpoint=e)
    status_is(s.wait_event('connected', lambda x: x.endpoint == e), ECONNREFUSED)
    status_is(s.finish(cookie), E.FLUSHED)


@test()
def a_port_has_one_listener(t):
    a, b = t.session(), t.session()
    listener, port = a.listen()
    status_is(b.call_raw('listen', host=ADDRESS, port=port), EADDRINUSE)
    status_is(a.call_raw('listen', host=ADDRESS, port=port), EADDRINUSE)
    a.call('unlisten', listener=listener)
    b.listen(port=port)


@test()
def names_and_ipv6(t):
    s = t.session()
    _, port = s.listen('localhost')
    e = s.endpoint('localhost', port)
    s.call('endpoint_free', endpoint=e)
    reply = s.call_raw('listen', host='::1')
    if reply.status != 0:
        status_is(reply, EADDRNOTAVAIL, E.DENIED)
        return
    check(reply.address.startswith('[::1]:'), 'address ' + reply.address)
    pair = Pair.__new__(Pair)
    pair.a = pair.b = s
    pair.eb = s.endpoint('::1', int(reply.address.rsplit(':', 1)[1]))
    s.call('connect', endpoint=pair.eb)
    request = s.wait_event('connect_request')
    pair.ea = s.endpoint(request=request.request)
    s.call('accept', endpoint=pair.ea)
    pair.wait_connected(s, pair.ea)


def denied(s, host, port=20470):
    """At once, or when the address is known."""
    reply = s.call_raw('endpoint_new', host=host, port=port)
    if reply.status == 0:
        reply = s.wait_event('endpoint_ready', lambda e, n=reply.number: e.endpoint == n)
        s.call('endpoint_free', endpoint=reply.endpoint)
    status_is(reply, E.DENIED)


@test()
def other_addresses_are_denied_by_default(t):
    s = t.session()
    for host in ('0.0.0.0', '::', '10.1.2.3', '192.168.1.1', '8.8.8.8', '2001:db8::1',
                 '::ffff:10.0.0.1', '255.255.255.255', '224.0.0.1'):
        status_is(s.call_raw('listen', host=host), E.DENIED)
        denied(s, host)
    equal(s.rows('listeners'), [], 'listeners')


@test(config='allow { listen = {127.0.0.1} connect = {127.0.0.2} }')
def allowed_ranges_are_exact(t):
    s = t.session()
    s.listen('127.0.0.1')
    status_is(s.call_raw('listen', host='127.0.0.2'), E.DENIED)
    denied(s, '127.0.0.1')
    s.endpoint('127.0.0.2', 1)


@test(config='allow { users = {%d} listen = {127.0.0.0/8} connect = {127.0.0.0/8} }\n'
             'allow { connect = {127.0.0.0/8} }' % FIRST_UID, users=2)
def only_some_users_may_listen(t):
    _, port = t.session(0).listen('127.0.0.1')
    s = t.session(1)
    status_is(s.call_raw('listen', host='127.0.0.1'), E.DENIED)
    s.endpoint('127.0.0.1', port)


@test(config='allow { groups = {%d} listen = {127.0.0.0/8} }' % (GID + 7), users=2)
def a_group_that_one_is_not_in(t):
    s = t.session()
    status_is(s.call_raw('listen', host='127.0.0.1'), E.DENIED)
    denied(s, '127.0.0.1')


@test(config='allow { groups = {%d} listen = {127.0.0.0/8} }' % GID, users=2)
def a_group_that_one_is_in(t):
    t.session().listen('127.0.0.1')


@test()
def steps_out_of_order(t):
    s = t.session()
    _, port = s.listen()
    e = s.endpoint(port=port)
    status_is(s.call_raw('accept', endpoint=e), EINVAL)
    s.call('connect', endpoint=e)
    status_is(s.call_raw('connect', endpoint=e), EINVAL)
    request = s.wait_event('connect_request')
    other = s.call('endpoint_new', request=request.request).number
    status_is(s.call_raw('endpoint_new', request=request.request), ENOENT, EINVAL, -16)
    s.wait_event('endpoint_ready', lambda x: x.endpoint == other)
    status_is(s.call_raw('connect', endpoint=other), EINVAL)
    s.call('accept', endpoint=other)
    status_is(s.call_raw('accept', endpoint=other), EINVAL)
    for endpoint in (e, other):
        Pair.wait_connected(s, endpoint)
        status_is(s.call_raw('connect', endpoint=endpoint), EINVAL)
    s.call('disconnect', endpoint=e)
    for endpoint in (e, other):
        s.wait_event('disconnected', lambda x, n=endpoint: x.endpoint == n)
        s.call('endpoint_free', endpoint=endpoint)
        status_is(s.call_raw('endpoint_free', endpoint=endpoint), ENOENT)


@test()
def a_peer_that_gives_up(t):
    a, b = t.session(), t.session(1)
    _, port = a.listen()
    for step in ('request', 'endpoint', 'accept'):
        eb = b.endpoint(port=port)
        b.call('connect', endpoint=eb)
        request = a.wait_event('connect_request')
        ea = a.endpoint(request=request.request) if step != 'request' else None
        b.call('endpoint_free', endpoint=eb)
        settled(a)
        if ea is None:
            reply = a.call_raw('endpoint_new', request=request.request)
            if reply.status == 0 and FABRIC != 'iwarp':
                # Devices do not say that a peer has given up before it is answered.
                a.call('endpoint_free', endpoint=reply.number)
                continue
            status_is(reply, ENOENT)
            continue
        reply = a.call_raw('accept', endpoint=ea)
        if reply.status == 0:
            status_is(a.wait_event('connected', lambda e, n=ea: e.endpoint == n), E.PEER_GONE,
                      ECONNREFUSED)
        else:
            status_is(reply, ENOENT, EINVAL, E.PEER_GONE)
        a.call('endpoint_free', endpoint=ea)


@test()
def unlisten_rejects_what_waits(t):
    a, b = t.session(), t.session(1)
    listener, port = a.listen()
    endpoints = [b.endpoint(port=port) for _ in range(5)]
    for e in endpoints:
        b.call('connect', endpoint=e)
    for _ in endpoints:
        request = a.wait_event('connect_request')
    a.call('unlisten', listener=listener)
    for e in endpoints:
        status_is(b.wait_event('connected', lambda x, n=e: x.endpoint == n), E.REJECTED, ECONNREFUSED,
                  E.PEER_GONE)
    status_is(a.call_raw('endpoint_new', request=request.request), ENOENT)


@test(own=True)
def a_request_that_was_not_read_cannot_be_answered(t):
    """Its number can be guessed. Stopped, the daemon finds all of it at once, and takes sixteen packets of a
    client, and tells it as many, in a turn: when it reads the answer, the request is still to be told."""
    a, b = t.session(), t.session(1)
    listener, port = a.listen()
    eb = b.endpoint(port=port)
    number = 1 << 20  # the first of a session
    with stopped(t.daemon):
        for _ in range(16):
            a.post('disconnect', endpoint=77)
        answer = a.post('endpoint_new', request=number)
        unlisten = a.post('unlisten', listener=listener)
        b.post('connect', endpoint=eb)
    status_is(a.wait_reply(answer), ENOENT)
    status_is(a.wait_reply(unlisten), 0)
    # A device may not have told the daemon of the request before the listener went.
    status_is(b.wait_event('connected'), E.REJECTED, *(() if FABRIC == 'iwarp' else (ECONNREFUSED,)))
    # And where it was read, it can be, without the listener.
    listener, port = a.listen()
    eb = b.endpoint(port=port)
    b.call('connect', endpoint=eb)
    request = a.wait_event('connect_request', lambda e: e.listener == listener)
    a.call('endpoint_new', request=request.request)
    a.call('unlisten', listener=listener)


@test(config='times { connect = 300ms }')
def nobody_answers(t):
    s = t.session()
    _, port = s.listen()
    e = s.endpoint(port=port)
    s.call('connect', endpoint=e)
    s.wait_event('connect_request')
    status_is(s.wait_event('connected'), -110)
    s.call('endpoint_free', endpoint=e)


@test()
def require(t):
    s = t.session()
    _, port = s.listen()
    mine, other = ('tcp', 'iwarp'), ('verbs', 'mlx5_0')
    if FABRIC != 'iwarp':
        mine, other = ('verbs', FABRIC + '0'), (FABRIC + '1', FABRIC)
    if FABRIC == 'rxe':
        mine += ('tcp', 'iwarp')  # beside RoCE there is TCP
    if FABRIC == 'siw':
        # A device that speaks iWARP has the port of TCP to itself, and what comes is the same to it.
        e = s.endpoint(port=port, require='tcp')
        s.call('connect', endpoint=e)
        accepted = s.endpoint(request=s.wait_event('connect_request').request)
        s.call('accept', endpoint=accepted)
        for end in (accepted, e):
            status_is(s.wait_event('connected', lambda x, end=end: x.endpoint == end), 0)
    for what in mine:
        s.endpoint(port=port, require=what)
    for what in (*other, 'x' * 64, 'x' * 5000):
        try:
            reply = s.call_raw('endpoint_new', host=ADDRESS, port=port, require=what)
        except Ended as e:
            status_is(e, E.PROTOCOL)
            s = t.session()
            continue
        if reply.status == 0:
            ready = s.wait_event('endpoint_ready', lambda e, n=reply.number: e.endpoint == n)
            check(ready.status < 0 and ready.text, 'require=%s is served by %s' % (what, ready.fabric))
        else:
            check(reply.text, 'no sentence')


@test(users=2)
def tables_show_ones_own(t):
    pair = t.pair()
    pair.a.buffer(4096)
    for table, here, there in (('endpoints', 1, 1), ('listeners', 1, 0), ('buffers', 1, 0),
                               ('sessions', 1, 1)):
        equal((len(pair.a.rows(table)), len(pair.b.query(table))), (here, there), 'rows of ' + table)
    admin = t.admin()
    for table, least in (('endpoints', 2), ('listeners', 1), ('buffers', 1), ('sessions', 3),
                         ('devices', 1), ('quotas', 1)):
        rows = admin.query(table)
        check(len(rows) >= least, '%d rows of %s' % (len(rows), table))


@test()
def no_table_shows_a_key(t):
    s = t.session()
    pair = Pair(s, s)
    token = s.grant(pair.ea, s.buffer(4096).segment())
    keys = {str(token.rkey), '%x' % token.rkey, '0x%x' % token.rkey, '%08x' % token.rkey}
    for session in (s, t.admin()):
        for table in ('grants', 'endpoints', 'buffers', 'sessions', 'devices', 'status', 'listeners'):
            for row in session.query(table):
                check(not keys & {str(cell) for cell in row.values()}, 'a key in table %s: %s' %
                      (table, row))
    check(str(token.rkey) not in t.daemon.stderr(), 'a key in the log')


@test()
def a_table_longer_than_a_packet(t):
    s = t.session()
    buffers = [s.buffer(4096) for _ in range(900)]
    equal(len(s.rows('buffers')), len(buffers), 'rows')
