# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Clients that say anything at any time: valid calls in an order that nobody planned, with numbers of things
that are, were or never have been. The daemon answers each, and holds nothing afterwards."""
import os
import random
import select
import signal
import time

import raw
from harness import FULL, check, equal, test, until
from raw import E, Ended, READ, WRITE, SEND, RECV, GRANT, REVOKE, CANCEL

SECONDS = 30 if FULL else 3
SIZE = 1 << 18


class Wild(raw.Session):
    """A session that acts at random, and does not wait for what it asked for."""

    def __init__(self, path, uid, gid, rng, world):
        super().__init__(path, uid, gid, name='wild %d' % rng.randrange(100))
        self.rng = rng
        self.world = world
        self.asked = {}  # serial: what, fields
        self.known = {name: [0, 1, 0xffffffff] for name in ('buffer', 'listener', 'endpoint', 'grant')}
        self.requests = [0, 1]
        self.cookies = [0]
        self.connected = []
        self.tokens = [(0, 100, 0)]
        self.outstanding = 0
        self.statuses = {}

    # ---- what it hears

    def _sort(self, message):
        kind = message.WhichOneof('body')
        if kind == 'completions':
            for completion in message.completions.completions:
                self.completed(completion)
        elif kind == 'reply':
            self.replied(*self.asked.pop(message.serial), message.reply)
        elif kind == 'query_reply':
            self.asked.pop(message.serial, None)
        elif kind == 'connect_request':
            self.requests = (self.requests + [message.connect_request.request])[-8:]
            self.sometimes('endpoint_new', request=self.requests[-1])
        elif kind == 'endpoint_ready':
            # It answers a request or connects: one of the two is refused.
            for body in ('connect', 'accept'):
                self.sometimes(body, endpoint=message.endpoint_ready.endpoint)
        elif kind == 'connected' and message.connected.status == 0:
            self.connected.append(message.connected.endpoint)
        elif kind == 'disconnected':
            self.forget({'endpoint': message.disconnected.endpoint})
        elif kind in ('hello_reply', 'goodbye'):
            super()._sort(message)

    def replied(self, what, fields, reply):
        self.count(reply.status)
        check(reply.status == 0 or reply.text, 'a refusal without a sentence')
        name = {'buffer_add': 'buffer', 'listen': 'listener', 'endpoint_new': 'endpoint'}.get(what)
        if reply.status == 0 and name:
            self.known[name] = (self.known[name] + [reply.number])[-12:]
            if what == 'listen':
                self.world.ports.append(int(reply.address.rsplit(':', 1)[1]))
        if reply.status == 0 and what in ('buffer_remove', 'unlisten', 'endpoint_free') and \
                self.rng.random() < 0.9:
            self.forget(fields)

    def forget(self, fields):
        for name, number in fields.items():
            self.known[name] = [n for n in self.known[name] if n != number]
            if name == 'endpoint':
                self.connected = [n for n in self.connected if n != number]

    def completed(self, completion):
        self.outstanding -= 1
        self.count(completion.status)
        if completion.status == 0 and completion.opcode == GRANT:
            self.known['grant'] = (self.known['grant'] + [completion.grant])[-12:]
            self.world.tokens.append((completion.address, completion.byte_len, completion.rkey))

    def count(self, status):
        self.statuses[status] = self.statuses.get(status, 0) + 1

    # ---- what it says

    def any(self, name):
        return self.rng.choice(self.known[name][-3 if self.rng.random() < 0.8 else 0:] or [0])

    def say(self, body, file=None, **fields):
        message = self.message(body, **fields)
        if self.try_send(message.SerializeToString(), [file.fd] if file else ()):
            self.asked[message.serial] = (body, fields)

    def sometimes(self, body, **fields):
        """What a client in its right mind would do next."""
        if self.rng.random() < 0.8:
            self.say(body, **fields)

    def segment(self, length):
        rng = self.rng
        offset = rng.choice((0, rng.randrange(SIZE), SIZE - length, SIZE - 1))
        return (max(offset, 0), length, self.any('buffer'))

    def random_request(self):
        rng = self.rng
        opcode = rng.choice((READ, WRITE, SEND, RECV, GRANT, REVOKE, CANCEL))
        length = rng.choice((0, 1, 100, 4096, 65536, SIZE))
        self.cookie += 1
        self.cookies = (self.cookies + [self.cookie])[-30:]
        fields = {'cookie': self.cookie, 'endpoint': self.any('endpoint')}
        if self.connected and rng.random() < 0.8:
            fields['endpoint'] = rng.choice(self.connected)
        local, remote = [], []
        if opcode in (READ, WRITE, SEND, RECV, GRANT):
            local = [self.segment(length)]
        if opcode in (READ, WRITE):
            address, _, key = rng.choice(self.world.tokens[-20:])
            remote = [(address + rng.choice((0, 0, 0, 1, 4096)), length, key)]
        if opcode == GRANT:
            fields['flags'] = rng.choice((raw.F_GRANT_READ, raw.F_GRANT_WRITE))
            fields['argument'] = rng.choice((0, 0, 1, 20, (1 << 64) - 1))
        if opcode == REVOKE:
            fields['key'] = self.any('grant')
        if opcode == CANCEL:
            fields['argument'] = rng.choice(self.cookies)
        if opcode == SEND and rng.random() < 0.2:
            fields['flags'] = raw.F_INVALIDATE
            fields['key'] = rng.choice(self.world.tokens[-20:])[2]
        return self.request(opcode, local=local, remote=remote, **fields)

    def act(self):
        rng = self.rng
        if rng.random() < 0.6:
            message = raw.pb.ClientMessage()
            message.submit.requests.extend(self.random_request() for _ in range(rng.randrange(1, 6)))
            if self.try_send(message.SerializeToString()):
                self.outstanding += len(message.submit.requests)
            return
        body, fields, file = self.random_call()
        self.say(body, file, **fields)

    def random_call(self):
        rng = self.rng
        if len(self.known['endpoint']) < 6 or len(self.known['buffer']) < 6:
            body = rng.choice(('listen', 'endpoint_new', 'buffer_add'))
        else:
            body = rng.choice(('buffer_add', 'buffer_remove', 'listen', 'unlisten', 'endpoint_new',
                               'endpoint_new', 'connect', 'accept', 'reject', 'disconnect',
                               'endpoint_free', 'query', 'query', 'query', 'query'))
        if body == 'buffer_add':
            return body, {'size_bytes': SIZE}, raw.Memfd(SIZE)
        if body in ('buffer_remove', 'unlisten'):
            name = 'buffer' if body == 'buffer_remove' else 'listener'
            return body, {name: self.any(name)}, None
        if body == 'listen':
            return body, {'host': rng.choice((raw.ADDRESS, 'localhost')), 'backlog': rng.choice((1, 4))}, None
        if body == 'endpoint_new':
            if rng.random() < 0.5:
                return body, {'request': rng.choice(self.requests)}, None
            return body, {'host': rng.choice((raw.ADDRESS, raw.ADDRESS, 'localhost')),
                          'port': rng.choice(self.world.ports[-6:]), 'send_depth': rng.choice((0, 1, 3)),
                          'recv_depth': rng.choice((0, 2))}, None
        if body == 'reject':
            return body, {'request': rng.choice(self.requests)}, None
        if body == 'query':
            return body, {'table': rng.choice(('status', 'endpoints', 'grants', 'quotas', 'sessions')),
                          'cursor': rng.choice((0, 0, 1, 5, rng.getrandbits(64)))}, None
        return body, {'endpoint': self.any('endpoint')}, None


class World:
    def __init__(self, t, daemon, seed):
        self.t, self.daemon = t, daemon
        self.rng = random.Random(seed)
        self.sessions = []
        self.ports = [1]
        self.tokens = [(0, 100, 0)]
        self.acts = self.deaths = self.refused = 0
        self.statuses = {}

    def step(self):
        rng = self.rng
        if len(self.sessions) < 6:
            try:
                self.sessions.append(Wild(self.daemon.socket, self.t.uid(rng.randrange(3)), raw_gid(),
                                          random.Random(rng.getrandbits(64)), self))
            except (OSError, Ended, raw.Failed):
                self.refused += 1
            return
        session = rng.choice(self.sessions)
        try:
            for _ in range(rng.randrange(1, 8)):
                session.act()
                self.acts += 1
            if rng.random() < 0.9:
                session.pump()
        except Ended as e:
            check(e.status is None or e.status in (E.PROTOCOL, E.SHUTDOWN, E.DENIED),
                  'a valid client was ended: %s' % e)
            self.bury(session)
            return
        if rng.random() < 0.003:
            self.bury(session)

    def bury(self, session):
        session.close()
        self.sessions.remove(session)
        self.deaths += 1
        for status, count in session.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + count

    def settle(self):
        """Everything that was asked is answered, but RECVs."""
        for session in list(self.sessions):
            deadline = time.monotonic() + 30 * raw.SLOW
            while session.asked and time.monotonic() < deadline:
                select.select([session.sock], [], [], 0.1)
                try:
                    session.pump()
                except Ended:
                    break
            check(session.ended or not session.asked, 'calls without an answer: %s' %
                  {what for what, _ in session.asked.values()})
            self.bury(session)

    def seen(self, *statuses):
        """Whether some request ended with each of these."""
        return all(any(status in s.statuses for s in (self, *self.sessions)) for status in statuses)

    def note(self):
        common = sorted(self.statuses.items(), key=lambda item: -item[1])[:6]
        return '%d acts, %d sessions ended; statuses: %s' % (
            self.acts, self.deaths, ', '.join('%s %d' % (raw.status_name(s) if s else 'ok', n)
                                              for s, n in common))


def raw_gid():
    from harness import GID
    return GID


def run(t, daemon, seconds, each=lambda world: None, enough=lambda world: True):
    """For so long, and on until it is enough; but not for ever."""
    seed = int(os.environ.get('XFER_TEST_SEED', '0')) or random.SystemRandom().randrange(1, 1 << 32)
    t.note('XFER_TEST_SEED=%d' % seed)
    world = World(t, daemon, seed)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end or (not enough(world) and time.monotonic() < end + 60):
            world.step()
            each(world)
        return world
    except BaseException:
        for session in world.sessions:
            session.close()
        raise


@test(timeout=SECONDS + 150)
def any_call_at_any_time(t):
    statuses = (0, *(() if raw.LATE else (E.REMOTE_ACCESS,)), E.FLUSHED)
    world = run(t, t.daemon, SECONDS, enough=lambda world: world.seen(*statuses))
    world.settle()
    t.note(world.note())
    for status in statuses:
        check(world.statuses.get(status), 'no request ended with %s' % raw.status_name(status))


def sees(d):
    try:
        return bool(d.gauges())
    except (raw.Ended, raw.Failed):
        return False


@test(daemon=False, timeout=SECONDS + 150)
def with_changing_limits(t):
    """SIGHUP in between: smaller and larger limits, and rules."""
    d = t.more_daemon()
    configs = ['', 'limits { buffers = 2 endpoints = 3 grants = 1 requests = 5 }',
               'limits { pinned = 1MiB sessions = 2 bytes = 64KiB }', 'allow { connect = {127.0.0.1} }',
               'total { sessions = 4 endpoints = 5 }\ntimes { hello = 100ms connect = 100ms }']
    count = [0]

    def each(world):
        count[0] += 1
        if count[0] % 50 == 0:
            d.write_config(configs[count[0] // 50 % len(configs)])
            d.process.send_signal(signal.SIGHUP)
    world = run(t, d, SECONDS, each)
    world.settle()
    t.note(world.note())
    # The last limits may leave no session over for the one that looks.
    d.write_config('')
    d.process.send_signal(signal.SIGHUP)
    until(lambda: sees(d), 'the limits are as shipped again')
    t.runner.settle(d, {name: 1 if name == 'sessions' else 0 for name in d.gauges()})
    t.runner.close_daemon(d)


@test(daemon=False)
def until_sigterm(t):
    """In the middle of it the daemon is told to stop: it does, in bounded time, with status 0."""
    for _ in range(4):
        d = t.more_daemon('times { drain = 500ms }')
        world = run(t, d, 0.4)
        d.process.send_signal(signal.SIGTERM)
        for _ in range(200):
            if world.sessions:
                world.step()
        equal(d.process.wait(60), 0, 'status; it says: ' + d.stderr()[-500:])
        check(d.report() is None, 'report: %s' % d.report())
        for session in world.sessions:
            session.close()
