# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The programs under test as processes: the daemon as a plain user, the bystander as another."""
import contextlib
import ctypes
import glob
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import raw
from checks import Skip, check, until

DAEMON_UID = 61001
GID = 61000
BYSTANDER_UID = 61900
ROOT = os.geteuid() == 0
CLONE_NEWNET = 0x40000000


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
        keep = ('PATH', 'LANG', 'TERM', 'ASAN_OPTIONS', 'UBSAN_OPTIONS', 'TSAN_OPTIONS', 'XFER_TEST_ADDRESS',
                'XFER_TEST_SLOW')
        env = {name: os.environ[name] for name in keep if name in os.environ}
        env.update(LD_LIBRARY_PATH=self.lib, LC_ALL='C.UTF-8', HOME='/')
        env.update(more)
        return env


def become(uid, gid=GID, nofile=None, netns=None):
    """For a child: that user, for good, in the network namespace of the process `netns`."""
    def change():
        if netns is not None:
            fd = os.open('/proc/%d/ns/net' % netns, os.O_RDONLY | os.O_CLOEXEC)
            if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), 'setns')
        if nofile is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))
        if ROOT and uid is not None:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
    return change


# ---- the daemon

REPORT = re.compile(r'AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:|Assertion|assertion')


def with_address(config):
    """The configuration, and that tests may use their address, unless who may is what the test is about."""
    if 'device iwarp' not in config:
        iwarp = ['shortcut = no'] if raw.OVER_TCP else []
        iwarp += ['profile = ' + raw.PROFILE] if raw.PROFILE else []
        config += '\ndevice iwarp { %s }\n' % '  '.join(iwarp)
    if raw.FORCE and 'ladder' not in config:
        config += '\nladder { force = %s }\n' % raw.FORCE
    if raw.LOOPBACK or 'allow' in config:
        return config
    return config + '\nallow { listen = {127.0.0.0/8, "::1", "%s"} connect = {127.0.0.0/8, "::1", "%s"} }\n' % (
        raw.ADDRESS, raw.ADDRESS)


class Daemon:
    # What was found out of the devices, by file name: by an earlier daemon, or by whoever gave its state directory
    # in XFER_TEST_STATE. It takes seconds in a guest: the others are told.
    tested = {}

    def __init__(self, build, top, config=None, nofile=None, preload=None, env=None, netns=None):
        self.build = build
        self.dir = tempfile.mkdtemp(prefix='daemon.', dir=top)
        os.chmod(self.dir, 0o755)
        if ROOT:
            os.chown(self.dir, DAEMON_UID, GID)
        self.socket = os.path.join(self.dir, 'client', 'sock')
        self.admin_socket = os.path.join(self.dir, 'admin', 'sock')
        self.stderr_path = os.path.join(self.dir, 'stderr')
        self.config_path = os.path.join(self.dir, 'conf')
        self.nofile, self.preload, self.env, self.netns = nofile, preload, env or {}, netns
        self.process = None
        self.write_config(config or '')
        if not self.tested and os.environ.get('XFER_TEST_STATE'):
            self.remember(os.environ['XFER_TEST_STATE'])

    def remember(self, directory):
        for path in glob.glob(os.path.join(directory, 'selftest-*')):
            if '.' not in os.path.basename(path):
                with open(path, 'rb') as f:
                    self.tested[os.path.basename(path)] = f.read()

    def write_config(self, config):
        with open(self.config_path, 'w', encoding='utf-8') as f:
            f.write(with_address(config))
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
                                preexec_fn=become(DAEMON_UID, nofile=self.nofile, netns=self.netns))

    def start(self, **env):
        for name, content in self.tested.items():
            if not os.path.exists(os.path.join(self.dir, name)):
                with open(os.path.join(self.dir, name), 'wb') as f:
                    f.write(content)
                os.chmod(f.name, 0o644)
        with open(self.stderr_path, 'ab') as stderr:
            self.process = self.spawn(stderr=stderr, **env)
        until(self.answers, 'the daemon listens; it says: ' + self.stderr()[-2000:], 20)
        if raw.FABRIC != 'iwarp':
            until(self.drives, 'the daemon drives %s; it says: %s' % (raw.FABRIC, self.stderr()[-2000:]), 60, 0.2)
        self.remember(self.dir)
        return self

    def drives(self):
        """The devices that tests are to run on, both ends of the cable."""
        with self.session(admin=True, uid=None if ROOT else os.getuid()) as s:
            return sum(row['name'].startswith(raw.FABRIC) for row in s.query('devices')) == 2

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError('the daemon ended at its start (%s): %s' %
                                 (self.process.returncode, self.stderr()[-3000:]))
        try:
            self.session(DAEMON_UID).close()
            return True
        except (OSError, raw.Ended):  # the latter where the time for a hello is short
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

    def stop(self, signum=signal.SIGTERM, timeout=60):
        """Its exit status: the number of the signal that killed it, negative."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signum)
        try:
            return self.process.wait(timeout * raw.SLOW)
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


RUNGS = ('inline', 'direct', 'split', 'stage', 'indirect')


def plans_of(rows):
    """How many transfers went by each rung."""
    values = {row['name']: int(row['value']) for row in rows}
    return {rung: values['plans_' + rung] for rung in RUNGS}


def gauges_of(rows):
    return {row['name']: int(row['value']) for row in rows if row['name'] in GAUGES}


@contextlib.contextmanager
def stopped(daemon):
    """What is sent meanwhile the daemon finds all at once."""
    def stands():
        with open('/proc/%d/stat' % daemon.pid, encoding='ascii') as f:
            return f.read().rsplit(')', 1)[1].split()[0] == 'T'
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        until(stands, 'the daemon stands still')
        yield
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


class Bystander:
    """Two clients on libxferclient that transfer all the time."""

    def __init__(self, daemon):
        self.process = subprocess.Popen(
            [daemon.build.bystander], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=daemon.build.environment(XFER_SOCKET=daemon.socket),
            preexec_fn=become(BYSTANDER_UID), cwd='/')
        self.output = b''
        line = self.line(40)
        check(line == 'ready', 'the bystander did not start: ' + str(line))

    def line(self, timeout):
        """The next line, or None at its end."""
        deadline = time.monotonic() + timeout * raw.SLOW
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
        status = self.process.wait(30)
        check(status == 0, 'the bystander ended with %d: %s' % (status, line))
        return line

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
