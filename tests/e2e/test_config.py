# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a configuration says, as clients see it; its syntax has tests of its own."""
import os
import signal
import subprocess

import raw
from harness import DAEMON_UID, GID, ROOT, check, equal, status_is, test, until
from raw import E
from test_tools import MIB, Served, digest, make
from wire_rig import needs_tcp


@test(daemon=False)
def all_errors_at_once_with_file_and_line(t):
    path = os.path.join(t.dir, 'bad.conf')
    lines = ['limits { pinned = 1Gibberish }',
             'limit { }',
             'allow { listen = {300.0.0.0/8} }',
             'allow { conect = {127.0.0.0/8} }',
             'user no-such-user-here { buffers = 1 }',
             'times { hello = 1 fortnight }']
    with open(path, 'w', encoding='ascii') as f:
        f.write('\n'.join(lines) + '\n')
    done = subprocess.run([t.build.rdmaxferd, '--check-config', '--config', path], capture_output=True,
                          text=True, timeout=60, env=t.build.environment(), check=False)
    check(done.returncode > 0, 'status %d' % done.returncode)
    for number in range(1, len(lines) + 1):
        check('%s:%d:' % (path, number) in done.stderr, 'nothing of line %d in: %s' %
              (number, done.stderr))


@test(daemon=False)
def a_configuration_that_cannot_be_read(t):
    path = os.path.join(t.dir, 'secret.conf')
    with open(path, 'w', encoding='ascii') as f:
        f.write('limits { buffers = 1 }')
    os.chmod(path, 0)
    for bad in ([path] if ROOT else []) + [t.dir, os.path.join(t.dir, 'missing')]:
        d = t.more_daemon(start=False)
        command = d.command()
        command[command.index('--config') + 1] = bad
        process = d.spawn(command, stderr=subprocess.PIPE)
        _, errors = process.communicate(timeout=60)
        check(process.returncode > 0 and bad.encode() in errors, '%s: %d %s' %
              (bad, process.returncode, errors))


@test(config='limits { requests = 77 bytes = 5MiB }\nuser %d { requests = 78 }\n' % DAEMON_UID)
def hello_tells_the_limits(t):
    s = t.session()
    equal((s.hello_reply.requests_in_flight_max, s.hello_reply.bytes_in_flight_max), (77, 5 << 20),
          'limits')
    if ROOT:
        with t.daemon.session(DAEMON_UID) as s:
            equal(s.hello_reply.requests_in_flight_max, 78, 'requests of the user with its own')


@test(config='handshakes = 8\ntimes { hello = 30s }', users=2)
def a_bound_of_handshakes(t):
    silent = [t.socket() for _ in range(40)]
    base = t.daemon.fds()
    check(base < 60, '%d descriptors' % base)
    equal(len(silent), 40, 'sockets of the test')


@test(config='group %d { sessions = 2 }\nlimits { sessions = 50 }' % (GID + 1))
def groups_that_one_is_not_in_do_not_count(t):
    for _ in range(5):
        t.session()


@test(daemon=False)
def settings_of_iwarp_hold_from_the_next_start(t):
    d = t.more_daemon('device iwarp { ird = 8 }')
    hint = 'hold from the next start'
    for config, hints in (('device iwarp { ird = 8 crc = no }', 0), ('device iwarp { ird = 9 }', 1),
                          ('device iwarp { ird = 8 handshakes = 9 }', 2), ('device iwarp { ird = 8 }', 2)):
        read = d.stderr().count('was read again')
        d.write_config(config)
        d.process.send_signal(signal.SIGHUP)
        until(lambda n=read: d.stderr().count('was read again') > n, 'it reads ' + config)
        until(lambda n=hints: d.stderr().count(hint) == n, 'it says that %d times: %s' % (hints, config))
    equal(d.stop(), 0, 'status')


def moves(t):
    """Whatever such a device cannot do, files arrive."""
    served = Served(t, '--writable')
    source, back = os.path.join(t.dir, 'source'), os.path.join(t.dir, 'back')
    for size in (0, 1, 4095, 3 * MIB + 17):
        make(source, size, size)
        status, _, errors = t.xferctl('put', source, served.url + 'f')
        equal(status, 0, 'status of put of %d bytes (%s)' % (size, errors))
        status, _, errors = t.xferctl('get', served.url + 'f', back)
        equal(status, 0, 'status of get of %d bytes (%s)' % (size, errors))
        equal(digest(back), digest(source), 'SHA-256')
    served.alive()


@test(config='device iwarp { profile = mlx5 }', timeout=60)
def files_move_as_on_mlx5(t):
    moves(t)


@test(config='device iwarp { profile = cxgb4 }', timeout=60)
def files_move_as_on_cxgb4(t):
    moves(t)


@test(config='device iwarp { profile = siw }', timeout=60)
def files_move_as_on_siw(t):
    moves(t)


@test(config='device iwarp { profile = worst }', timeout=60)
def files_move_as_on_the_worst(t):
    moves(t)


# As nobody listened; or, by a device that had accepted already, as its fabric rejects.
REFUSED = (-111, E.BACKLOG, E.REJECTED)
OURS = '{127.0.0.0/8, "%s"}' % raw.ADDRESS
HERE = 'listen = %s connect = %s' % (OURS, OURS)


def refuses(t, connecting):
    """The daemon of the test does not let peers from here to its listeners, and says so only in a counter."""
    listening = t.session()
    _, port = listening.listen()
    e = connecting.endpoint(port=port)
    connecting.call('connect', endpoint=e)
    connected = connecting.wait_event('connected', lambda m: m.endpoint == e)
    check(connected.status < 0, 'it connected')
    status = {row['name']: int(row['value']) for row in t.admin().query('status')}
    equal((status['connects_refused'], status['connects_rejected']), (1, 0), 'refused, rejected')
    listening.query('devices')
    equal(list(listening.events), [], 'events of the listener')
    return connected


@test(config='allow { %s accept = {192.0.2.0/24} }' % HERE)
def peers_from_elsewhere_are_refused(t):
    status_is(refuses(t, t.session(1)), *REFUSED)


@test(config='allow { %s accept = {192.0.2.0/24} }' % HERE)
def peers_from_elsewhere_are_refused_through_tcp(t):
    needs_tcp(t)
    status_is(refuses(t, t.keep(t.more_daemon().session(t.uid(1)))), E.PEER_GONE)


@test(config='allow { %s accept = {192.0.2.0/24} }\nallow { users = {%d} accept = %s }' %
      (HERE, DAEMON_UID, OURS))
def each_user_has_peers_from_where_it_may(t):
    a, b = t.session(1), t.session()
    _, port = a.listen()
    e = b.endpoint(port=port)
    b.call('connect', endpoint=e)
    if ROOT:
        status_is(b.wait_event('connected'), *REFUSED)
    with t.daemon.session(DAEMON_UID) as owner:
        _, port = owner.listen()
        e = b.endpoint(port=port)
        b.call('connect', endpoint=e)
        owner.wait_event('connect_request')
