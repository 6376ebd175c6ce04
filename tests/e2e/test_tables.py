# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the daemon says of keys: which live, and how those that lived have ended; to whom it says it."""
import json
import re

import raw
from harness import check, equal, status_is, test, until
from raw import REVOKE, RECV, SEND
from test_death import in_child, sessions_named
from test_transfers import EINVAL, SIZE, Two

GRANTS = ('window', 'exact', 'copy')


def carried(rows):
    return [row for row in rows if row['kind'] in GRANTS]


def ends(rows):
    """(access, why) of grants' keys, in the order of their deaths."""
    return [(row['access'], row['why']) for row in carried(rows) if row['what'] == 'dead']


def session_of(s, buffer):
    """The session that has this buffer, by its size, which no other has."""
    found = [row['session'] for row in s.query('buffers') if row['size'] == buffer.size]
    equal(len(found), 1, 'buffers of %d bytes' % buffer.size)
    return found[0]


@test()
def each_end_with_its_reason(t):
    size = SIZE + 12288
    two = Two(t, size)
    session = session_of(two.a, two.ma)
    tokens = [two.grant(0, 100), two.grant(4096, 200, read=False, lifetime_ms=50)]
    until(lambda: len(two.a.rows('grants')) == 1, 'one has expired')
    two.a.do(REVOKE, two.ea, key=tokens[0].grant)
    expect = [('write', 'deadline'), ('read', 'revoke')]
    if two.invalidates:
        tokens.append(two.grant(8192, 300))
        recv = two.a.start(RECV, two.ea, [two.ma.segment(0, 64)])
        two.b.do(SEND, two.eb, [two.mb.segment(0, 5)], flags=raw.F_INVALIDATE, key=tokens[-1].rkey)
        status_is(two.a.finish(recv), 0)
        expect.append(('read', 'invalidated'))
    tokens.append(two.grant(0, 400))
    live = carried(two.a.query('keys', 'session=%d' % session))
    equal([(row['state'], row['length'], row['access'], row['endpoint']) for row in live],
          [('live', 400, 'read', two.ea)], 'keys that live')
    grants = [row for row in two.a.query('grants') if row['session'] == session]
    equal((grants[0]['key'], grants[0]['carrier'], grants[0]['peer']),
          (live[0]['key'], live[0]['kind'], live[0]['peer']), 'what the grant says')
    two.free()
    expect.append(('read', 'disconnect'))
    history = two.a.query('key-history', 'session=%d' % session)
    equal(ends(history), expect, 'how they ended')
    equal([row['event'] for row in history], sorted(row['event'] for row in history), 'events in order')
    for key in {row['key'] for row in carried(history)}:
        of_key = two.a.query('key-history', 'key=%d' % key)
        equal([row['what'] for row in of_key], ['made', 'live', 'dying', 'dead'], 'the life of a key')
    # What was open of two bytes.
    buffer = carried(history)[0]['buffer']
    for offset, lengths in ((99, [100, 400]), (4100, [200]), (SIZE, [])):
        about = 'buffer=%d:%d:%d+2' % (session, buffer, offset)
        seen = [row['length'] for row in carried(two.a.query('key-history', about))
                if row['what'] == 'dead']
        equal(seen, lengths, 'what was open at %d' % offset)
    peer = live[0]['peer']
    equal(ends(two.a.query('key-history', 'peer=' + peer, 'session=%d' % session)), expect, 'by the peer')
    nothing_secret(t, two.a, tokens)


def nothing_secret(t, session, tokens):
    """No cell equals a key, or the address in a token; nor does one that only an administrator sees."""
    secret = {str(token.rkey) for token in tokens}
    secret |= {'%x' % token.rkey for token in tokens if token.rkey > 0xffff}
    secret |= {str(token.address) for token in tokens if token.address > SIZE}
    for who in (session, t.admin()):
        for table in ('keys', 'key-history', 'grants', 'pools', 'endpoints', 'buffers'):
            for row in who.query(table):
                for column, cell in row.items():
                    check(str(cell) not in secret, '%s of %s is a secret' % (column, table))


@test(users=2)
def others_see_none_of_it(t):
    two = Two(t)
    two.grant(0, 100)
    stranger = t.session(2)
    uid = t.uid(0)
    for table in ('keys', 'key-history', 'pools', 'grants', 'quotas'):
        for row in stranger.query(table):
            check(uid is None or row.get('uid', row.get('id')) not in (uid, t.uid(1)),
                  '%s: %s' % (table, row))
    if uid is not None:
        for about in ('uid=%d' % uid, 'session=%d' % two.a.query('sessions')[0]['session']):
            equal(stranger.query('key-history', about), [], 'what a stranger sees')
            equal(stranger.query('keys', about), [], 'what a stranger sees')
        check(carried(t.admin().query('keys', 'uid=%d' % uid)), 'an administrator sees nothing')
    two.free()


@test()
def a_killed_client(t):
    def work(s, _sock):
        pair = raw.Pair(s, s)
        buffer = s.buffer(65536)
        s.grant(pair.ea, buffer.segment(0, 100))
        s.grant(pair.ea, buffer.segment(200, 100), read=False)
        return pair, buffer
    child = in_child(t, work)
    child.expect(b'ready')
    session = sessions_named(t, 'victim')[0]['session']
    admin = t.admin()
    equal(len(carried(admin.query('keys', 'session=%d' % session))), 2, 'keys that live')
    child.kill()
    until(lambda: not admin.query('keys', 'session=%d' % session), 'its keys are dead')
    equal(sorted(ends(admin.query('key-history', 'session=%d' % session))),
          [('read', 'death'), ('write', 'death')], 'how they ended')


@test()
def wrong_questions(t):
    s = t.session()
    for about in ('', 'uid', 'uid=', 'uid=x', 'buffer=1', 'buffer=1:2:3', 'peer=nobody', 'what=1', 'key=-1'):
        for table in ('keys', 'key-history'):
            try:
                s.query(table, about)
            except raw.Failed as e:
                status_is(e, EINVAL)
            else:
                check(False, '%s takes %r' % (table, about))
    try:
        s.query('keys', 'uid=1', 'uid=2')
    except raw.Failed as e:
        status_is(e, EINVAL)
    else:
        check(False, 'two users at once')


@test(forced=False)
def pools_show_what_waits(t):
    two = Two(t, send_depth=1)
    two.grant(0, 100)
    pools = two.a.rows('pools')
    check(any(row['pool'] in ('registrations', 'read copies') for row in pools), 'pools: %s' % pools)
    equal([row for row in pools if row['pool'] == 'waiting'], [], 'what waits')
    # SENDs that nobody receives: the first has the queue. It gives up after half a second: where a machine
    # stalls for longer before the question, then once more.
    for _ in range(20):
        sends = two.a.submit(*[two.a.request(SEND, two.ea, [two.ma.segment(0, 10)]) for _ in range(3)])
        waiting = [row for row in two.a.rows('pools') if row['pool'] == 'waiting']
        if waiting:
            break
        for cookie in sends:
            check(two.a.finish(cookie).status != 0, 'a SEND was received')
        two.again()
    equal([(row['endpoint'], row['objects'], row['size']) for row in waiting], [(two.ea, 2, 20)],
          'what waits')
    two.free()


@test()
def the_limits_of_all(t):
    rows = t.admin().query('quotas')
    limits = {row['limit'] for row in rows}
    for who in ('user', 'total'):
        equal({row['limit'] for row in rows if row['who'] == who}, limits, 'limits of ' + who)
    mine = t.session().query('quotas')
    equal({row['who'] for row in mine}, {'user'}, 'whose limits a client sees')
    equal({row['limit'] for row in mine}, limits, 'limits of a client')


@test()
def by_the_tool(t):
    two = Two(t, SIZE + 16384)
    session = session_of(two.a, two.ma)
    token = two.grant(0, 100)
    for command in (['keys'], ['keys', '--client', str(session)], ['pools'], ['grants'], ['quotas'],
                    ['keys', '--history'], ['keys', '--history', '--peer', raw.ADDRESS]):
        status, out, errors = t.xferctl(*command)
        equal(status, 0, 'status of %s (%s)' % (command, errors))
        check(out.strip() and 'no ' not in out[:3], 'nothing of %s' % command)
    status, out, _ = t.xferctl('keys', '--client', str(session), '--json')
    equal(status, 0, 'status')
    keys = carried(json.loads(out)['keys'])
    equal(len(keys), 1, 'keys')
    two.a.do(REVOKE, two.ea, key=token.grant)
    about = '%d:%d:50+1' % (session, keys[0]['buffer'])
    status, out, _ = t.xferctl('keys', '--history', '--buffer', about, '--key', str(keys[0]['key']), '--json')
    equal(status, 0, 'status')
    equal([row['what'] for row in json.loads(out)['key-history']], ['made', 'live', 'dying', 'dead'], 'events')
    check(not re.search(r'\b%d\b' % token.rkey, out), 'a key is shown')
    for wrong in (['keys', '--uid', 'x'], ['keys', '--buffer', '1'], ['keys', 'all'], ['grants', '--uid', '1'],
                  ['keys', '--peer'], ['--history', 'keys'], ['keys', '--key', 'x' * 200],
                  ['keys', '--history=1']):
        status, out, errors = t.xferctl(*wrong)
        equal(status, 2, 'status of %s (%s)' % (wrong, errors))
        check(errors.strip() and not out.strip(), 'what %s says' % wrong)
