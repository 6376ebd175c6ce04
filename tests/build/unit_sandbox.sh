#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The service is confined as far as its work allows, and its users and directories come out right.
# shellcheck source=tests/build/lib.sh
. "$(dirname "$0")/lib.sh"

if ! command -v systemd-analyze >/dev/null; then
	echo 'no systemd-analyze (Debian: systemd)'
	exit 77
fi

service=$tmp/rdmaxferd.service
sed -E 's|^(Exec[A-Za-z]*=[-+!:@]*)[^ ]*|\1/bin/true|' "$builddir/systemd/rdmaxferd.service" \
	>"$service"

# exposed FILE: beyond 2.0 of 10, as systemd-analyze security counts.
exposed() {
	! timeout 60 systemd-analyze security --offline=true --threshold=20 "$1" >"$tmp/log" 2>&1
}
! exposed "$service"
rc=$?
sed -n 's/^→ /# /p' "$tmp/log"
point $rc 'exposure is at most 2.0'
sed '/^ProtectSystem=/d; /^CapabilityBoundingSet=/d' "$service" >"$tmp/lax.service"
exposed "$tmp/lax.service"
point $? 'a laxer service would be seen'

for line in 'Type=notify' 'User=rdmaxfer' 'LimitMEMLOCK=infinity' 'CapabilityBoundingSet=' \
	'NoNewPrivileges=yes' 'WatchdogSec=30' 'RuntimeDirectoryPreserve=yes' \
	'DeviceAllow=char-infiniband* rw'; do
	grep -qxF "$line" "$service"
	point $? "it says $line"
done
! grep -nE '^(PrivateUsers|PrivateDevices|PrivateNetwork|RuntimeDirectory)=' "$service"
point $? 'it says nothing that would break the service'

for kind in client admin; do
	socket=$builddir/systemd/rdmaxferd.socket
	[[ $kind == client ]] || socket=$builddir/systemd/rdmaxferd-admin.socket
	grep -qx "ListenSequentialPacket=/run/rdmaxferd/$kind/sock" "$socket" &&
		grep -qx "FileDescriptorName=$kind" "$socket" && grep -qx 'SocketMode=0660' "$socket"
	point $? "the $kind socket is where clients look, under the name that the daemon knows"
done

if [[ $(id -u) -ne 0 ]] || ! command -v systemd-sysusers systemd-tmpfiles >/dev/null; then
	skip_point 'users, groups and directories' 'needs root, systemd-sysusers and systemd-tmpfiles'
	plan
fi
root=$tmp/root
mkdir -p "$root/etc" "$root/run"
timeout 60 systemd-sysusers --root="$root" "$srcdir/systemd/sysusers.d/rdmaxferd.conf" \
	>"$tmp/log" 2>&1 && grep -q '^rdmaxfer:' "$root/etc/passwd" &&
	grep -q '^rdmaxfer-admin:' "$root/etc/group"
rc=$?
[[ $rc -eq 0 ]] || sed 's/^/# /' "$tmp/log"
point $rc 'sysusers.d makes the user and the groups'

timeout 60 systemd-tmpfiles --create --root="$root" "$srcdir/systemd/tmpfiles.d/rdmaxferd.conf" \
	>"$tmp/log" 2>&1
rc=$?
[[ $rc -eq 0 ]] || sed 's/^/# /' "$tmp/log"
point $rc 'tmpfiles.d makes the directories'
gid() {
	sed -n "s/^$1:[^:]*:\([0-9]*\):.*/\1/p" "$root/etc/group"
}
expected=$(printf '755 0 0\n750 0 %s\n750 0 %s' "$(gid rdmaxfer)" "$(gid rdmaxfer-admin)")
[[ $(stat -c '%a %u %g' "$root"/run/rdmaxferd{,/client,/admin}) == "$expected" ]]
point $? 'they are the right ones for the right people'
plan
