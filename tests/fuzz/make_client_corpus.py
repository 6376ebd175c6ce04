#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes the first inputs of fuzz_client_message: make_client_corpus.py FOLDER.

Needs client_pb2 in the module path: protoc --python_out=DIR --proto_path=proto client.proto.
"""
import os
import struct
import sys

import client_pb2 as pb

SECOND, CLOCK, LEAVE, CALMLY, ADMIN = 0x01, 0x02, 0x04, 0x08, 0x80
MEMORY, NULL = 1, 2
READ, WRITE, SEND, RECV, GRANT, REVOKE, CANCEL = range(1, 8)
GRANT_READ, GRANT_WRITE = 0x100, 0x200
# The first number that a table gives out (common/slots.h).
FIRST = 1 << 20
# What the harness takes for the newest grant's address and key.
ADDRESS, KEY = 0xeeeeeeeeeeeeeeee, 0xeeeeeeee


class Input:
    def __init__(self):
        self.data = b''
        self.serial = 0
        self.cookie = 0

    def packet(self, data, flags=CALMLY, fds=0):
        self.data += struct.pack('<BBH', flags, fds, len(data)) + data
        return self

    def say(self, body, flags=CALMLY, fds=0, **fields):
        message = pb.ClientMessage()
        self.serial += 1
        message.serial = self.serial
        part = getattr(message, body)
        part.SetInParent()
        for name, value in fields.items():
            if isinstance(value, (list, tuple)):
                getattr(part, name).extend(value)
            else:
                setattr(part, name, value)
        return self.packet(message.SerializeToString(), flags, fds)

    def submit(self, *requests, flags=CALMLY):
        message = pb.ClientMessage()
        message.submit.requests.extend(requests)
        return self.packet(message.SerializeToString(), flags)

    def request(self, opcode, local=(), remote=(), **fields):
        self.cookie += 1
        request = pb.Request(opcode=opcode, cookie=self.cookie, wr_id=self.cookie, endpoint=FIRST,
                             **fields)
        for segments, to in ((local, request.local), (remote, request.remote)):
            for address, length, key in segments:
                to.add(address=address, length=length, key=key)
        return request

    def greet(self):
        for who in (0, SECOND):
            self.say('hello', flags=who | CALMLY, major=1, name='fuzz')
            self.say('buffer_add', flags=who | CALMLY, fds=MEMORY, size_bytes=65536)
        return self

    def joined(self):
        """The first client listens, the second connects."""
        self.greet()
        self.say('listen', host='127.0.0.1', port=7)
        self.say('endpoint_new', flags=SECOND | CALMLY, host='127.0.0.1', port=7)
        self.say('connect', flags=SECOND | CALMLY, endpoint=FIRST, private_data=b'hello')
        self.say('endpoint_new', request=FIRST)
        self.say('accept', endpoint=FIRST, private_data=b'welcome')
        return self


def inputs():
    yield 'hello', Input().say('hello', major=1, name='fuzz').say('hello', major=1)
    yield 'version', Input().say('hello', major=2)
    yield 'too-early', Input().say('unlisten', listener=1)
    yield 'garbage', Input().greet().packet(b'\xff' * 40).packet(b'')
    yield 'descriptors', (Input().greet().say('buffer_add', fds=MEMORY | 2 * NULL, size_bytes=65536)
                          .say('buffer_add', flags=SECOND, fds=NULL, size_bytes=1)
                          .say('unlisten', flags=SECOND, fds=MEMORY, listener=1))
    yield 'buffers', (Input().greet().say('buffer_remove', buffer=FIRST)
                      .say('buffer_add', fds=MEMORY, size_bytes=4096)
                      .say('buffer_add', fds=MEMORY, size_bytes=0))
    queries = Input().greet()
    for table in ('status', 'devices', 'sessions', 'endpoints', 'buffers', 'listeners', 'grants',
                  'quotas', 'none'):
        queries.say('query', table=table).say('query', table=table, cursor=1)
    yield 'queries', queries
    yield 'admin', (Input().say('hello', flags=ADMIN, major=1)
                    .say('hello', flags=SECOND, major=1)
                    .say('admin', verb='end-session', arguments=['2'])
                    .say('admin', verb='disconnect-endpoint', arguments=['1', '1048576'])
                    .say('admin', verb='log-level', arguments=['debug']))
    yield 'reject', (Input().greet().say('listen', host='::1', port=0, backlog=1)
                     .say('listen', host='localhost', port=9)
                     .say('endpoint_new', flags=SECOND | CALMLY, host='localhost', port=9)
                     .say('connect', flags=SECOND | CALMLY, endpoint=FIRST)
                     .say('reject', request=FIRST, private_data=b'no')
                     .say('endpoint_free', flags=SECOND | CALMLY, endpoint=FIRST))
    talk = Input().joined()
    talk.submit(*[talk.request(RECV, [(i * 1000, 1000, FIRST)]) for i in range(4)])
    talk.submit(*[talk.request(SEND, [(i, 100 + i, FIRST), (5000, 7, FIRST)]) for i in range(5)],
                flags=SECOND | CALMLY)
    talk.say('disconnect', endpoint=FIRST).say('endpoint_free', flags=SECOND, endpoint=FIRST)
    yield 'talk', talk
    grant = Input().joined()
    grant.submit(grant.request(GRANT, [(0, 4096, FIRST)], flags=GRANT_READ, argument=150),
                 grant.request(GRANT, [(4096, 4096, FIRST)], flags=GRANT_WRITE))
    grant.submit(grant.request(READ, [(0, 64, FIRST)], [(4096, 64, 1)]),
                 grant.request(WRITE, [(0, 64, FIRST)], [(0, 64, 1)], flags=0xb),
                 flags=SECOND | CALMLY)
    grant.submit(grant.request(REVOKE, key=FIRST), grant.request(CANCEL, argument=1),
                 flags=CLOCK | CALMLY)
    yield 'grant', grant
    moves = Input().joined()
    for kind, opcode in ((GRANT_READ, READ), (GRANT_WRITE, WRITE)):
        for length in (64, 65536):
            moves.submit(moves.request(GRANT, [(0, length, FIRST)], flags=kind))
            moves.submit(moves.request(opcode, [(0, 10, FIRST), (10, length - 10, FIRST)],
                                       [(ADDRESS, length, KEY)]), flags=SECOND | CALMLY)
    # One byte too far: the connection ends.
    moves.submit(moves.request(opcode, [(0, length, FIRST)], [(ADDRESS + 1, length, KEY)]),
                 flags=SECOND | CALMLY)
    yield 'moves', moves
    invalidate = Input().joined()
    invalidate.submit(invalidate.request(RECV, [(0, 100, FIRST)]),
                      invalidate.request(GRANT, [(0, 4096, FIRST)], flags=GRANT_READ))
    invalidate.submit(invalidate.request(SEND, [(0, 10, FIRST)], flags=0x10, key=KEY),
                      invalidate.request(READ, [(0, 10, FIRST)], [(ADDRESS, 10, KEY)]),
                      flags=SECOND | CALMLY)
    yield 'invalidate', invalidate
    lists = Input().joined()
    lists.submit(lists.request(RECV, list_buffer=FIRST, list_offset=0, local_count=4096),
                 lists.request(READ, list_buffer=FIRST, list_offset=8, local_count=1,
                               remote_count=4097),
                 lists.request(SEND, [(65535, 2, FIRST)]), lists.request(77), lists.request(RECV))
    yield 'lists', lists
    leave = Input().joined()
    leave.submit(leave.request(RECV, [(0, 65536, FIRST)]), flags=0)
    leave.submit(leave.request(SEND, [(0, 65536, FIRST)]), flags=SECOND)
    leave.say('hello', flags=LEAVE, major=1).say('hello', flags=SECOND | LEAVE | CLOCK, major=1)
    yield 'leave', leave


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, made in inputs():
        with open(os.path.join(sys.argv[1], name), 'wb') as file:
            file.write(made.data)


main()
