# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What two daemons say to each other, captured from a network of their own, read by tshark and by the reader
of these tests: both see the same FPDUs, and neither sees anything wrong."""
import os
import re
import shutil
import signal
import subprocess

import iwarp
import iwarp_pcap
from harness import ROOT, check, equal, test, until
from wire_rig import NO_CRC, WITH_CRC, needs_tcp
from test_wire_two import Meeting

TSHARK = ('tshark', '-2', '-o', 'tcp.reassemble_out_of_order:TRUE', '-o', 'tcp.try_heuristic_first:TRUE',
          '--disable-protocol', 'rpcordma', '--disable-protocol', 'smb_direct', '-Y', 'iwarp_mpa',
          '-O', 'iwarp_mpa,iwarp_ddp_rdmap')


class Network:
    """A network namespace with nothing but a loopback device."""

    def __init__(self, mtu=65536):
        self.process = subprocess.Popen(
            ['unshare', '-n', 'sh', '-c', 'ip link set lo mtu %d up && echo up && exec sleep 600' % mtu],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said = self.process.stdout.readline().decode().strip()

    @property
    def pid(self):
        return self.process.pid

    def close(self):
        self.process.kill()
        self.process.communicate()


class Capture:
    def __init__(self, network, path):
        self.path = path
        self.process = subprocess.Popen(
            ['nsenter', '-n', '-t', str(network.pid), 'tcpdump', '-Z', 'root', '-U', '-B', '65536', '-s0',
             '--immediate-mode', '-i', 'lo', '-w', path, 'tcp'], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        line = self.process.stderr.readline().decode()
        self.works = 'listening on' in line
        self.said = line.strip()

    def stop(self):
        """Everything that went by is in the file."""
        def ended():
            seen = iwarp_pcap.connections(self.path)
            return seen and all(all(c.closed) for c in seen)
        until(ended, 'the ends are captured', 60, 0.3)
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=60)
        dropped = re.search(rb'(\d+) packets? dropped by kernel', said)
        return int(dropped.group(1)) if dropped else -1

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def tshark(path):
    done = subprocess.run([*TSHARK, '-r', path], stdin=subprocess.DEVNULL, capture_output=True, timeout=300,
                          env={**os.environ, 'HOME': os.path.dirname(path), 'LC_ALL': 'C.UTF-8'})
    text = done.stdout.decode('utf-8', 'replace')
    equal(done.returncode, 0, 'the status of tshark (%s)' % done.stderr[-300:])
    return text


def captured(t, config, mtu):
    needs_tcp(t)
    if not ROOT:
        t.skip('needs the right to capture: run as root')
    for program, package in (('tshark', 'tshark'), ('tcpdump', 'tcpdump'), ('unshare', 'util-linux'),
                             ('nsenter', 'util-linux'), ('ip', 'iproute2')):
        if shutil.which(program) is None:
            t.skip('no %s (Debian: %s)' % (program, package))
    network = t.keep(Network(mtu))
    if network.said != 'up':
        t.skip('no network namespace here: ' + network.said)
    path = os.path.join(t.dir, 'wire.pcap')
    capture = t.keep(Capture(network, path))
    if not capture.works:
        t.skip('cannot capture here: ' + capture.said)
    here, there = (t.more_daemon(config, netns=network.pid) for _ in range(2))
    t.daemon = here
    two = Meeting(t, there)
    for size in (1, 2, 3, 100, 5000, 70001, 1 << 20):
        two.moves(size)
    # And the end of one for cause, so that there is a Terminate.
    token = two.a.grant(two.ea, two.ma.segment(0, 100))
    done = two.b.run(1, two.eb, [two.mb.segment(0, 101)], [(token.address, 101, token.rkey)])
    check(done.status != 0, 'a READ past a grant succeeded')
    two.b.wait_event('disconnected')
    for daemon in (here, there):
        equal(daemon.stop(), 0, 'the status of a daemon')
    equal(capture.stop(), 0, 'packets that the kernel dropped')
    return path


def judge(t, path, crc):
    (connection,) = iwarp_pcap.connections(path)
    request, reply, asked, answered, fpdus = connection.read()
    equal((request.crc or reply.crc, request.markers, reply.markers), (crc, False, False), 'CRC, markers')
    seen = [sum(m.op == op for m in asked + answered) for op in range(8)]
    check(all(seen), 'messages of each opcode: %s' % seen)
    text = tshark(path)
    t.note('%d FPDUs, %d messages, of each opcode %s' % (fpdus, sum(seen), seen))
    equal(len(re.findall(r'^    FPDU$', text, re.M)), fpdus, 'FPDUs that tshark sees')
    equal(len(re.findall(r'^ +.*OpCode: ', text, re.M)), fpdus, 'RDMAP headers that tshark sees')
    for op, name in enumerate(('Write', 'Read Request', 'Read Response', 'Send', 'Send with Invalidate',
                               'Send with SE', 'Send with SE and Invalidate', 'Terminate')):
        shall = sum(m.segments for m in asked + answered if m.op == op)
        equal(len(re.findall(r'OpCode: %s \(0x%x\)$' % (name, op), text, re.M)), shall, name + ' segments')
    for bad in ('alformed', 'nknown', 'Bad CRC', 'ncorrect', 'Expert Info'):
        check(bad not in text, 'tshark: ' + bad)
    equal(text.count('(Good CRC32)'), fpdus if crc else 0, 'checksums that tshark finds good')
    equal((text.count('Request frame header'), text.count('Reply frame header')), (1, 1), 'MPA frames')
    # What it knows of a Terminate.
    (last,) = [m for m in asked + answered if m.op == iwarp.TERMINATE]
    equal(last.terminate[:3], (0, 1, 1), 'the Terminate')


@test(daemon=False, timeout=120)
def read_by_tshark_with_a_crc(t):
    judge(t, captured(t, WITH_CRC, 65536), True)


@test(daemon=False, timeout=120)
def read_by_tshark_without_a_crc(t):
    judge(t, captured(t, NO_CRC, 65536), False)


@test(daemon=False, timeout=120)
def read_by_tshark_at_an_mtu_of_1500(t):
    judge(t, captured(t, WITH_CRC, 1500), True)
