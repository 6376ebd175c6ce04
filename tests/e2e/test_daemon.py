# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The program: arguments, its sockets, its start and its end."""
import os
import signal
import socket
import stat
import subprocess
import sys
import time

import raw
from harness import DAEMON_UID, GID, ROOT, check, equal, status_is, test, until
from raw import E, Ended, Failed, Pair, READ, RECV


def run(t, *arguments, timeout=60):
    """rdmaxferd as the daemon's user: (status, output, errors)."""
    process = subprocess.run([t.build.rdmaxferd, *arguments], stdin=subprocess.DEVNULL,
                             capture_output=True, timeout=timeout, check=False, cwd='/',
                             env=t.build.environment(), text=True)
    return process.returncode, process.stdout, process.stderr


@test(daemon=False)
def help_and_version(t):
    status, out, _ = run(t, '--help')
    equal(status, 0, 'status of --help')
    for option in ('--config', '--socket', '--admin-socket', '--check-config', '--version', '--help'):
        check(option in out, option + ' is not in the help')
    status, out, _ = run(t, '--version')
    equal(status, 0, 'status of --version')
    check('rdmaxferd' in out and '0.1.0' in out, 'version: ' + out)


@test(daemon=False)
def bad_arguments(t):
    for arguments in (['--no-such-option'], ['stray'], ['--socket'], ['--config'], ['-Z']):
        status, out, errors = run(t, *arguments)
        check(status not in (0, -6, -11), '%s: status %d' % (arguments, status))
        check(errors and not out, '%s: %s' % (arguments, out))


@test(daemon=False)
def check_config(t):
    path = os.path.join(t.dir, 'conf')

    def checked(text):
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
        return run(t, '--check-config', '--config', path)
    for good in ('', '# nothing\n', 'limits { pinned = 64MiB sessions = 5 }\n',
                 'allow { listen = {127.0.0.0/8} connect = {127.0.0.0/8, "::1"} }\n'):
        status, _, errors = checked(good)
        equal(status, 0, 'status of %r (%s)' % (good, errors))
    status, _, errors = checked('limits {\n  pined = 64MiB\n  sessions = many\n}\n\nuzer bob { }\n')
    check(status != 0, 'a bad file is accepted')
    for word in (':2:', ':3:', ':6:', 'pined', 'pinned', 'many', 'uzer', 'user'):
        check(word in errors, 'no "%s" in: %s' % (word, errors))
    status, _, errors = run(t, '--check-config', '--config', os.path.join(t.dir, 'missing'))
    check(status != 0 and 'missing' in errors, 'a missing file: %d %s' % (status, errors))


@test(daemon=False)
def a_bad_configuration_starts_nothing(t):
    d = t.more_daemon('limits { pined = 1 }', start=False)
    process = d.spawn(stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=60)
    check(process.returncode > 0, 'status %d' % process.returncode)
    check(b'pined' in errors, 'it says: %s' % errors)
    check(not os.path.exists(d.socket), 'there is a socket')


@test()
def sockets_and_their_modes(t):
    for path, name in ((t.daemon.socket, 'socket'), (t.daemon.admin_socket, 'admin socket')):
        mode = os.stat(path)
        check(stat.S_ISSOCK(mode.st_mode), name + ' is none')
        equal(oct(stat.S_IMODE(mode.st_mode)), oct(0o660), 'mode of the ' + name)
        directory = os.stat(os.path.dirname(path))
        equal(oct(stat.S_IMODE(directory.st_mode)), oct(0o750), 'mode of the directory of the ' + name)
        if ROOT:
            equal((mode.st_uid, mode.st_gid), (DAEMON_UID, GID), 'owner of the ' + name)


@test(users=2)
def strangers_cannot_reach_the_socket(t):
    try:
        raw.open_socket(t.daemon.socket, 62000, 62000).close()
    except PermissionError:
        return
    raise AssertionError('a user of another group connected')


@test(users=2)
def ordinary_users_are_no_administrators(t):
    try:
        with raw.Session(t.daemon.admin_socket, t.uid(0), GID) as s:
            s.query('status')
    except PermissionError:
        return
    except (Ended, Failed) as e:
        status_is(e, E.DENIED)
        return
    raise AssertionError('an ordinary user is an administrator')


@test(users=2)
def administrators_verbs(t):
    admin = t.admin()
    pair = t.pair()
    for verb, arguments in (('no-such-verb', []), ('', []), ('end-session', []), ('end-session', ['x']),
                            ('end-session', ['-1']), ('end-session', ['99999999']),
                            ('end-session', ['1', '2']), ('disconnect-endpoint', ['1']),
                            ('disconnect-endpoint', ['99999999', '1'])):
        reply = admin.call_raw('admin', verb=verb, arguments=arguments)
        check(reply.status < 0 and reply.text, '%s %s: %d' % (verb, arguments, reply.status))
    mine = [row for row in admin.query('endpoints') if row['uid'] == t.uid(0)]
    equal(len(mine), 1, 'endpoints of that user')
    session, endpoint = str(mine[0]['session']), str(mine[0]['endpoint'])
    for s in (pair.a, pair.b):
        status_is(s.call_raw('admin', verb='end-session', arguments=[session]), E.DENIED)
    admin.call('admin', verb='disconnect-endpoint', arguments=[session, endpoint])
    status_is(pair.a.wait_event('disconnected'), E.DENIED)
    status_is(pair.b.wait_event('disconnected'), E.PEER_GONE)
    admin.call('admin', verb='end-session', arguments=[session])
    status_is(pair.a.wait_end(), E.DENIED)
    pair.b.query('status')


@test(daemon=False)
def a_live_daemon_keeps_its_socket(t):
    first = t.more_daemon()
    for _ in range(2):
        process = first.spawn(stderr=subprocess.PIPE)
        _, errors = process.communicate(timeout=60)
        check(process.returncode > 0, 'a second daemon ended with %d' % process.returncode)
        check(first.socket.encode() in errors or b'running' in errors or b'in use' in errors,
              'it says: %s' % errors)
    first.session(t.uid(0)).query('status')
    equal(first.stop(), 0, 'status of the first')
    check(not os.path.exists(first.socket) or not connects(first.socket), 'the socket lives on')


def connects(path):
    try:
        raw.open_socket(path).close()
        return True
    except OSError:
        return False


@test(daemon=False)
def a_dead_daemons_socket_is_replaced(t):
    d = t.more_daemon()
    d.stop(signal.SIGKILL)
    check(os.path.exists(d.socket), 'the test wants a socket left behind')
    check(not connects(d.socket), 'a dead daemon answers')
    d.start()
    d.session(t.uid(0)).query('status')
    equal(d.stop(), 0, 'status')


@test(daemon=False)
def a_socket_path_that_is_something_else(t):
    """A file in the place of the socket, a path that is too long, a directory that is not there."""
    d = t.more_daemon(start=False)
    os.mkdir(os.path.dirname(d.socket), 0o750)
    with open(d.socket, 'w', encoding='ascii') as f:
        f.write('precious')
    if ROOT:
        os.chown(os.path.dirname(d.socket), DAEMON_UID, GID)
    fails(d, d.command())
    with open(d.socket, encoding='ascii') as f:
        equal(f.read(), 'precious', 'the file')
    for path in ('/proc/none/sock', os.path.join(d.dir, 'x' * 120, 'sock')):
        command = d.command()
        command[command.index('--socket') + 1] = path
        fails(d, command)


def fails(d, command):
    process = d.spawn(command, stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise AssertionError('the daemon runs with ' + str(command)) from None
    check(process.returncode > 0 and errors, 'status %d: %s' % (process.returncode, errors))


@test(daemon=False)
def clients_of_a_daemon_that_dies(t):
    d = t.more_daemon()
    s = d.session(t.uid(0))
    d.stop(signal.SIGKILL)
    equal(s.wait_end(), None, 'a Goodbye of the dead')


@test(daemon=False)
def sigterm_drains(t):
    # Longer than it may take a machine that is busy, or much slower; and a cable carries less.
    d = t.more_daemon('times { drain = %ds }' % (50 * raw.SLOW))
    a, b = d.session(t.uid(0)), d.session(t.uid(1))
    pair = Pair(a, b)
    size = 32 << 20
    source, sink = a.buffer(size, content=b'drain' * 1000), b.buffer(size)
    token = a.grant(pair.ea, source.segment())
    recv = a.start(RECV, pair.ea, [source.segment(0, 64)])
    # Where the test does not get to run meanwhile they are done before it goes on: then once more.
    for _ in range(10):
        reads = [b.start(READ, pair.eb, [sink.segment()], [token.segment()])
                 for _ in range(raw.fewer(60))]
        b.query('devices')  # the daemon has read what was sent before
        if reads[-1] not in b.completions:
            break
        for cookie in reads:
            status_is(b.finish(cookie), 0)
    else:
        raise AssertionError('the READs were faster than the question')
    d.process.send_signal(signal.SIGTERM)
    for cookie in reads:
        status_is(b.finish(cookie, 60), 0)
    equal(bytes(sink.map[:5000]), b'drain' * 1000, 'bytes')
    for s in (a, b):
        goodbye = s.wait_end(60)
        check(goodbye is not None, 'no Goodbye')
        status_is(goodbye, E.SHUTDOWN)
    if recv in a.completions:
        status_is(a.completions[recv], E.FLUSHED, E.SHUTDOWN, E.PEER_GONE)
    equal(d.process.wait(60), 0, 'status')
    check(d.report() is None, 'report: %s' % d.report())


@test(daemon=False)
def sigterm_does_not_wait_for_ever(t):
    """A client with a transfer that cannot end, and one that reads nothing."""
    d = t.more_daemon('times { drain = 1s }')
    s = d.session(t.uid(0))
    pair = Pair(s, s)
    m = s.buffer(4096)
    for _ in range(20):
        s.start(RECV, pair.ea, [m.segment(0, 64)])
    quiet = d.session(t.uid(1))
    for i in range(50):
        quiet.try_send(quiet.message('query', table='status').SerializeToString())
    silent = raw.open_socket(d.socket, t.uid(0), GID)
    d.process.send_signal(signal.SIGTERM)
    equal(d.process.wait(60), 0, 'status')
    silent.close()


@test(daemon=False)
def sigint_ends_too(t):
    d = t.more_daemon()
    equal(d.stop(signal.SIGINT), 0, 'status')


def add(s):
    file = raw.Memfd(4096)
    return s.call_raw('buffer_add', fds=[file.fd], size_bytes=4096)


@test(daemon=False)
def sighup_reads_the_configuration_again(t):
    d = t.more_daemon('limits { buffers = 1 }')
    s = d.session(t.uid(0))
    s.buffer(4096)
    status_is(add(s), E.QUOTA)
    d.write_config('limits { bufers = 9 }')
    d.process.send_signal(signal.SIGHUP)
    until(lambda: 'bufers' in d.stderr(), 'it says what is wrong')
    status_is(add(s), E.QUOTA)
    d.write_config('limits { buffers = 2 }')
    d.process.send_signal(signal.SIGHUP)
    until(lambda: add(s).status == 0, 'the new limit holds')
    s.query('status')
    equal(d.stop(), 0, 'status')


@test(daemon=False)
def readiness_is_told(t):
    path = os.path.join(t.dir, 'notify')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(path)
        os.chmod(path, 0o666)
        notify.settimeout(60)
        d = t.more_daemon(env={'NOTIFY_SOCKET': path})
        until(lambda: b'READY=1' in notify.recv(4096), 'READY=1')
        d.process.send_signal(signal.SIGTERM)
        until(lambda: b'STOPPING=1' in notify.recv(4096), 'STOPPING=1')
        equal(d.process.wait(60), 0, 'status')


@test(daemon=False)
def sockets_of_the_service_manager(t):
    """LISTEN_FDS, as of systemd.socket(5): names tell which is which."""
    paths = [os.path.join(t.dir, name) for name in ('client', 'admin')]
    socks = []
    for path in paths:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.bind(path)
        os.chmod(path, 0o666)
        s.listen(128)
        socks.append(s)
    launcher = ('import os, sys\n'
                'numbers = [int(x) for x in sys.argv[1:3]]\n'
                'high = [os.dup(os.dup(os.dup(n))) for n in numbers]\n'
                'for fd, n in zip(high, (3, 4)): os.dup2(fd, n)\n'
                'os.environ["LISTEN_PID"] = str(os.getpid())\n'
                'os.execv(sys.argv[3], sys.argv[3:])\n')
    command = [sys.executable, '-c', launcher, str(socks[0].fileno()), str(socks[1].fileno()),
               t.build.rdmaxferd]
    env = t.build.environment(LISTEN_FDS='2', LISTEN_FDNAMES='client:admin')
    with open(os.path.join(t.dir, 'stderr'), 'ab') as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr, env=env,
                                   pass_fds=[s.fileno() for s in socks], cwd='/')
    try:
        with raw.Session(paths[0], None) as s:
            s.query('status')
        with raw.Session(paths[1], None) as s:
            s.query('sessions')
        process.terminate()
        equal(process.wait(60), 0, 'status')
        check(all(os.path.exists(p) for p in paths), 'the daemon removed sockets that are not its own')
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for s in socks:
            s.close()


@test(daemon=False)
def an_idle_daemon_sleeps(t):
    d = t.more_daemon()
    s = d.session(t.uid(0))
    s.query('status')
    # One that has just started measures what things cost, whenever a busy machine lets it: a later second is idle.
    for _ in range(5):
        time.sleep(0.2)
        ticks, before = d.cpu_ticks(), switches(d)
        time.sleep(1)
        ticks, wakeups = d.cpu_ticks() - ticks, switches(d) - before
        t.note('an idle second: %d ticks, %d wake-ups' % (ticks, wakeups))
        if ticks <= os.sysconf('SC_CLK_TCK') // 4 and wakeups < 200:
            return
    raise AssertionError('an idle daemon is busy: %d ticks and %d wake-ups in a second' % (ticks, wakeups))


def switches(d):
    return d.proc_status('voluntary_ctxt_switches')
