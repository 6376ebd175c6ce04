#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The public header compiles alone, as old and new C and C++, with both compilers and without
# a warning; every internal header compiles alone as well.
# shellcheck source=tests/build/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$tmp" || exit 1
printf '#include <xferclient.h>\n#include <xferclient.h>\nint main(void) { return 0; }\n' >a.c
cp a.c a.cc

try() {
	local compiler=$1
	shift
	local text="xferclient.h alone: $compiler $1"
	if ! command -v "$compiler" >/dev/null; then
		skip_point "$text" "no $compiler"
		return
	fi
	"$compiler" -Wall -Wextra -Werror -pedantic -fsyntax-only -I"$srcdir/client-lib" "$@" 2>err
	local rc=$?
	sed 's/^/# /' err
	point $rc "$text"
}

for std in c11 c17; do
	try gcc -std=$std -Wstrict-prototypes a.c
	try clang -std=$std -Wstrict-prototypes a.c
done
for std in c++11 c++17; do
	try g++ -std=$std a.cc
	try clang++ -std=$std a.cc
done

# Proof that the flags bite.
printf '#include <xferclient.h>\nint f() { return 0; }\nint g(int unused) { return f(); }\n' >bad.c
! gcc -std=c11 -Wall -Wextra -Werror -pedantic -fsyntax-only -I"$srcdir/client-lib" bad.c 2>err
point $? 'a warning would be seen'

read -ra deps <<<"$(pkg-config --cflags libuv libibverbs libprotobuf-c libsystemd libconfuse \
	smartcols 2>/dev/null)"
broken=
while IFS= read -r header; do
	printf '#include "%s"\n' "$header" >one.c
	gcc -std=gnu17 -Wall -Wextra -Werror -fsyntax-only -I"$srcdir" -I"$builddir" \
		-I"$srcdir/client-lib" "${deps[@]}" one.c 2>err ||
		{ sed 's/^/# /' err; broken+=" $header"; }
done < <(sources "$srcdir" -name '*.h' -path './common/*' -o -name '*.h' -path './proto/*' -o \
	-name '*.h' -path './daemon/*' -o -name '*.h' -path './client-lib/*')
[[ -z $broken ]]
point $? "every internal header compiles alone${broken:+, but not:$broken}"
plan
