#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The contract through TCP: as it comes, with a CRC, and with sockets that take and give a few bytes at a
# time. At one byte a time, those that move little: every cut that there can be is made.
status=0
run() {
	echo "# the wire, $*"
	tests/fabric/run --fabric wire "$@" || status=1
}
run
run --crc
run --dribble 100
run --dribble 5000 --crc
for tests in 'private data' 'SEND with' 'READs' 'bounds of' 'lists' 'in order'; do
	run --dribble 1 --only "$tests"
	run --dribble 1 --crc --only "$tests"
done
exit $status
