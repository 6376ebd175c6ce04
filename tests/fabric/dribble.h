/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_TEST_DRIBBLE_H
#define FABRIC_TEST_DRIBBLE_H

/*
 * Sockets that take and give a few bytes at a time, whatever they could: sendmsg(2), recvmsg(2),
 * send(2) and recv(2) of the fabric are replaced by the linker (--wrap). 1: one byte at a time, so
 * that every cut there can be is made; more: 1 to so many, at random; 0: as they are.
 */
void dribble(unsigned int bytes);

#endif
