# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs real daemons as a plain user, and tests against them.

A test is a function under @test(...), and gets a Context: its daemon, sessions of several users,
children, tools. Tests that ask for nothing of their own share one daemon; whatever a test does, that
daemon afterwards must be alive and hold what it held before: descriptors, sessions, buffers, endpoints,
grants. A bystander, two clients on the public library that transfer all the time, must notice nothing.
"""
import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import raw

DAEMON_UID = 61001
GID = 61000
BYSTANDER_UID = 61900
FIRST_UID = 61002
FULL = os.environ.get('XFER_TEST_FULL', '') not in ('', '0')
ROOT = os.geteuid() == 0

TESTS = []


class Skip(Exception):
    pass


class TestTimeout(Exception):
    pass


class Test:
    def __init__(self, function, module, **options):
        self.function = function
        self.name = module + '.' + function.__name__
        self.options = options


def test(config=None, own=False, daemon=True, bystander=True, users=1, timeout=60, nofile=None,
         full=False, sanitized=True, root=False, preload=None):
    """config: the daemon's configuration, own: a daemon for this test alone (implied by what is special),
    users: how many the test needs to be different, full: only in long runs, sanitized: also makes sense
    in a build with sanitizers, root: needs to be root for more than changing users."""
    def register(function):
        module = function.__module__.removeprefix('test_')
        options = {
            'config': config, 'daemon': daemon, 'bystander': bystander, 'users': users,
            'timeout': timeout, 'nofile': nofile, 'full': full, 'sanitized': sanitized, 'root': root,
            'preload': preload,
            'own': own or config is not None or nofile is not None or preload is not None,
        }
        TESTS.append(Test(function, module, **options))
        return function
    return register


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def equal(is_, shall, what):
    if is_ != shall:
        raise AssertionError('%s is %r, not %r' % (what, is_, shall))


def status_is(answer, *statuses):
    """A reply, completion, event or exception with one of these statuses, and a sentence."""
    names = ', '.join(raw.status_name(s) for s in statuses)
    check(answer is not None, 'no answer, expected ' + names)
    check(answer.status in statuses, 'status %s (%s), expected %s' %
          (raw.status_name(answer.status), getattr(answer, 'text', ''), names))
    if answer.status != 0:
        check(len(answer.text.split()) >= 2, 'no sentence with %s: %r' %
              (raw.status_name(answer.status), answer.text))


def until(condition, what, timeout=10, pause=0.005):
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError('not in %g s: %s' % (timeout, what))
        time.sleep(pause)


# ---- the build

class Build:
    """The programs under test, copied to where any user can run them."""

    def __init__(self, builddir, srcdir, prefix):
        self.builddir, self.srcdir = builddir, srcdir
        self.bin = os.path.join(prefix, 'bin')
        self.lib = os.path.join(prefix, 'lib')
        for directory in (self.bin, self.lib):
            os.mkdir(directory, 0o755)
        self.rdmaxferd = self.program('rdmaxferd')
        if self.rdmaxferd is None:
            raise Skip('no rdmaxferd in ' + builddir)
        self.xferctl = self.program('xferctl')
        self.bystander = self.program('tests/e2e/bystander')
        libs = os.path.join(builddir, '.libs')
        if os.path.isdir(libs):
            for name in os.listdir(libs):
                if re.fullmatch(r'libxferclient\.so(\.\d+)*', name):
                    self.install(os.path.join(libs, name), os.path.join(self.lib, name))
        self.alloccount = os.path.join(self.lib, 'alloccount.so')
        source = os.path.join(builddir, 'tests/e2e/.libs/alloccount.so')
        if os.path.exists(source):
            self.install(source, self.alloccount)
        else:
            self.alloccount = None
        with open(self.rdmaxferd, 'rb') as f:
            image = f.read()
        self.sanitized = b'__asan_init' in image or b'__ubsan_' in image or b'__tsan_init' in image

    @staticmethod
    def install(source, target):
        shutil.copy(source, target)
        os.chmod(target, 0o755)

    def program(self, name):
        """A program of the build directory: what libtool wraps is below .libs."""
        path = os.path.join(self.builddir, name)
        wrapped = os.path.join(os.path.dirname(path), '.libs', os.path.basename(path))
        if os.path.exists(wrapped):
            path = wrapped
        if not os.path.exists(path):
            return None
        target = os.path.join(self.bin, os.path.basename(name))
        if not os.path.exists(target):
            self.install(path, target)
        return target

    def environment(self, **more):
        keep = ('PATH', 'LANG', 'TERM', 'ASAN_OPTIONS', 'UBSAN_OPTIONS', 'TSAN_OPTIONS')
        env = {name: os.environ[name] for name in keep if name in os.environ}
        env.update(LD_LIBRARY_PATH=self.lib, LC_ALL='C.UTF-8', HOME='/')
        env.update(more)
        return env


def become(uid, gid=GID, nofile=None):
    """For a child: that user, for good."""
    def change():
        if nofile is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))
        if ROOT and uid is not None:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
    return change


# ---- the daemon

REPORT = re.compile(r'AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:|Assertion|assertion')


class Daemon:
    def __init__(self, build, top, config=None, nofile=None, preload=None, env=None):
        self.build = build
        self.dir = tempfile.mkdtemp(prefix='daemon.', dir=top)
        os.chmod(self.dir, 0o755)
        if ROOT:
            os.chown(self.dir, DAEMON_UID, GID)
        self.socket = os.path.join(self.dir, 'client', 'sock')
        self.admin_socket = os.path.join(self.dir, 'admin', 'sock')
        self.stderr_path = os.path.join(self.dir, 'stderr')
        self.config_path = os.path.join(self.dir, 'conf')
        self.nofile, self.preload, self.env = nofile, preload, env or {}
        self.process = None
        self.write_config(config or '')

    def write_config(self, config):
        with open(self.config_path, 'w', encoding='utf-8') as f:
            f.write(config)
        os.chmod(self.config_path, 0o644)

    def command(self):
        return [self.build.rdmaxferd, '--config', self.config_path, '--socket', self.socket,
                '--admin-socket', self.admin_socket, '--state-dir', self.dir]

    def spawn(self, command=None, stderr=None, **env):
        """A process as the daemon's user."""
        more = dict(self.env, **env)
        if self.preload:
            more['LD_PRELOAD'] = self.preload
        return subprocess.Popen(command or self.command(), stdin=subprocess.DEVNULL,
                                stdout=stderr or subprocess.DEVNULL, stderr=stderr,
                                cwd=self.dir, env=self.build.environment(**more),
                                preexec_fn=become(DAEMON_UID, nofile=self.nofile))

    def start(self, **env):
        with open(self.stderr_path, 'ab') as stderr:
            self.process = self.spawn(stderr=stderr, **env)
        until(self.answers, 'the daemon listens; it says: ' + self.stderr()[-2000:], 20)
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError('the daemon ended at its start (%s): %s' %
                                 (self.process.returncode, self.stderr()[-3000:]))
        try:
            self.session(DAEMON_UID).close()
            return True
        except OSError:
            return False

    def stderr(self):
        try:
            with open(self.stderr_path, encoding='utf-8', errors='replace') as f:
                return f.read()
        except FileNotFoundError:
            return ''

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def fds(self):
        return len(os.listdir('/proc/%d/fd' % self.pid))

    def proc_status(self, field):
        with open('/proc/%d/status' % self.pid, encoding='ascii') as f:
            for line in f:
                if line.startswith(field + ':'):
                    return int(line.split()[1])
        raise KeyError(field)

    def rss_bytes(self):
        return self.proc_status('VmRSS') * 1024

    def cpu_ticks(self):
        with open('/proc/%d/stat' % self.pid, encoding='ascii') as f:
            fields = f.read().rsplit(')', 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def session(self, uid=None, admin=False, **options):
        path = self.admin_socket if admin else self.socket
        return raw.Session(path, uid, GID, **options)

    def gauges(self):
        """What the daemon holds, by its own word."""
        with self.session(admin=True, uid=None if ROOT else os.getuid()) as s:
            return gauges_of(s.query('status'))

    def stop(self, signum=signal.SIGTERM, timeout=30):
        """Its exit status: the number of the signal that killed it, negative."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signum)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError('the daemon did not end in %d s after signal %d' %
                                 (timeout, signum)) from None

    def report(self):
        """What a sanitizer or an assertion said."""
        lines = self.stderr().splitlines()
        for i, line in enumerate(lines):
            if REPORT.search(line):
                return '\n'.join(lines[max(0, i - 2):i + 40])
        return None


GAUGES = ('sessions', 'buffers', 'buffer_bytes', 'pinned_bytes', 'endpoints', 'listeners', 'grants',
          'slow_closes')


def gauges_of(rows):
    return {row['name']: int(row['value']) for row in rows if row['name'] in GAUGES}


class Bystander:
    """Two clients on libxferclient that transfer all the time."""

    def __init__(self, daemon):
        self.process = subprocess.Popen(
            [daemon.build.bystander], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=daemon.build.environment(XFER_SOCKET=daemon.socket),
            preexec_fn=become(BYSTANDER_UID), cwd='/')
        self.output = b''
        line = self.line(20)
        check(line == 'ready', 'the bystander did not start: ' + str(line))

    def line(self, timeout):
        """The next line, or None at its end."""
        deadline = time.monotonic() + timeout
        fd = self.process.stdout.fileno()
        os.set_blocking(fd, False)
        while b'\n' not in self.output:
            if time.monotonic() > deadline:
                raise AssertionError('the bystander is stuck')
            try:
                piece = os.read(fd, 4096)
            except BlockingIOError:
                time.sleep(0.002)
                continue
            if not piece:
                return None
            self.output += piece
        line, self.output = self.output.split(b'\n', 1)
        return line.decode('utf-8', 'replace')

    def lap(self):
        """What it saw since the last lap. Fails where it has failed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)
        line = self.line(30)
        if line is None or not line.startswith('worst latency'):
            self.process.kill()
            self.process.wait()
            raise AssertionError('the bystander noticed: %s' % line)
        return line

    def stop(self):
        self.process.terminate()
        line = self.line(30)
        status = self.process.wait(10)
        check(status == 0, 'the bystander ended with %d: %s' % (status, line))
        return line

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


# ---- what a test gets

class Child:
    """A process of a user that runs a function with the other end of a socket pair, until it returns or
    is killed."""

    def __init__(self, function, uid):
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                signal.alarm(0)
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(60)  # never outlives its parent for long
                self.sock.close()
                for session in list(raw.SESSIONS):
                    session.sock.close()
                become(uid)()
                function(theirs)
                status = 0
            except BaseException:
                with contextlib.suppress(OSError):
                    theirs.send(traceback.format_exc().encode()[-4000:])
            finally:
                os._exit(status)
        theirs.close()
        self.status = None

    def hear(self, timeout=20):
        self.sock.settimeout(timeout)
        return self.sock.recv(8192)

    def expect(self, word, timeout=20):
        heard = self.hear(timeout)
        check(heard == word, 'the child said: ' + heard.decode('utf-8', 'replace'))

    def tell(self, word):
        self.sock.send(word)

    def kill(self, signum=signal.SIGKILL):
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)
            self.wait()

    def wait(self):
        if self.status is None:
            _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def close(self):
        self.kill()
        self.sock.close()


class Context:
    def __init__(self, runner, options):
        self.runner = runner
        self.build = runner.build
        self.options = options
        self.daemon = None
        self.bystander = None
        self.stack = contextlib.ExitStack()
        self.notes = []
        self.dir = tempfile.mkdtemp(prefix='test.', dir=runner.top)
        os.chmod(self.dir, 0o777)

    @staticmethod
    def uid(user):
        """The numeric user of index 0, 1, …; None where users cannot be changed."""
        return FIRST_UID + user if ROOT else None

    def skip(self, why):
        raise Skip(why)

    def note(self, text):
        """Printed with the result."""
        self.notes.append(text)

    def keep(self, thing):
        """Closed when the test ends, the latest first."""
        self.stack.callback(thing.close)
        return thing

    def session(self, user=0, **options):
        return self.keep(self.daemon.session(self.uid(user), **options))

    def admin(self):
        return self.keep(self.daemon.session(None, admin=True))

    def socket(self, user=0):
        """A connection that said nothing yet."""
        return self.keep(raw.open_socket(self.daemon.socket, self.uid(user), GID))

    def pair(self, users=(0, 1), **options):
        a, b = self.session(users[0]), self.session(users[1])
        return raw.Pair(a, b, **options)

    def child(self, function, user=0):
        return self.keep(Child(function, self.uid(user)))

    def more_daemon(self, config=None, start=True, **options):
        """Another daemon, stopped and checked when the test ends."""
        daemon = Daemon(self.build, self.runner.top, config, **options)

        def stop():
            if daemon.process is not None:
                daemon.stop(signal.SIGKILL)
        self.stack.callback(stop)
        if start:
            daemon.start()
        return daemon

    def spawn(self, command, user=0, daemon=None, cwd=None, **options):
        """A program as that user, its output kept. Killed when the test ends."""
        env = self.build.environment(XFER_SOCKET=(daemon or self.daemon).socket,
                                     XFER_ADMIN_SOCKET=(daemon or self.daemon).admin_socket)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=env, cwd=cwd or self.dir,
                                   preexec_fn=become(self.uid(user)), **options)

        def end():
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.stack.callback(end)
        return process

    def run(self, command, user=0, timeout=60, **options):
        """Runs a program to its end: (status, output, errors)."""
        process = self.spawn(command, user, **options)
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            raise AssertionError('%s did not end in %d s: %s %s' %
                                 (command[0], timeout, output[-500:], errors[-500:])) from None
        return (process.returncode, output.decode('utf-8', 'replace'),
                errors.decode('utf-8', 'replace'))

    def xferctl(self, *arguments, user=0, **options):
        if self.build.xferctl is None:
            self.skip('no xferctl in the build')
        return self.run([self.build.xferctl, *arguments], user, **options)


# ---- running

class Runner:
    def __init__(self, build, top):
        self.build, self.top = build, top
        self.shared = None
        self.shared_base = None
        self.bystander = None
        self.count = self.passed = self.failed = self.skipped = 0

    # The shared daemon and what it held when nothing went on.

    def base_of(self, daemon):
        """After a warm-up, so that what is made once and kept is there."""
        uid = FIRST_UID if ROOT else None
        with daemon.session(uid) as a, daemon.session(uid) as b:
            pair = raw.Pair(a, b)
            source, sink = a.buffer(4096, content=b'warm'), b.buffer(4096)
            token = a.grant(pair.ea, source.segment())
            b.do(raw.READ, pair.eb, [sink.segment()], [token.segment()])
            pair.free()
        gauges = self.settle(daemon, None)
        return {'fds': daemon.fds(), 'gauges': gauges}

    @staticmethod
    def settle(daemon, base):
        """Waits until the daemon holds what it held, or (no base) until that stands still."""
        seen = None
        deadline = time.monotonic() + 15
        while True:
            now = daemon.gauges()
            if base is None:
                if now == seen:
                    return now
                seen = now
            elif now == base:
                return now
            if time.monotonic() > deadline:
                odd = {k: (base or {}).get(k) for k in now if (base or {}).get(k) != now[k]}
                raise AssertionError('the daemon holds %s, before: %s' %
                                     ({k: now[k] for k in odd}, odd))
            time.sleep(0.05 if base is None else 0.01)

    def open_shared(self):
        if self.shared is not None and self.shared.alive():
            return
        self.shared = Daemon(self.build, self.top).start()
        self.bystander = None

    def open_bystander(self):
        if self.bystander is not None and self.bystander.process.poll() is None:
            return
        self.bystander = Bystander(self.shared) if self.build.bystander else None
        self.shared_base = self.base_of(self.shared)

    def afterwards(self, daemon, base):
        """What must be true of a daemon after any test."""
        check(daemon.alive(), 'the daemon died (%s): %s' %
              (daemon.process.poll(), daemon.report() or daemon.stderr()[-2000:]))
        check(daemon.report() is None, 'the daemon reports: %s' % daemon.report())
        if base is not None:
            self.settle(daemon, base['gauges'])
            until(lambda: daemon.fds() <= base['fds'],
                  'descriptors as before (%d, now %d)' % (base['fds'], daemon.fds()), 10)

    @staticmethod
    def close_daemon(daemon):
        status = daemon.stop()
        check(daemon.report() is None, 'the daemon reports: %s' % daemon.report())
        check(status == 0, 'the daemon ended with %s after SIGTERM: %s' %
              (status, daemon.stderr()[-2000:]))

    def run_with_daemon(self, test, context):
        if test.options['own']:
            context.daemon = Daemon(self.build, self.top, test.options['config'],
                                    nofile=test.options['nofile'],
                                    preload=test.options['preload'] and self.build.alloccount)
            try:
                context.daemon.start()
                self.body(test, context)
                check(context.daemon.alive(), 'the daemon died: %s' % context.daemon.stderr()[-2000:])
                self.close_daemon(context.daemon)
            finally:
                context.daemon.stop(signal.SIGKILL)
            return
        self.open_shared()
        self.open_bystander()
        context.daemon, context.bystander = self.shared, self.bystander
        try:
            self.body(test, context)
            self.afterwards(self.shared, self.shared_base)
        except AssertionError:
            # The next test shall not pay for it.
            self.shared_base = None
            self.drop_shared()
            raise

    def drop_shared(self):
        if self.bystander is not None:
            self.bystander.kill()
        if self.shared is not None:
            with contextlib.suppress(AssertionError):
                self.shared.stop(signal.SIGKILL)
        self.shared = self.bystander = None

    def body(self, test, context):
        with context.stack:
            test.function(context)
        if context.bystander is not None:
            lap = context.bystander.lap()
            if test.options['bystander']:
                context.note('bystander: ' + lap)

    def run(self, test):
        self.count += 1
        context = Context(self, test.options)
        begin = time.monotonic()
        signal.signal(signal.SIGALRM, self.alarm)
        signal.alarm(test.options['timeout'] * (4 if self.build.sanitized else 1))
        try:
            self.needs(test)
            if test.options['daemon']:
                self.run_with_daemon(test, context)
            else:
                self.body(test, context)
            verdict, why = 'ok', ''
            self.passed += 1
        except Skip as skip:
            verdict, why = 'ok', ' # SKIP ' + str(skip)
            self.skipped += 1
        except BaseException as e:
            verdict, why = 'not ok', ''
            self.failed += 1
            text = traceback.format_exc()
            if isinstance(e, KeyboardInterrupt):
                raise
            context.notes.append(text)
            if context.daemon is not None:
                context.notes.append('the daemon said: ' + context.daemon.stderr()[-3000:])
            if not isinstance(e, AssertionError):
                self.drop_shared()
        finally:
            signal.alarm(0)
        print('%s %d - %s%s' % (verdict, self.count, test.name, why))
        print('# %.2f s' % (time.monotonic() - begin))
        for note in context.notes:
            for line in note.splitlines():
                print('# ' + line)
        sys.stdout.flush()
        shutil.rmtree(context.dir, ignore_errors=True)

    @staticmethod
    def alarm(_signum, _frame):
        raise TestTimeout('the test took too long')

    def needs(self, test):
        options = test.options
        if options['full'] and not FULL:
            raise Skip('long: XFER_TEST_FULL=1 runs it')
        if options['users'] > 1 and not ROOT:
            raise Skip('needs several users: run as root')
        if options['root'] and not ROOT:
            raise Skip('needs root')
        if not options['sanitized'] and self.build.sanitized:
            raise Skip('makes no sense with sanitizers')
        if options['preload'] and self.build.alloccount is None:
            raise Skip('no alloccount in the build')

    def finish(self):
        """Ends the shared daemon in order: that is a test too."""
        if self.shared is None:
            return
        self.count += 1
        try:
            if self.bystander is not None:
                print('# bystander: ' + self.bystander.stop())
            self.close_daemon(self.shared)
            self.passed += 1
            print('ok %d - the shared daemon ends in order' % self.count)
        except AssertionError as e:
            self.failed += 1
            print('not ok %d - the shared daemon ends in order' % self.count)
            for line in str(e).splitlines():
                print('# ' + line)
