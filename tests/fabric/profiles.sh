#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The contract once more, under each profile of the iwarp fabric.
status=0
if [ -n "${XD_SANITIZERS-}" ] && [ "${XFER_TEST_FULL:-0}" = 0 ]; then
	echo "with sanitizers under --full only: wire.sh runs the same code"
	exit 77
fi
profiles=$(tests/fabric/run --list-profiles) || exit 1
[ -n "$profiles" ] || exit 1
for profile in $profiles; do
	echo "# profile $profile"
	tests/fabric/run --fabric iwarp --profile "$profile" || status=1
done
exit $status
