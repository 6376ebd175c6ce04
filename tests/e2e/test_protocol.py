# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Messages: what is no message, what comes at the wrong time, what a newer client would say."""
import os
import random

import client_pb2 as pb
import raw
from harness import check, equal, status_is, test, until
from raw import E, Ended, Failed, Timeout, PACKET_MAX


def varint(value):
    out = bytearray()
    while True:
        byte = value & 0x7f
        value >>= 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


def field(number, payload):
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def refused(t, data, status=E.PROTOCOL, fds=(), hello=True):
    """The packet ends its session, with a sentence."""
    s = t.session(hello=hello)
    try:
        s.send_bytes(data, fds)
    except Ended:
        pass
    goodbye = s.wait_end()
    status_is(goodbye, status)
    s.close()
    return goodbye


def serves(s):
    """A session that must still be served."""
    check(len(s.query('status')) > 0, 'the status table is empty')


def example(t):
    """A message as a client might send it."""
    s = t.session()
    message = s.message('submit', serial=0)
    for i in range(3):
        message.submit.requests.append(
            s.request(1, 1, [(i * 4096, 4096, 1)] * 4, [(i, 4096, 77)] * 4))
    data = message.SerializeToString()
    s.close()
    return data


@test()
def hello_tells_version_and_limits(t):
    s = t.session()
    equal(s.hello_reply.major, 1, 'the major version')
    check(s.hello_reply.version.count('.') == 2, 'version ' + s.hello_reply.version)
    check(s.hello_reply.requests_in_flight_max > 0, 'no limit of requests')
    check(s.hello_reply.bytes_in_flight_max > 0, 'no limit of bytes')
    serves(s)


@test()
def newer_minor_and_unknown_features_work(t):
    s = t.session(minor=4711, features=(1 << 64) - 1)
    equal(s.hello_reply.features >> 3, 0, 'features that nobody knows')
    serves(s)


@test()
def other_major_is_refused_by_name(t):
    for major in (0, 2, 0xffffffff):
        try:
            t.session(major=major)
        except (Ended, Failed) as e:
            status_is(e, E.VERSION)
        else:
            raise AssertionError('major version %d was served' % major)


@test()
def hello_names_of_any_kind(t):
    for name in ('', 'x' * 64, 'two words'):
        serves(t.session(name=name))
    for name in ('x' * 65, 'x' * 60000, 'bell\a', 'new\nline'):
        try:
            serves(t.session(name=name))
        except (Ended, Failed) as e:
            check(e.status in (E.PROTOCOL, -22) and e.text, 'a name is refused without reason')


@test()
def truncated_messages_end_the_session(t):
    data = example(t)
    for cut in (1, 2, 5, len(data) // 2, len(data) - 1):
        refused(t, data[:cut])


@test()
def oversized_packets_end_the_session(t):
    refused(t, b'\0' * (PACKET_MAX + 1))
    refused(t, field(1000, b'x' * 100000))


@test()
def a_packet_of_the_largest_size_is_read(t):
    s = t.session()
    head = s.message('query', table='status').SerializeToString()
    pad = PACKET_MAX - len(head) - 6
    data = head + field(1000, b'x' * pad)
    data += b''.join([varint(1001 << 3) + b'\1'] * ((PACKET_MAX - len(data)) // 3))
    check(PACKET_MAX - 3 < len(data) <= PACKET_MAX, 'the test makes %d bytes' % len(data))
    s.send_bytes(data)
    status_is(s.wait_reply(s.serial), 0)


@test()
def an_empty_packet_is_no_end_of_file(t):
    refused(t, b'')


@test()
def unknown_operations_are_refused_and_the_session_goes_on(t):
    s = t.session()
    for number in (16, 99, 536870911):
        s.serial += 1
        s.send_bytes(varint(1 << 3) + varint(s.serial) + field(number, b'\x08\x01'))
        status_is(s.wait_reply(s.serial), E.UNKNOWN_OPERATION)
    serves(s)


@test()
def unknown_fields_are_ignored(t):
    s = t.session()
    message = s.message('query')
    data = varint(1 << 3) + varint(message.serial)
    data += varint(77 << 3) + b'\1'  # at the top
    data += field(14, field(1, b'status') + field(99, b'what is this') + varint(98 << 3) + b'\5')
    s.send_bytes(data)
    status_is(s.wait_reply(message.serial), 0)
    serves(s)


@test()
def nothing_is_served_before_hello(t):
    bodies = [('buffer_add', {'size_bytes': 4096}), ('listen', {'host': '127.0.0.1'}),
              ('query', {'table': 'status'}), ('endpoint_new', {'host': '127.0.0.1', 'port': 1}),
              ('disconnect', {'endpoint': 1}), ('admin', {'verb': 'log-level'})]
    for body, fields in bodies:
        s = t.session(hello=False)
        s.send_bytes(s.message(body, **fields).SerializeToString())
        status_is(s.wait_end(), E.PROTOCOL)
    s = t.session(hello=False)
    s.send_bytes(s.message('submit', serial=0).SerializeToString())
    status_is(s.wait_end(), E.PROTOCOL)


@test()
def a_second_hello_ends_the_session(t):
    s = t.session()
    s.send_bytes(s.message('hello', major=1).SerializeToString())
    status_is(s.wait_end(), E.PROTOCOL)


@test()
def a_request_without_a_serial_ends_the_session(t):
    s = t.session()
    s.send_bytes(s.message('query', serial=0, table='status').SerializeToString())
    status_is(s.wait_end(), E.PROTOCOL)


@test(config='times { hello = 300ms }')
def no_hello_in_time_ends_the_session(t):
    s = t.session(hello=False)
    status_is(s.wait_end(), -110)

    def in_time():
        try:
            serves(t.session())
            return True
        except Ended as e:
            status_is(e, -110)  # a machine that stalls between its connect and its hello
            return False
    until(in_time, 'who says hello is served')


def survives(t, data, fds=()):
    """The packet is served, or ends its session by the rules; the daemon does not grow by it."""
    before = t.daemon.rss_bytes()
    s = t.session()
    try:
        s.send_bytes(data, fds)
        s.send_bytes(s.message('query', table='status').SerializeToString())
        s.wait_reply(s.serial)
    except Ended as e:
        status_is(e, E.PROTOCOL)
    s.close()
    grown = t.daemon.rss_bytes() - before
    if not t.build.sanitized:
        check(grown < 8 << 20, 'the daemon grew by %d bytes' % grown)


@test()
def repeated_fields_of_the_top_oneof(t):
    hello = field(2, b'\x08\x01' + field(4, b'n' * 60))
    survives(t, varint(1 << 3) + b'\1' + hello * (60000 // len(hello)))
    query = field(14, field(1, b'status'))
    survives(t, varint(1 << 3) + b'\7' + query * (60000 // len(query)))
    requests = pb.ClientMessage()
    requests.submit.requests.add(opcode=99, cookie=1)
    submit = requests.SerializeToString()
    survives(t, submit * (60000 // len(submit)))
    survives(t, (query + field(4, b'') + field(16, b'')) * 2000)


@test()
def deeply_nested_groups_and_empty_submessages(t):
    survives(t, b'\x0b' * PACKET_MAX)  # group 1 begins, 65,536 deep
    survives(t, b'\x7b' * 60000 + b'\x7c' * 5000)
    survives(t, field(13, field(1, b'') * 32000))  # empty requests
    segments = field(7, b'') * 30000
    survives(t, field(13, field(1, segments)))
    survives(t, field(15, field(2, b'') * 32000))  # empty arguments
    nested = b''
    while len(nested) < 65000:
        nested = field(13, nested)
    survives(t, nested)


@test()
def impossible_lengths_and_tags(t):
    for data in (b'\x6a\xff\xff\xff\xff\x0f', b'\x6a\xff\xff\xff\xff\xff\xff\xff\xff\x7f',
                 b'\xff' * 11, b'\x00\x00', b'\x08' + b'\x80' * 10 + b'\x01', b'\x6f', b'\x6e\x01',
                 field(13, b'\x0a\xff\xff\xff\xff\x07'), field(13, b'\x0a\x7f')):
        survives(t, data)


@test()
def too_many_requests_segments_or_arguments(t):
    s = t.session()
    request = s.request(1, 1, [(0, 1, 1)] * 65, [(0, 1, 1)] * 65)
    s.submit(request)
    try:
        status_is(s.finish(request.cookie), -22, -7, -90, E.PROTOCOL)
    except Ended as e:
        status_is(e, E.PROTOCOL)
    s = t.session()
    s.send_bytes(s.message('admin', verb='log-level', arguments=['a'] * 9).SerializeToString())
    try:
        status_is(s.wait_reply(s.serial), -22, -1, -13, E.DENIED, E.PROTOCOL)
    except Ended as e:
        status_is(e, E.PROTOCOL)


@test()
def text_of_any_kind_in_every_field(t):
    s = t.session()
    for text in (b'', b'\0', b'\0' * 255, b'%s%n%s%n', b'\xff\xfe', b'a' * 256, b'a' * 60000,
                 b'127.0.0.1\0evil', b'../../etc', b'localhost '):
        for number, rest in ((5, varint(2 << 3) + b'\0'), (7, varint(2 << 3) + b'\1')):
            if s.ended:
                s = t.session()
            s.serial += 1
            try:
                s.send_bytes(varint(1 << 3) + varint(s.serial) +
                             field(number, field(1, text) + rest))
                reply = s.wait_reply(s.serial)
                if reply.status == 0 and number == 5:
                    s.call('unlisten', listener=reply.number)
                elif reply.status == 0:
                    s.call('endpoint_free', endpoint=reply.number)
                else:
                    check(reply.text, 'no sentence for %r' % text)
            except Ended as e:
                status_is(e, E.PROTOCOL)
    s = t.session()
    for text in ('', 'no such table', 'statu', 'x' * 60000):
        status_is(s.call_raw('query', table=text), -2, -22)


@test()
def numbers_that_name_nothing(t):
    s = t.session()
    for number in (0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff):
        for body, name in (('buffer_remove', 'buffer'), ('unlisten', 'listener'),
                           ('connect', 'endpoint'), ('accept', 'endpoint'),
                           ('disconnect', 'endpoint'), ('endpoint_free', 'endpoint'),
                           ('reject', 'request')):
            status_is(s.call_raw(body, **{name: number}), -2)
    status_is(s.call_raw('endpoint_new', request=99), -2)
    status_is(s.call_raw('endpoint_new', host='127.0.0.1', port=1, request=99), -2, -22)
    serves(s)


@test()
def values_out_of_range(t):
    s = t.session()
    bad = [('listen', {'host': '127.0.0.1', 'port': 65536}),
           ('listen', {'host': '127.0.0.1', 'port': 0xffffffff}),
           ('listen', {'host': '127.0.0.1', 'backlog': 1025}),
           ('listen', {'host': ''}),
           ('endpoint_new', {'host': '127.0.0.1', 'port': 0}),
           ('endpoint_new', {'host': '127.0.0.1', 'port': 65536}),
           ('endpoint_new', {'host': '127.0.0.1', 'port': 1, 'send_depth': 4097}),
           ('endpoint_new', {'host': '127.0.0.1', 'port': 1, 'recv_depth': 4097}),
           ('endpoint_new', {'host': '', 'port': 1}),
           ('endpoint_new', {})]
    for body, fields in bad:
        status_is(s.call_raw(body, **fields), -22)
    serves(s)


@test()
def a_name_that_does_not_resolve(t):
    s = t.session()
    number = s.call('endpoint_new', host='no-such-host.invalid', port=1).number
    # EAGAIN is that of a host without a name server.
    status_is(s.wait_event('endpoint_ready', lambda e: e.endpoint == number, 20),
              -2, -11, -19, -99, -101, -110, -111, -113)
    s.call('endpoint_free', endpoint=number)


@test(timeout=60)
def ten_thousand_random_packets(t):
    """Fewer where a thousand would take a minute: what they meet knows nothing of fabrics."""
    rng = random.Random(20470)
    valid = example(t)
    logged = len(t.daemon.stderr())
    s = None
    ended = 0
    count = 10000 if raw.SLOW == 1 else 500
    for i in range(count):
        if s is None:
            s = t.daemon.session(t.uid(0))
        kind = i % 4
        if kind == 0:
            data = rng.randbytes(rng.randrange(1, 200))
        elif kind == 1:
            damaged = bytearray(valid)
            for _ in range(rng.randrange(1, 8)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            data = bytes(damaged)
        elif kind == 2:
            data = field(rng.randrange(1, 20), rng.randbytes(rng.randrange(0, 60)))
        else:
            data = varint(8) + varint(rng.randrange(1 << 32)) + \
                field(rng.randrange(2, 16), varint(rng.randrange(1, 8) << 3 | rng.choice((0, 2, 5))) +
                      rng.randbytes(rng.randrange(0, 30)))
        try:
            s.send_bytes(data)
            s.wait_reply(s.post('query', serial=(1 << 63) + i, table='devices'))
            s.replies.clear()
            s.completions.clear()
            s.events.clear()
        except Ended:
            s.close()
            s = None
            ended += 1
        except AssertionError as e:
            # The garbage may have used a serial or a cookie twice.
            if 'second' not in str(e):
                raise
            s.close()
            s = None
        except Timeout:
            s.close()
            s = None
    if s is not None:
        s.close()
    check(ended > count // 10, 'only %d sessions ended by garbage' % ended)
    serves(t.session())
    grown = len(t.daemon.stderr()) - logged
    t.note('%d sessions ended; %d bytes of log' % (ended, grown))
    check(grown < 1 << 20, 'a client wrote %d bytes of log' % grown)


@test()
def descriptors_beside_messages_that_take_none(t):
    """They end the session, and are closed, as many as there are."""
    pipe = os.pipe()
    try:
        for count in (1, 10, 253):
            s = t.session()
            data = s.message('query', table='status').SerializeToString()
            s.close()
            refused(t, data, fds=[pipe[0]] * count)
            refused(t, b'\xff\xff', fds=[pipe[0]] * count)
        s = t.session(hello=False)
        data = s.message('hello', major=1).SerializeToString()
        s.close()
        refused(t, data, fds=[pipe[0]] * 253, hello=False)
        # Of an operation that the daemon does not know it cannot say how many it takes.
        s = t.session()
        s.send_bytes(varint(8) + varint(7) + field(99, b''), [pipe[0]] * 3)
        status_is(s.wait_reply(7), E.UNKNOWN_OPERATION)
        serves(s)
    finally:
        os.close(pipe[0])
        os.close(pipe[1])


@test()
def names_come_back_as_text_whatever_they_were(t):
    """What a client calls itself is shown to others: as text that any decoder takes, and no terminal obeys."""
    for name in (b'"quoted\\', b'\xff\xfe\xc3', 'größer'.encode(), b'$(reboot)', b'<b>'):
        s = t.session(hello=False)
        s.serial += 1
        try:
            s.send_bytes(varint(8) + varint(s.serial) + field(2, b'\x08\x01' + field(4, name)))
            s.wait_for(lambda s=s: s.replies.get(s.serial), 'hello reply')
            rows = t.admin().query('sessions')
            check(all(ch.isprintable() for row in rows for ch in str(row['name'])), 'a name: %s' % rows)
        except Ended as e:
            status_is(e, E.PROTOCOL)
        s.close()
    for body, number in ((14, 1), (15, 1), (15, 2), (7, 7)):
        s = t.session()
        s.serial += 1
        text = field(number, b'\xff\xfe\x80')
        try:
            s.send_bytes(varint(8) + varint(s.serial) +
                         field(body, text if body != 7 else field(1, b'127.0.0.1') + b'\x10\x01' + text))
            s.wait_for(lambda s=s: s.replies.get(s.serial), 'reply')
        except Ended as e:
            status_is(e, E.PROTOCOL)
        s.close()


@test()
def cursors_that_nobody_gave(t):
    s = t.session()
    s.buffer(4096)
    rng = random.Random(1)
    for table in ('status', 'devices', 'device-facts', 'sessions', 'endpoints', 'buffers', 'listeners', 'grants',
                  'quotas'):
        for cursor in (1, 2, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1, rng.getrandbits(64),
                       rng.getrandbits(40)):
            reply = s.call_raw('query', table=table, cursor=cursor)
            check(reply.status <= 0, 'status %d' % reply.status)
    serves(s)
