# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2001
#
# What the tests of this folder share: TAP, a temporary folder, and the list of sources.
set -u
unset MAKEFLAGS MAKELEVEL MFLAGS
export LC_ALL=C.UTF-8

srcdir=${XD_SRCDIR-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
builddir=${XD_BUILDDIR-$srcdir}
tmp=$(mktemp -d)
points=0
bad_points=0
trap 'rm -rf "$tmp"' EXIT

# point RC TEXT: one TAP point, good if RC is 0.
point() {
	points=$((points + 1))
	if [[ $1 -eq 0 ]]; then
		echo "ok $points - $2"
	else
		echo "not ok $points - $2"
		bad_points=$((bad_points + 1))
	fi
}

skip_point() {
	points=$((points + 1))
	echo "ok $points - $1 # SKIP $2"
}

# plan: the last line of a test.
plan() {
	echo "1..$points"
	[[ $bad_points -eq 0 ]]
	exit
}

# sources ROOT FIND-TESTS...: files of the tree, relative to ROOT, without what builds leave in it.
sources() {
	local root=$1 dir
	shift
	local prune=(-path ./.git -o -path ./build -o -path ./build-aux -o -path ./autom4te.cache)
	while IFS= read -r dir; do
		prune+=(-o -path "${dir%/config.status}")
	done < <(cd "$root" && find . -mindepth 2 -name config.status -not -path './build/*')
	(cd "$root" && find . \( "${prune[@]}" \) -prune -o -type f -not -name '*.pb-c.[ch]' \
		-not -path ./config.h -not -name '*_pb2.py' \
		\( "$@" \) -print | sed 's|^\./||' | sort)
}
