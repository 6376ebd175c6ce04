#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What libxferclient exports: the functions of its header, under one version node, and no more;
# and what it is linked with.
# shellcheck source=tests/build/lib.sh
. "$(dirname "$0")/lib.sh"

lib=$builddir/.libs/libxferclient.so.0
header=$srcdir/client-lib/xferclient.h
map=$srcdir/client-lib/libxferclient.map
node=LIBXFERCLIENT_0.1

# Declared functions, without comments, macros, inline functions and pointers to functions.
gcc -E -P -x c "$header" | tr '\n' ' ' |
	sed 's/__attribute__ *((visibility([^)]*)))//g
		s/static inline [^;{]*{[^}]*}//g; s/[;{}]/\n/g' |
	grep -v -e typedef -e 'static inline' |
	sed -n 's/^[^(]*[ *]\(xfer_[a-z0-9_]*\) *(.*/\1/p' | sort -u >"$tmp/declared"
nm -D --defined-only --with-symbol-versions "$lib" >"$tmp/nm" || exit 1
awk '$2 != "A" { print $3 }' "$tmp/nm" | sort >"$tmp/exported"
sed -n 's/^[[:blank:]]*\(xfer_[a-z0-9_]*\);.*/\1/p' "$map" | sort >"$tmp/mapped"

compare() {
	diff "$1" "$2" >"$tmp/diff"
	local rc=$?
	[[ $rc -eq 0 ]] || sed 's/^/# /' "$tmp/diff"
	point $rc "$3"
}

[[ $(wc -l <"$tmp/declared") -ge 20 ]]
point $? "the header declares functions ($(wc -l <"$tmp/declared") found)"
sed "s/\$/@@$node/" "$tmp/declared" >"$tmp/want"
compare "$tmp/want" "$tmp/exported" "exported = declared, all under $node"
compare "$tmp/declared" "$tmp/mapped" 'the symbol map lists exactly what is declared'

readelf -d "$lib" >"$tmp/dynamic"
needed=$(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' "$tmp/dynamic" | tr '\n' ' ')
! grep -qE 'libuv|libibverbs|librdmacm|libsystemd|libisal|libconfuse' <<<"$needed" &&
	grep -q 'libprotobuf-c' <<<"$needed"
point $? "linked with neither libuv nor verbs: $needed"
grep -q 'SONAME.*\[libxferclient\.so\.0\]' "$tmp/dynamic"
point $? 'the soname is libxferclient.so.0'
if [[ -n ${XD_SANITIZERS-} ]]; then
	skip_point 'hardened' 'built with sanitizers'
else
	grep -q 'FLAGS.*BIND_NOW\|(BIND_NOW)' "$tmp/dynamic" &&
		readelf -lW "$lib" | grep -q GNU_RELRO && ! readelf -lW "$lib" | grep -q 'GNU_STACK.*E'
	point $? 'hardened: relro, bind now, no executable stack'
fi
plan
