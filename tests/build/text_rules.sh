#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Each source names its licence; no source holds a note to its author; lines end by column 100.
# shellcheck source=tests/build/lib.sh
. "$(dirname "$0")/lib.sh"

# Split, so that this file does not find itself.
words='\b(TO''DO|FIX''ME|X''XX)\b|\bfor n''ow\b|\bplace''holder|not (yet )?imple''mented|\bDESI''GN [0-9I]'

code() {
	sources "$1" -name '*.[ch]' -o -name '*.proto' -o -name '*.def' -o -name '*.sh' -o \
		-name '*.py' -o -name 'Makefile.inc' -o -name 'Makefile.am' -o -name '*.ac' -o \
		-name 'xd.m4' -o -name '*.map' -o -path './contrib/*' -o -path './.ci/*' |
		grep -v '^LICENSES/'
}

no_licence() {
	code "$1" | (cd "$1" && tr '\n' '\0' | xargs -0r awk -v \
		want='SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause' '
		FNR == 1 { if (file && !seen) print file; file = FILENAME; seen = 0 }
		FNR <= 2 && index($0, want) { seen = 1 }
		END { if (file && !seen) print file }')
}

notes() {
	{
		code "$1"
		sources "$1" -name '*.md' -o -name '*.scd' -o -name '*.in' -path './systemd/*'
	} | (cd "$1" && tr '\n' '\0' | xargs -0r grep -nHiE "$words")
}

# A message in quotes stays in one piece, for those who search for it.
long_lines() {
	sources "$1" -name '*.[ch]' | (cd "$1" && /usr/bin/python3 -c '
import sys
for name in sys.stdin.read().split():
    for n, line in enumerate(open(name, encoding="utf-8"), 1):
        if len(line.rstrip("\n").expandtabs(8)) > 100 and not line.lstrip().startswith("\""):
            print("%s:%d" % (name, n))')
}

expect_none() {
	[[ -z $1 ]] || head -n 50 <<<"$1" | sed 's/^/# /'
	[[ -z $1 ]]
	point $? "$2"
}

bad=$tmp/bad
mkdir -p "$bad/common"
echo 'int a;' >"$bad/common/a.c"
printf '/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */\n/* %s: more */\n' 'TO''DO' \
	>"$bad/common/b.c"
printf '/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */\n%s/* %s */\n' \
	"$(printf '\t\t\t\t\t\t\t\t')" 'too far to the right by one or two columns' >"$bad/common/c.c"
[[ $(no_licence "$bad") == common/a.c && $(notes "$bad" | cut -d: -f1) == common/b.c &&
	$(long_lines "$bad") == common/c.c:2 ]]
point $? 'each rule catches a file that breaks it, and only that'

expect_none "$(no_licence "$srcdir")" 'every source names its licence in its first lines'
expect_none "$(notes "$srcdir")" 'no source holds a note to its author'
expect_none "$(long_lines "$srcdir")" 'lines of C end by column 100'
plan
