#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# configure without its dependencies says all of what is missing, once, by Debian package.
# shellcheck source=tests/build/lib.sh
. "$(dirname "$0")/lib.sh"

if [[ -e $srcdir/config.status ]]; then
	echo 'the tree is configured in place'
	exit 77
fi
mkdir "$tmp/b" && cd "$tmp/b" || exit 1

env -u PKG_CONFIG_PATH PKG_CONFIG_LIBDIR=/nonexistent PROTOC_C= \
	"$srcdir/configure" ac_cv_path_PROTOC_C= ac_cv_header_uthash_h=no >out 2>err </dev/null
rc=$?
[[ $rc -ne 0 ]]
point $? "configure fails ($rc)"
[[ $(grep -c 'missing:' err) -eq 1 ]]
point $? 'it says what is missing once'
[[ ! -e Makefile ]]
point $? 'it makes no Makefile'
for package in libuv1-dev libibverbs-dev libprotobuf-c-dev libsystemd-dev libisal-dev \
	libconfuse-dev libsmartcols-dev uthash-dev; do
	grep 'missing:' err | grep -q "(Debian: $package)" && grep -q "apt-get install .*$package" err
	point $? "it names $package"
	"$srcdir/contrib/deps" --list build | grep -qx "$package"
	point $? "contrib/deps knows $package"
done
[[ $bad_points -eq 0 ]] || sed 's/^/# /' err
plan
