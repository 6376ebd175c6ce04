# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The examples do what they say."""
import re

import raw
from harness import check, equal, test, until


def program(t, name):
    path = t.build.program('examples/' + name)
    if path is None:
        t.skip('no examples/%s in the build' % name)
    return path


def listening(t, port):
    """Whether somebody listens there, by the daemon's word."""
    admin = t.admin()
    return lambda: any(str(row['address']).endswith(':%d' % port) for row in admin.query('listeners'))


def says(t, command, pattern):
    status, out, errors = t.run(command)
    equal(status, 0, 'status of %s (%s)' % (command[0], errors))
    check(re.search(pattern, out), '%s says: %s' % (command[0], out))
    t.note(out.strip().splitlines()[-1])


@test()
def first(t):
    says(t, [program(t, 'first')], r'READ 100000 bytes, all of them right')


@test()
def linked(t):
    says(t, [program(t, 'linked')], r'"write": READ 50100 bytes of two buffers')


@test()
def poll_loop(t):
    says(t, [program(t, 'poll-loop')], r'\d+ messages went there and back')


@test()
def pingpong(t):
    says(t, [program(t, 'pingpong'), '-n', '200', '-s', '10000'], r'200 blocks of 10000 bytes')
    status, _, errors = t.run([program(t, 'pingpong'), '-n', 'x'])
    check(status != 0 and errors, 'status %d of bad arguments' % status)


@test(users=2)
def pingpong_of_two_users(t):
    server = t.spawn([program(t, 'pingpong'), 'server', raw.ADDRESS + ':20477'], user=1)
    until(listening(t, 20477), 'the server listens')
    check(server.poll() is None, 'the server ended')
    says(t, [program(t, 'pingpong'), '-n', '100', '-s', '4096', 'client', raw.ADDRESS + ':20477'],
         r'100 blocks of 4096 bytes')


@test(users=2)
def xfer_ping_of_two_users(t):
    address = raw.ADDRESS + ':7174'
    server = t.spawn([program(t, 'xfer-ping'), '-v', 'server', address], user=1)
    until(listening(t, 7174), 'the server listens')
    says(t, [program(t, 'xfer-ping'), '-C', '20', '-S', '1000', 'client', address],
         r'20 rounds of 1000 bytes, all of them right')
    output, errors = server.communicate(timeout=60)
    equal(server.returncode, 0, 'status of the server (%s)' % errors)
    check(b'ping data: rdma-ping-19: ' in output and b'20 rounds served' in output, 'the server says %s' % output)


@test()
def xfer_ping_wants_good_arguments(t):
    for arguments in ((), ('-C', '0', 'client'), ('-S', '31', 'client'), ('-S', '65537', 'client'), ('neither',)):
        status, _, errors = t.run([program(t, 'xfer-ping'), *arguments])
        check(status == 2 and 'usage' in errors, '%s: %d %s' % (arguments, status, errors))


@test()
def without_a_daemon(t):
    for name in ('first', 'linked', 'poll-loop', 'pingpong', 'xfer-ping'):
        process = t.spawn([program(t, name), *(['client'] if name == 'xfer-ping' else [])], daemon=t.more_daemon(start=False))
        _, errors = process.communicate(timeout=60)
        check(process.returncode > 0 and b'/client/sock' in errors, '%s: %d %s' %
              (name, process.returncode, errors))
