# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""xferctl: files go and come whole or not at all, and tables are what they say."""
import hashlib
import json
import os
import random
import re
import signal
import time

import raw
from harness import check, equal, test, until

MIB = 1 << 20


def make(path, size, seed=1):
    rng = random.Random(seed)
    with open(path, 'wb') as f:
        left = size
        while left:
            piece = rng.randbytes(min(left, MIB))
            f.write(piece)
            left -= len(piece)
    os.chmod(path, 0o644)


def digest(path):
    with open(path, 'rb') as f:
        return hashlib.sha256(f.read()).hexdigest()


class Served:
    """xferctl serve of a directory, as user 1."""

    def __init__(self, t, *options):
        if t.build.xferctl is None:
            t.skip('no xferctl in the build')
        self.t = t
        self.dir = os.path.join(t.dir, 'served')
        os.makedirs(self.dir, exist_ok=True)
        os.chmod(self.dir, 0o777)
        self.process = t.spawn([t.build.xferctl, 'serve', '--listen', raw.ADDRESS + ':0', *options, self.dir],
                               user=1)
        os.set_blocking(self.process.stdout.fileno(), False)
        os.set_blocking(self.process.stderr.fileno(), False)
        self.said = ''
        until(self.listens, 'serve says where it listens', 20)
        self.url = 'xfer://%s:%d/' % (raw.ADDRESS, self.port)

    def listens(self):
        for pipe in (self.process.stdout, self.process.stderr):
            piece = pipe.read()
            self.said += (piece or b'').decode()
        check(self.process.poll() is None, 'serve ended: ' + self.said)
        found = re.search(re.escape(raw.ADDRESS) + r':(\d+)', self.said)
        self.port = int(found.group(1)) if found else None
        return found

    def path(self, name):
        return os.path.join(self.dir, name)

    def alive(self):
        check(self.process.poll() is None, 'serve ended with %s' % self.process.poll())


SIZES = (0, 1, 4095, MIB - 1, MIB, MIB + 1, 20 * MIB + 3)


@test(timeout=60)
def get(t):
    served = Served(t)
    for size in SIZES:
        make(served.path('f'), size, size)
        to = os.path.join(t.dir, 'got')
        status, out, errors = t.xferctl('get', served.url + 'f', to)
        equal(status, 0, 'status of get of %d bytes (%s)' % (size, errors))
        equal(digest(to), digest(served.path('f')), 'SHA-256')
        check('\r' not in errors and '\x1b' not in errors, 'a progress bar without a terminal')
    served.alive()


@test(timeout=60)
def put(t):
    served = Served(t, '--writable')
    source = os.path.join(t.dir, 'source')
    for size in SIZES:
        make(source, size, size)
        status, out, errors = t.xferctl('put', source, served.url + 'new')
        equal(status, 0, 'status of put of %d bytes (%s)' % (size, errors))
        equal(digest(source), digest(served.path('new')), 'SHA-256')
    equal(os.listdir(served.dir), ['new'], 'files in the served directory')
    served.alive()


@test()
def get_without_a_name(t):
    served = Served(t)
    os.mkdir(served.path('sub'))
    os.chmod(served.path('sub'), 0o755)
    make(served.path('sub/a file %.txt'), 1000)
    where = os.path.join(t.dir, 'cwd')
    os.mkdir(where)
    os.chmod(where, 0o777)
    status, _, errors = t.xferctl('get', served.url + 'sub/a%20file%20%25.txt', cwd=where)
    equal(status, 0, 'status (%s)' % errors)
    equal(os.listdir(where), ['a file %.txt'], 'files')


@test()
def what_cannot_be_had(t):
    served = Served(t)
    make(served.path('secret'), 10)
    os.chmod(served.path('secret'), 0)
    os.mkdir(served.path('directory'))
    os.symlink('/etc/hostname', served.path('absolute'))
    os.symlink('../outside', served.path('relative'))
    os.symlink('/etc', served.path('etc'))
    make(os.path.join(t.dir, 'outside'), 10)
    os.mkfifo(served.path('fifo'))
    to = os.path.join(t.dir, 'got')
    for name in ('missing', 'directory', 'absolute', 'relative', 'etc/hostname', '../outside',
                 'directory/../../outside', '%2e%2e/outside', '..%2foutside', 'secret', 'fifo', '',
                 'x' * 300, 'a%00b', '/' * 50 + 'missing', 'directory/'):
        status, _, errors = t.xferctl('get', served.url + name, to)
        check(status not in (0, 2) or status == 2 and name in ('', 'a%00b', 'directory/', 'x' * 300),
              '%r: status %d' % (name, status))
        check(errors.strip(), '%r: no sentence' % name)
        check(not os.path.exists(to), '%r left a file' % name)
    served.alive()
    equal([n for n in os.listdir(t.dir) if n not in ('served', 'outside')], [], 'files left')


@test()
def put_that_is_refused(t):
    served = Served(t)
    source = os.path.join(t.dir, 'source')
    make(source, 1000)
    status, _, errors = t.xferctl('put', source, served.url + 'new')
    check(status == 1 and errors, 'put to a read-only server: %d %s' % (status, errors))
    equal(os.listdir(served.dir), [], 'files in the served directory')
    writable = Served(t, '--writable')
    for name in ('../escaped', '%2e%2e/escaped', 'no/such/directory/f', ''):
        status, _, errors = t.xferctl('put', source, writable.url + name)
        check(status != 0 and errors, 'put %r: %d' % (name, status))
    check(not os.path.exists(os.path.join(t.dir, 'escaped')), 'a file outside')
    for bad in ('missing', '.', 'served'):
        status, _, errors = t.xferctl('put', os.path.join(t.dir, bad), writable.url + 'new')
        check(status == 1 and errors, 'put of %s: %d' % (bad, status))
    equal(os.listdir(writable.dir), [], 'files in the served directory')


@test()
def no_server_no_daemon(t):
    status, _, errors = t.xferctl('get', 'xfer://%s:1/f' % raw.ADDRESS, os.path.join(t.dir, 'got'))
    check(status == 1 and errors, 'nobody listens: %d %s' % (status, errors))
    status, _, errors = t.xferctl('--socket', os.path.join(t.dir, 'nothing'), 'status')
    check(status == 1 and 'nothing' in errors, 'no daemon: %d %s' % (status, errors))
    status, _, errors = t.xferctl('get', 'xfer://10.1.2.3/f', os.path.join(t.dir, 'got'))
    check(status == 1 and errors, 'not allowed: %d %s' % (status, errors))
    equal(os.listdir(t.dir), [], 'files left')


@test()
def wrong_arguments(t):
    for arguments in ([], ['no-such-command'], ['get'], ['get', 'not-a-url'], ['put', 'only-one'],
                      ['serve'], ['serve', '/a', '/b'], ['--no-such-option'], ['status', 'extra'],
                      ['get', 'http://127.0.0.1/f'], ['get', 'xfer://127.0.0.1:99999/f']):
        status, out, errors = t.xferctl(*arguments)
        equal(status, 2, 'status of %s (%s)' % (arguments, errors))
        check(errors.strip() and not out.strip(), 'what %s says' % arguments)
    for arguments in (['--help'], ['--version']):
        status, out, _ = t.xferctl(*arguments)
        check(status == 0 and 'xferctl' in out, '%s: %d' % (arguments, status))


def start_get(t, served, to):
    return t.spawn([t.build.xferctl, 'get', served.url + 'big', to])


def big(t, served):
    """A file that takes a while."""
    make(served.path('one'), 4 * MIB)
    with open(served.path('big'), 'wb') as f:
        f.truncate(2 << 30)
    os.chmod(served.path('big'), 0o644)


def moved(t):
    """Bytes moved so far, by the daemon's word."""
    return sum(int(r['value']) for r in t.admin().query('status')
               if r['name'] in ('bytes_written', 'bytes_read'))


@test(timeout=300)
def the_server_dies_half_way(t):
    served = Served(t)
    big(t, served)
    where = os.path.join(t.dir, 'target')
    os.mkdir(where)
    os.chmod(where, 0o777)
    # A busy machine may let it end before the server dies: then once more.
    for _ in range(10):
        process = start_get(t, served, os.path.join(where, 'got'))
        until(lambda p=process: os.listdir(where) or p.poll() is not None, 'the transfer has begun', 20, 0.0005)
        time.sleep(0.02)
        served.process.kill()
        if process.wait(120) != 0:
            break
        os.unlink(os.path.join(where, 'got'))
        served = Served(t)
    equal(process.returncode, 1, 'status of get though its server died')
    equal(os.listdir(where), [], 'files left behind')


@test(timeout=300)
def the_client_dies_half_way(t):
    served = Served(t)
    big(t, served)
    where = os.path.join(t.dir, 'target')
    os.mkdir(where)
    os.chmod(where, 0o777)
    for signum in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        # A busy machine may let it end before the signal goes out: then once more.
        for _ in range(10):
            process = start_get(t, served, os.path.join(where, 'got'))
            until(lambda p=process: os.listdir(where) or p.poll() is not None, 'it has begun', 20, 0.0005)
            if process.poll() is None:
                time.sleep(0.02)
                process.send_signal(signum)
            if process.wait(120) != 0:  # two GiB may have to go to a slow disk first
                break
            os.unlink(os.path.join(where, 'got'))
        check(process.returncode != 0, 'get succeeded though it was killed')
        check(not os.path.exists(os.path.join(where, 'got')), 'a file that is not whole')
        if signum != signal.SIGKILL:
            equal(os.listdir(where), [], 'files left behind')
        for name in os.listdir(where):
            os.unlink(os.path.join(where, name))
    served.alive()
    status, _, errors = t.xferctl('get', served.url + 'one', os.path.join(where, 'one'))
    equal(status, 0, 'status of the next get (%s)' % errors)


@test(timeout=60)
def several_clients_at_once(t):
    served = Served(t, '--writable')
    for i in range(4):
        make(served.path('f%d' % i), 3 * MIB + i, i)
    gets = [t.spawn([t.build.xferctl, 'get', served.url + 'f%d' % (i % 4),
                     os.path.join(t.dir, 'got%d' % i)], user=i % 3) for i in range(8)]
    for i, process in enumerate(gets):
        _, errors = process.communicate(timeout=60)
        equal(process.returncode, 0, 'status of get (%s)' % errors)
        equal(digest(os.path.join(t.dir, 'got%d' % i)), digest(served.path('f%d' % (i % 4))), 'SHA-256')
    served.alive()


@test()
def an_existing_file_is_replaced_whole(t):
    served = Served(t)
    make(served.path('f'), 5000, 1)
    to = os.path.join(t.dir, 'got')
    make(to, 9000, 2)
    old = digest(to)
    os.chmod(to, 0o666)
    status, _, _ = t.xferctl('get', served.url + 'missing', to)
    equal((status, digest(to)), (1, old), 'status, SHA-256 of the old file')
    status, _, errors = t.xferctl('get', served.url + 'f', to)
    equal(status, 0, 'status (%s)' % errors)
    equal(digest(to), digest(served.path('f')), 'SHA-256')


@test()
def tables_and_json(t):
    s = t.session()
    s.buffer(4096)
    for table in ('status', 'devices', 'sessions', 'endpoints', 'buffers'):
        status, out, errors = t.xferctl(table)
        equal(status, 0, 'status of %s (%s)' % (table, errors))
        check(out.strip() or table == 'endpoints', 'nothing of ' + table)
        status, out, errors = t.xferctl('--json', table)
        equal(status, 0, 'status of --json %s (%s)' % (table, errors))
        parsed = json.loads(out)
        check(isinstance(parsed, (dict, list)), 'json of ' + table)
    check('4096' in t.xferctl('--json', 'buffers')[1], 'the buffer is not in the table')


@test()
def devices_and_what_was_seen_of_them(t):
    """A line a device; with -v a line for each question that it was asked."""
    status, out, errors = t.xferctl('--json', 'devices')
    equal(status, 0, 'status (%s)' % errors)
    devices = json.loads(out)['devices']
    for row in devices:
        check(row['keys'] in ('window', 'mr', 'slab'), 'keys: %s' % row)
    status, out, errors = t.xferctl('devices', '-v', '--json')
    equal(status, 0, 'status (%s)' % errors)
    facts = json.loads(out)['device-facts']
    for row in facts:
        equal(sorted(row), ['asked', 'claimed', 'consequence', 'device', 'question', 'seen'], 'columns')
        check(row['asked'] and row['claimed'] and row['seen'], 'an empty cell: %s' % row)
    # What has a driver of the kernel's was tested; all that was tested is a device.
    equal({row['device'] for row in facts}, {row['name'] for row in devices if row['driver']}, 'tested devices')
    status, out, errors = t.xferctl('devices', '-v')
    equal(status, 0, 'status (%s)' % errors)
    check(all(row['name'] in out for row in devices), 'a device is missing')
    check('no device-facts' in out or all(row['question'] in out for row in facts), 'a question is missing')
    for wrong in (('-v', 'devices'), ('status', '-v')):
        equal(t.xferctl(*wrong)[0], 2, 'status of %s' % ' '.join(wrong))


@test()
def serve_ends_at_sigterm(t):
    served = Served(t)
    served.process.terminate()
    check(served.process.wait(60) in (0, -signal.SIGTERM), 'status %s' % served.process.returncode)


@test()
def serve_of_what_is_not_there(t):
    for directory in (os.path.join(t.dir, 'missing'), '/etc/hostname'):
        status, _, errors = t.xferctl('serve', '--listen', raw.ADDRESS + ':0', directory)
        check(status == 1 and errors, 'serve %s: %d' % (directory, status))
    status, _, errors = t.xferctl('serve', '--listen', '0.0.0.0:0', t.dir)
    check(status == 1 and errors, 'serve on 0.0.0.0: %d' % status)
