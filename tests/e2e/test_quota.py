# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each limit: reached, told by name, and free again when what was charged is gone."""
import raw
from harness import FIRST_UID, GID, ROOT, check, equal, status_is, test, until
from raw import E, Ended, Failed, GRANT, RECV, SEND, READ, CANCEL
from test_listen import denied

PAGE = 4096


def names_limit(answer, limit):
    status_is(answer, E.QUOTA)
    check(limit in answer.text, 'the sentence does not name "%s": %s' % (limit, answer.text))


def quota_failure(function, limit):
    try:
        function()
    except (Failed, Ended) as e:
        names_limit(e, limit)
    else:
        raise AssertionError('the limit of %s was not kept' % limit)


@test(config='limits { pinned = 64KiB }')
def pinned(t):
    s = t.session()
    first = s.buffer(32768)
    second = s.buffer(32768)
    quota_failure(lambda: s.buffer(PAGE), 'pinned')
    first.remove()
    quota_failure(lambda: s.buffer(65536), 'pinned')
    s.buffer(PAGE).remove()
    s.buffer(32768).remove()
    second.remove()
    s.buffer(65536)
    # Another session of the same user pays from the same account, until this one is gone.
    other = t.session()
    quota_failure(lambda: other.buffer(PAGE), 'pinned')
    s.close()
    until(lambda: can(lambda: other.buffer(PAGE)), 'the memory is free')


@test(config='limits { pinned = 64MiB }')
def memory_of_a_freed_endpoint_is_back_with_the_reply(t):
    """What its RECVs could have needed is all that the user has."""
    s = t.session()
    _, port = s.listen()
    for _ in range(10):
        s.call('endpoint_free', endpoint=s.endpoint(port=port, recv_stage_bytes=64 << 20))


def can(function):
    try:
        function()
        return True
    except Failed as e:
        status_is(e, E.QUOTA)
        return False


@test(config='limits { buffers = 3 }')
def buffers(t):
    s = t.session()
    kept = [s.buffer(PAGE) for _ in range(3)]
    quota_failure(lambda: s.buffer(PAGE), 'buffers')
    kept.pop().remove()
    kept.append(s.buffer(PAGE))
    quota_failure(lambda: s.buffer(PAGE), 'buffers')
    # One that is refused for another reason is not charged.
    kept.pop().remove()
    for _ in range(5):
        unfit = raw.Memfd(PAGE, seals=0)
        status_is(s.call_raw('buffer_add', fds=[unfit.fd], size_bytes=PAGE), E.BUFFER_UNFIT)
    s.buffer(PAGE)


@test(config='limits { sessions = 3 }')
def sessions(t):
    kept = [t.session() for _ in range(3)]
    quota_failure(t.session, 'sessions')
    if ROOT:
        t.session(1)
    kept.pop().close()
    until(lambda: can_connect(t), 'a session is free')


def can_connect(t):
    try:
        t.session()
        return True
    except (Ended, Failed) as e:
        status_is(e, E.QUOTA)
        return False


@test(config='limits { endpoints = 4 }')
def endpoints(t):
    s = t.session()
    _, port = s.listen()
    kept = [s.endpoint(port=port) for _ in range(4)]
    quota_failure(lambda: s.endpoint(port=port), 'endpoints')
    s.call('endpoint_free', endpoint=kept.pop())
    kept.append(s.endpoint(port=port))
    quota_failure(lambda: s.endpoint(port=port), 'endpoints')
    s.close()
    other = t.session()
    _, port = other.listen()
    until(lambda: can(lambda: other.endpoint(port=port)), 'an endpoint is free')


@test()
def queues_have_a_bound_in_bytes(t):
    """Endpoints are few enough, but each asks for the deepest queues."""
    s = t.session()
    _, port = s.listen()
    kept = []

    def one():
        kept.append(s.endpoint(port=port, send_depth=4096, recv_depth=4096))

    def many():
        while len(kept) < 200:
            one()

    quota_failure(many, '256 MiB')
    s.call('endpoint_free', endpoint=kept.pop())
    one()


@test(config='limits { listeners = 2 }')
def listeners(t):
    s = t.session()
    first, port = s.listen()
    s.listen()
    quota_failure(s.listen, 'listeners')
    s.call('unlisten', listener=first)
    s.listen(port=port)
    quota_failure(s.listen, 'listeners')


@test(config='limits { grants = 3 }')
def grants(t):
    s = t.session()
    pair = raw.Pair(s, s)
    b = s.buffer(PAGE)
    kept = [s.grant(pair.ea, b.segment()) for _ in range(3)]
    refused = s.run(GRANT, pair.ea, [b.segment()], flags=raw.F_GRANT_READ)
    names_limit(refused, 'grants')
    s.do(raw.REVOKE, pair.ea, key=kept[0].grant)
    kept[0] = s.grant(pair.ea, b.segment())
    names_limit(s.run(GRANT, pair.ea, [b.segment()], flags=raw.F_GRANT_READ), 'grants')
    pair.again()
    for _ in range(3):
        s.grant(pair.ea, b.segment())


@test(config='limits { requests = 4 }')
def requests(t):
    s = t.session()
    equal(s.hello_reply.requests_in_flight_max, 4, 'requests_in_flight_max')
    pair = raw.Pair(s, s)
    b = s.buffer(PAGE)
    recvs = [s.start(RECV, pair.ea, [b.segment(0, 64)]) for _ in range(4)]
    names_limit(s.run(RECV, pair.ea, [b.segment(0, 64)]), 'requests')
    s.call('disconnect', endpoint=pair.ea)
    for cookie in recvs:
        status_is(s.finish(cookie), E.FLUSHED)
    pair.again()
    s.start(RECV, pair.ea, [b.segment(0, 64)])
    s.do(SEND, pair.eb, [b.segment(100, 64)])


@test(config='limits { bytes = 1MiB }')
def bytes_in_flight(t):
    s = t.session()
    equal(s.hello_reply.bytes_in_flight_max, 1 << 20, 'bytes_in_flight_max')
    pair = raw.Pair(s, s)
    b = s.buffer(4 << 20)
    token = s.grant(pair.ea, b.segment())

    def read(size):
        return s.request(READ, pair.eb, [b.segment(0, size)], [token.segment(0, size)])
    for _ in range(3):
        s.submit(read(1 << 20))
        status_is(s.finish(s.cookie), 0)
    names_limit(s.run(READ, pair.eb, [b.segment(0, (1 << 20) + 1)],
                      [token.segment(0, (1 << 20) + 1)]), 'bytes')
    if not raw.SENT_IS_DONE:
        # SENDs that no RECV takes stay in flight, and charged.
        send, more = s.submit(s.request(SEND, pair.eb, [b.segment(0, 1 << 20)]),
                              s.request(SEND, pair.eb, [b.segment(0, 1)]))
        names_limit(s.finish(more), 'bytes')
        status_is(s.finish(send), *raw.NO_RECV)
    pair.again()
    token = s.grant(pair.ea, b.segment())
    s.submit(read(1 << 20))
    status_is(s.finish(s.cookie), 0)


@test(config='limits { buffers = 2 }', users=2)
def users_pay_for_themselves(t):
    kept = [t.session(u).buffer(PAGE) for u in (0, 0, 1, 1)]
    for u in (0, 1):
        quota_failure(lambda u=u: t.session(u).buffer(PAGE), 'buffers')
    equal(len(kept), 4, 'buffers of both')


@test(config='group %d { buffers = 3 }' % GID, users=2)
def a_group_has_a_total(t):
    kept = [t.session(u).buffer(PAGE) for u in (0, 1, 0)]
    for u in (0, 1):
        quota_failure(lambda u=u: t.session(u).buffer(PAGE), 'buffers')
    kept[0].remove()
    t.session(1).buffer(PAGE)
    quota_failure(lambda: t.session(0).buffer(PAGE), 'buffers')


@test(config='total { buffers = 3 }\nlimits { buffers = 2 }', users=2)
def the_daemon_has_a_total(t):
    for u in (0, 0, 1):
        t.session(u).buffer(PAGE)
    quota_failure(lambda: t.session(1).buffer(PAGE), 'buffers')


@test(config='limits { buffers = 5 }\nuser %d { buffers = 1 }' % (FIRST_UID + 1), users=2)
def a_user_has_limits_of_its_own(t):
    s = t.session(1)
    s.buffer(PAGE)
    quota_failure(lambda: s.buffer(PAGE), 'buffers')
    s = t.session(0)
    for _ in range(5):
        s.buffer(PAGE)


@test(config='limits { buffers = 4 grants = 4 requests = 4 endpoints = 4 }')
def nothing_is_lost_by_refusals(t):
    """What is refused is not charged: afterwards all of the limit is there."""
    s = t.session()
    pair = raw.Pair(s, s)
    b = s.buffer(PAGE)
    for _ in range(20):
        check(s.run(GRANT, pair.ea, [(PAGE, 1, b.number)], flags=raw.F_GRANT_READ).status < 0, 'served')
        check(s.run(GRANT, pair.ea, [b.segment()]).status < 0, 'served')
        check(s.run(READ, pair.ea, [b.segment()], [(0, 1, 1)]).status < 0, 'served')
        check(s.run(CANCEL, pair.ea, argument=4711).status <= 0, 'a cancel of nothing')
        denied(s, '10.1.2.3')
    for _ in range(4):
        s.grant(pair.ea, b.segment())
    for _ in range(3):
        s.buffer(PAGE)
    for _ in range(2):
        s.endpoint(port=pair.port)
    for _ in range(4):
        s.start(RECV, pair.ea, [b.segment(0, 1)])
    s.query('status')
    equal(s.completions, {}, 'refusals')


@test(config='limits { pinned = 1MiB buffers = 7 }')
def the_table_of_quotas(t):
    s = t.session()
    s.buffer(PAGE)
    rows = s.query('quotas')
    check(rows, 'the table is empty')
    text = ' '.join(str(cell) for row in rows for cell in row.values())
    for word in ('pinned', 'buffers', 'sessions', '1048576', '7'):
        check(word in text, '%s is not in the table of quotas: %s' % (word, text))


@test(config='total { sessions = 3 }', bystander=False)
def administrators_get_in_when_sessions_are_spent(t):
    """Or nobody could end those who spent them."""
    clients = [t.session() for _ in range(3)]
    quota_failure(t.session, 'sessions')
    admins = [t.admin() for _ in range(4)]
    rows = [row for row in admins[0].query('sessions') if row['socket'] == 'client']
    equal(len(rows), 3, 'sessions of clients')
    admins[1].call('admin', verb='end-session', arguments=[str(rows[0]['session'])])

    def gets_in():
        try:
            return t.session()
        except (Failed, Ended):
            return None
    until(gets_in, 'a client gets in again')
