#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# make install puts down what a packager expects, and a program builds against it.
# shellcheck source=tests/build/lib.sh
. "$(dirname "$0")/lib.sh"

root=$tmp/root
make -s -C "$builddir" install DESTDIR="$root" >"$tmp/log" 2>&1 </dev/null
rc=$?
[[ $rc -eq 0 ]] || tail -n 30 "$tmp/log" | sed 's/^/# /'
point $rc 'make install DESTDIR=...'

# variable NAME: its value in the Makefile, references to other variables resolved.
variable() {
	local value
	value=$(sed -n "s/^$1 = //p" "$builddir/Makefile" | head -n 1)
	while [[ $value =~ \$[{\(]([a-z_]+)[}\)] ]]; do
		value=${value/"${BASH_REMATCH[0]}"/$(variable "${BASH_REMATCH[1]}")}
	done
	echo "$value"
}
bindir=$(variable bindir)
sbindir=$(variable sbindir)
libdir=$(variable libdir)
includedir=$(variable includedir)

for file in "$sbindir/rdmaxferd" "$bindir/xferctl" "$libdir/libxferclient.so" \
	"$libdir/libxferclient.so.0" "$includedir/xferclient.h" \
	"$libdir/pkgconfig/libxferclient.pc"; do
	[[ -e $root$file ]]
	point $? "installed: $file"
done
stray=$(cd "$root" && find . -name '*.la' -not -name libxferclient.la -o -name 'test_*')
[[ -z $stray ]]
point $? "nothing internal installed${stray:+: $stray}"

# A program as a user would build it.
cat >"$tmp/user.c" <<'END'
#include <xferclient.h>
#include <stdio.h>

int main(void)
{
	return puts(xfer_version()) < 0;
}
END
export PKG_CONFIG_PATH=$root$libdir/pkgconfig
version=$(pkg-config --modversion libxferclient)
[[ $version == "$(sed -n 's/^PACKAGE_VERSION = //p' "$builddir/Makefile")" ]]
point $? "pkg-config knows its version: $version"
read -ra flags <<<"$(pkg-config --define-variable=prefix="$root$(variable prefix)" \
	--cflags --libs libxferclient)"
read -ra compiler <<<"${XD_CC:-gcc}"
[[ -z ${XD_SANITIZERS-} ]] || compiler+=("-fsanitize=$XD_SANITIZERS")
"${compiler[@]}" -Wall -Werror "$tmp/user.c" -Wl,--no-as-needed "${flags[@]}" -o "$tmp/user" \
	>"$tmp/log" 2>&1 && LD_LIBRARY_PATH=$root$libdir "$tmp/user" >"$tmp/log" 2>&1 &&
	grep -qx "$version" "$tmp/log"
rc=$?
[[ $rc -eq 0 ]] || sed 's/^/# /' "$tmp/log"
point $rc 'a program builds with the flags of pkg-config, and runs'

if [[ -x $root$sbindir/rdmaxferd ]]; then
	for program in "$sbindir/rdmaxferd" "$bindir/xferctl"; do
		LD_LIBRARY_PATH=$root$libdir timeout 20 "$root$program" --version >"$tmp/log" 2>&1
		rc=$?
		[[ $rc -eq 0 ]] && grep -qF "$version" "$tmp/log"
		point $? "${program##*/} --version says $version"
	done
fi
plan
