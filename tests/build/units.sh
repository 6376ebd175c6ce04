#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# systemd takes the units as they are installed, without a warning.
# shellcheck source=tests/build/lib.sh
. "$(dirname "$0")/lib.sh"

if ! command -v systemd-analyze >/dev/null; then
	echo 'no systemd-analyze (Debian: systemd)'
	exit 77
fi

mkdir "$tmp/units"
shopt -s nullglob
units=("$builddir"/systemd/*.service "$builddir"/systemd/*.socket)
[[ ${#units[@]} -ge 2 ]]
point $? "there are units (${#units[@]} found)"

for unit in "${units[@]}"; do
	! grep -n '@[a-zA-Z_]*@' "$unit"
	point $? "${unit##*/}: everything is filled in"
	# The program is not installed where the unit says; that it is there is install's matter.
	sed -E 's|^(Exec[A-Za-z]*=[-+!:@]*)[^ ]*|\1/bin/true|' "$unit" >"$tmp/units/${unit##*/}"
done
for unit in "$tmp"/units/*; do
	SYSTEMD_UNIT_PATH="$tmp/units:" timeout 60 systemd-analyze verify --man=no "$unit" \
		>"$tmp/log" 2>&1
	rc=$?
	# What it says of other units of the machine is not about ours.
	said=$(grep -F "$tmp/units" "$tmp/log"; grep -E '^(rdmaxferd|[^ ]*Unknown)' "$tmp/log")
	[[ $rc -eq 0 && -z $said ]] || sed 's/^/# /' "$tmp/log"
	[[ $rc -eq 0 && -z $said ]]
	point $? "${unit##*/}: systemd-analyze verify"
done

# It would see a mistake.
printf '[Service]\nExecStart=/bin/true\nNoSuchKey=1\n' >"$tmp/bad.service"
timeout 60 systemd-analyze verify --man=no "$tmp/bad.service" 2>&1 | grep -q NoSuchKey
point $? 'a mistake would be seen'
plan
