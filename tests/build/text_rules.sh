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
	local file
	while IFS= read -r file; do
		head -n 2 "$1/$file" | grep -q \
			'SPDX-License-Identifier: GPL-2\.0-only OR BSD-2-Clause' || echo "$file"
	done < <(code "$1")
}

notes() {
	{
		code "$1"
		sources "$1" -name '*.md' -o -name '*.scd' -o -name '*.in' -path './systemd/*'
	} | (cd "$1" && tr '\n' '\0' | xargs -0r grep -nHiE "$words")
}

long_lines() {
	sources "$1" -name '*.[ch]' | while IFS= read -r file; do
		expand "$1/$file" | awk -v f="$file" 'length($0) > 100 { print f ":" NR }'
	done
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
