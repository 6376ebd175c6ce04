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
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import raw
from checks import Skip, check, equal, same_bytes, status_is, until  # noqa: F401: for tests
from daemons import Build, Bystander, Daemon, DAEMON_UID, GID, ROOT, RUNGS, become, plans_of, stopped  # noqa: F401

FIRST_UID = 61002
# On this machine's monotonic clock, in seconds: what has not begun by then is left out. 0: never.
UNTIL = float(os.environ.get('XFER_TEST_UNTIL', '0'))
FULL = os.environ.get('XFER_TEST_FULL', '') not in ('', '0')

TESTS = []


class TestTimeout(Exception):
    pass


class Test:
    def __init__(self, function, module, **options):
        self.function = function
        self.name = module + '.' + function.__name__
        self.options = options


def test(config=None, own=False, daemon=True, bystander=True, users=1, timeout=120, nofile=None,
         full=False, sanitized=True, root=False, preload=None, forced=True):
    """config: the daemon's configuration, own: a daemon for this test alone (implied by what is special),
    users: how many the test needs to be different, full: only in long runs, sanitized: also makes sense
    in a build with sanitizers, root: needs to be root for more than changing users, forced: also makes sense
    where all transfers are forced to go one way."""
    def register(function):
        module = function.__module__.removeprefix('test_')
        options = {
            'config': config, 'daemon': daemon, 'bystander': bystander, 'users': users,
            'timeout': timeout, 'nofile': nofile, 'full': full, 'sanitized': sanitized, 'root': root,
            'preload': preload, 'forced': forced,
            'own': own or config is not None or nofile is not None or preload is not None,
        }
        TESTS.append(Test(function, module, **options))
        return function
    return register


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
                signal.alarm(240 * raw.SLOW)  # never outlives its parent for long
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

    def hear(self, timeout=40):
        self.sock.settimeout(timeout * raw.SLOW)
        return self.sock.recv(8192)

    def expect(self, word, timeout=40):
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
            output, errors = process.communicate(timeout=timeout * raw.SLOW)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            raise AssertionError('%s did not end in %d s: %s %s' %
                                 (command[0], timeout * raw.SLOW, output[-500:], errors[-500:])) from None
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
        self.bystander_us = self.bystander_transfers = 0
        self.count = self.passed = self.failed = self.skipped = 0
        self.plans = dict.fromkeys(RUNGS, 0)

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
        seen, times = None, 0
        deadline = time.monotonic() + 30 * raw.SLOW
        while True:
            now = daemon.gauges()
            if base is None:
                # Twice the same may be a daemon that did not come to anything in between.
                times = times + 1 if now == seen else 1
                if times == 5:
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

    def close_daemon(self, daemon):
        if raw.FORCE and daemon.alive():
            with daemon.session(admin=True, uid=None if ROOT else os.getuid()) as s:
                for rung, n in plans_of(s.query('status')).items():
                    self.plans[rung] += n
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
            if (raw.FORCE and 'ladder' not in (test.options['config'] or '') and context.daemon and
                    context.daemon.alive()):
                self.forced(context.daemon)
        if context.bystander is not None:
            lap = context.bystander.lap()
            latency_us, transfers = (int(n) for n in re.findall(r'\d+', lap))
            self.bystander_us = max(self.bystander_us, latency_us)
            self.bystander_transfers += transfers
            if test.options['bystander']:
                context.note('bystander: ' + lap)

    @staticmethod
    def forced(daemon):
        """No transfer went another way that could have gone the forced one."""
        could = '(^|; )' + raw.FORCE + ': (a better one|another one is forced|it would cost)'
        with daemon.session(admin=True, uid=None if ROOT else os.getuid()) as s:
            for row in s.query('plans'):
                check(row['rung'] == raw.FORCE or not re.search(could, row['why']),
                      'a %s of %d bytes went %s: %s' % (row['operation'], row['bytes'], row['rung'], row['why']))

    def run(self, test):
        self.count += 1
        context = Context(self, test.options)
        begin = time.monotonic()
        signal.signal(signal.SIGALRM, self.alarm)
        signal.alarm(test.options['timeout'] * (4 if self.build.sanitized else 1) * raw.SLOW)
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
        if UNTIL and time.monotonic() > UNTIL:
            raise Skip('no time is left')
        if options['full'] and not FULL:
            raise Skip('long: XFER_TEST_FULL=1 runs it')
        if options['users'] > 1 and not ROOT:
            raise Skip('needs several users: run as root')
        if not options['forced'] and raw.FORCE:
            raise Skip('is of the ways that transfers take, which are forced')
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
                self.bystander.stop()
                print('# bystander of all tests: worst latency %d us, %d transfers, no failure' %
                      (self.bystander_us, self.bystander_transfers))
            self.close_daemon(self.shared)
            if raw.FORCE:
                print('# transfers by rung: ' + ' '.join('%s=%d' % rung for rung in self.plans.items()))
                # Devices, and some profiles of them, have not all ways; the fabric that needs none has each.
                check(self.plans[raw.FORCE] > 0 or raw.FABRIC != 'iwarp' or raw.PROFILE,
                      'no transfer went ' + raw.FORCE)
            self.passed += 1
            print('ok %d - the shared daemon ends in order' % self.count)
        except AssertionError as e:
            self.failed += 1
            print('not ok %d - the shared daemon ends in order' % self.count)
            for line in str(e).splitlines():
                print('# ' + line)
