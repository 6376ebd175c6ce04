# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The iWARP connections in a capture, read strictly: packets to TCP streams, streams to messages."""
import struct

import iwarp
from iwarp import READ_REQUEST, Wrong, need
from iwarp_peer import Receiver

ETHERNET, LINUX_SLL2 = 1, 276
MASK = 0xffffffff


def packets(data):
    """(link type, bytes) of each, of a pcap file as tcpdump writes it."""
    order = {0xa1b2c3d4: '>', 0xd4c3b2a1: '<', 0xa1b23c4d: '>', 0x4d3cb2a1: '<'}[struct.unpack('>I', data[:4])[0]]
    link, at = struct.unpack(order + 'I', data[20:24])[0] & 0xffff, 24
    while at + 16 <= len(data):
        captured, length = struct.unpack(order + 'II', data[at + 8:at + 16])
        need(captured == length, 'a packet was captured in part')
        if at + 16 + captured > len(data):
            return
        yield link, data[at + 16:at + 16 + captured]
        at += 16 + captured


def tcp_of(link, packet):
    """(from, to, sequence number, flags, payload), or None."""
    if link == ETHERNET:
        kind, ip = struct.unpack('>H', packet[12:14])[0], packet[14:]
    elif link == LINUX_SLL2:
        kind, ip = struct.unpack('>H', packet[:2])[0], packet[20:]
    else:
        raise Wrong('link type %d' % link)
    if kind == 0x0800:
        # 0: a packet that the kernel would have cut later is longer than the field can say.
        total = struct.unpack('>H', ip[2:4])[0] or len(ip)
        if ip[9] != 6:
            return None
        source, target, tcp = ip[12:16], ip[16:20], ip[(ip[0] & 15) * 4:total]
    elif kind == 0x86dd:
        total = struct.unpack('>H', ip[4:6])[0]
        if ip[6] == 6:
            tcp = ip[40:40 + total] if total else ip[40:]
        elif ip[6] == 0 and ip[40] == 6:  # the jumbo option, before such a packet
            tcp = ip[48:]
        else:
            return None
        source, target = ip[8:24], ip[24:40]
    else:
        return None
    sport, dport, seq = struct.unpack('>HHI', tcp[:8])
    return (source, sport), (target, dport), seq, tcp[13], tcp[(tcp[12] >> 4) * 4:]


class Stream:
    """One direction, put together from its segments, whatever their order."""

    def __init__(self, syn_seq):
        self.next = (syn_seq + 1) & MASK
        self.data = bytearray()
        self.later = {}

    def take(self, seq, payload):
        self.later[seq] = max(payload, self.later.get(seq, b''), key=len)
        while True:
            for seq in list(self.later):
                behind = (self.next - seq) & MASK  # bytes of it that are there already
                if behind < 1 << 31:
                    piece = self.later.pop(seq)[behind:]
                    if piece:
                        self.data += piece
                        self.next = (self.next + len(piece)) & MASK
                        break
            else:
                return


class Connection:
    """Both directions; the first is the initiator's."""

    def __init__(self, initiator, responder):
        self.ends = (initiator, responder)
        self.streams = [None, None]
        self.closed = [False, False]  # by a FIN, or both by a reset

    def read(self):
        """(request, reply, messages of the initiator, of the responder, FPDUs in all). Strict."""
        need(None not in self.streams, 'a direction without a SYN')
        frames, rest = [], []
        for stream, is_request in zip(self.streams, (True, False)):
            data = stream.data
            need(len(data) >= 20 and len(data) >= iwarp.mpa_length(data), 'no whole MPA frame')
            size = iwarp.mpa_length(data)
            frames.append(iwarp.mpa_decode(bytes(data[:size]), is_request))
            rest.append(data[size:])
        crc = frames[0].crc or frames[1].crc
        receivers = [Receiver(crc), Receiver(crc)]
        messages = [[], []]
        for receiver, data in zip(receivers, rest):
            receiver.data = data
        # A response is judged by its request: whichever direction can go on goes on.
        moved = True
        while moved:
            moved = False
            for i in (0, 1):
                while self.ready(receivers[i]):
                    message = receivers[i].take()
                    if message is None:
                        break
                    moved = True
                    messages[i].append(message)
                    if message.op == READ_REQUEST:
                        receivers[1 - i].reads.append(message.request)
        for receiver in receivers:
            need(not receiver.data, '%d bytes are no whole FPDU, or answer nothing' % len(receiver.data))
        return (*frames, *messages, sum(sum(r.segments.values()) for r in receivers))

    @staticmethod
    def ready(receiver):
        """The next FPDU is there, and is no READ response whose request was not read so far."""
        if receiver.reads or len(receiver.data) < 4:
            return True
        return receiver.data[3] & 0xf != iwarp.READ_RESPONSE


def connections(path):
    with open(path, 'rb') as f:
        data = f.read()
    found, order = {}, []
    for link, packet in packets(data):
        tcp = tcp_of(link, packet)
        if tcp is None:
            continue
        source, target, seq, flags, payload = tcp
        if flags & 0x02:
            if not flags & 0x10:
                found[(source, target)] = found[(target, source)] = c = Connection(source, target)
                order.append(c)
            c = found.get((source, target))
            if c is not None and c.streams[c.ends.index(source)] is None:
                c.streams[c.ends.index(source)] = Stream(seq)
            continue
        c = found.get((source, target))
        need(c is not None or not payload, 'a packet of a connection whose start is not in the capture')
        if payload:
            c.streams[c.ends.index(source)].take(seq, payload)
        if flags & 0x05 and c is not None:
            c.closed = [True, True] if flags & 0x04 else [was or end == source for was, end in zip(c.closed, c.ends)]
    return [c for c in order if any(s is not None and s.data for s in c.streams)]
