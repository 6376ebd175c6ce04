#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Every manual page renders without a warning of man's, has the usual sections, and every program has one.
# shellcheck source=tests/build/lib.sh
. "$(dirname "$0")/lib.sh"

if ! command -v man >/dev/null || ! command -v scdoc >/dev/null; then
	echo 'no man or no scdoc (Debian: man-db scdoc)'
	exit 77
fi

for page in rdmaxferd.8 xferctl.1; do
	[[ -e $srcdir/docs/man/$page.scd ]]
	point $? "there is a page $page"
done

shopt -s nullglob
for source in "$srcdir"/docs/man/*.scd; do
	page=${source##*/}
	page=${page%.scd}
	[[ -s $builddir/docs/man/$page ]]
	point $? "$page is made by the build"
	LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z \
		"$builddir/docs/man/$page" 2>"$tmp/err" >/dev/null
	[[ ! -s $tmp/err ]] || sed 's/^/# /' "$tmp/err"
	[[ ! -s $tmp/err ]]
	point $? "$page renders without a warning"
	grep -qx '.SH NAME' "$builddir/docs/man/$page" &&
		grep -q '^.SH \(SYNOPSIS\|DESCRIPTION\)' "$builddir/docs/man/$page"
	point $? "$page has a name and a synopsis or description"
done
plan
