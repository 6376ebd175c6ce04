#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Who may include whom, by direct #include lines.
#
#   common <- proto <- (daemon, client-lib); tools, examples, bench see the public header only.
#   daemon/core: no system call, no clock, hence a short list of system headers.
#   daemon/fabric: no libuv, nothing of core or io. daemon/io: no verbs.
#   Descriptors are passed by proto alone; libuv is for daemon/io and main.c alone.
# shellcheck source=tests/build/lib.sh
. "$(dirname "$0")/lib.sh"

# What core may take from the system: types, strings, memory and the vocabulary of verbs.
core_system=' assert.h errno.h inttypes.h limits.h stdalign.h stdarg.h stdbool.h stddef.h stdint.h
	stdio.h stdlib.h string.h sys/queue.h sys/types.h sys/uio.h uthash.h utlist.h
	infiniband/verbs.h '

# allowed FILE INCLUDE: INCLUDE with its quotes or angle brackets.
allowed() {
	local file=$1 inc=$2 name
	name=${inc:1:-1}
	case $inc in
	'"config.h"') return 0 ;;
	esac
	case $file in
	common/*)
		case $inc in
		'"common/'*) ;;
		'"'* | '<uv.h>' | '<infiniband/'* | '<xferclient.h>' | '<systemd/'*) return 1 ;;
		esac
		;;
	proto/*)
		case $inc in
		'"common/'* | '"proto/'*) ;;
		'"'* | '<uv.h>' | '<infiniband/'* | '<xferclient.h>' | '<systemd/'*) return 1 ;;
		esac
		;;
	daemon/core/*)
		case $inc in
		'"common/'* | '"proto/'* | '"daemon/core/'* | '"daemon/engine.h"') ;;
		'"daemon/fabric/fabric.h"') ;;
		'"'*) return 1 ;;
		*) [[ ${core_system//[$'\n\t']/ } == *" $name "* ]] ;;
		esac
		;;
	daemon/fabric/*)
		case $inc in
		'"common/'* | '"proto/'* | '"daemon/fabric/'* | '"daemon/engine.h"') ;;
		'"'* | '<uv.h>' | '<xferclient.h>' | '<systemd/'*) return 1 ;;
		esac
		;;
	daemon/io/*)
		case $inc in
		'"common/'* | '"proto/'* | '"daemon/'*) ;;
		'"'* | '<infiniband/'* | '<xferclient.h>') return 1 ;;
		esac
		;;
	daemon/*)
		case $inc in
		'"common/'* | '"proto/'* | '"daemon/'*) ;;
		'"'* | '<infiniband/'* | '<xferclient.h>') return 1 ;;
		esac
		;;
	client-lib/*)
		case $inc in
		'"common/'* | '"proto/'* | '"client-lib/'* | '"xferclient.h"') ;;
		'"'* | '<uv.h>' | '<infiniband/'* | '<systemd/'*) return 1 ;;
		esac
		;;
	tools/*)
		case $inc in
		'"common/'* | '"tools/'*) ;;
		'"'* | '<uv.h>' | '<infiniband/'* | '<systemd/'* | '<protobuf-c/'*) return 1 ;;
		esac
		;;
	examples/* | bench/*)
		case $inc in
		'"'"${file%%/*}/"*) ;;
		'"'* | '<uv.h>' | '<infiniband/'* | '<systemd/'* | '<protobuf-c/'*) return 1 ;;
		esac
		;;
	esac
}

# check ROOT: prints each include that breaks a rule.
check() {
	local root=$1 line file inc
	while IFS= read -r line; do
		file=${line%%:*}
		inc=${line#*:}
		inc=${inc#*include}
		inc=${inc//[[:blank:]]/}
		allowed "$file" "$inc" || echo "$file includes $inc"
	done < <(cd "$root" && sources . -name '*.[ch]' -o -name '*.def' | tr '\n' '\0' |
		xargs -0r grep -HoE '^[[:blank:]]*#[[:blank:]]*include[[:blank:]]*(<[^>]*>|"[^"]*")')
	(cd "$root" && sources . -name '*.[ch]' | grep -v -e '^proto/' -e '^tests/' | tr '\n' '\0' |
		xargs -0r grep -HoE 'CMSG_(FIRSTHDR|NXTHDR|DATA)' | sort -u)
}

# The rules bite: each of these is to be reported, and nothing else.
bad=$tmp/bad
put() {
	mkdir -p "$bad/$(dirname "$1")"
	printf '%s\n' "$2" >>"$bad/$1"
}
put common/a.c '#include "proto/ring.h"'
put common/b.c '#include <uv.h>'
put proto/a.c '#include "daemon/engine.h"'
put daemon/core/a.c '#include <unistd.h>'
put daemon/core/b.c '#  include <sys/mman.h>'
put daemon/core/c.c '#include <time.h>'
put daemon/core/d.c '#include "daemon/io/x.h"'
put daemon/core/e.c '#include "daemon/fabric/iwarp/iwarp.h"'
put daemon/fabric/a.c '#include <uv.h>'
put daemon/fabric/iwarp/b.c '#include "daemon/core/core.h"'
put daemon/io/a.c '#include <infiniband/verbs.h>'
put daemon/io/b.c '	if (CMSG_FIRSTHDR(&msg))'
put client-lib/a.c '#include <uv.h>'
put client-lib/b.c '#include "daemon/engine.h"'
put tools/a.c '#include "proto/ring.h"'
put examples/a.c '#include "common/heap.h"'
put bench/a.c '#include "proto/client.pb-c.h"'
want=$(cd "$bad" && find . -type f | sed 's|^\./||' | sort)
put daemon/core/good.c '#include <string.h>'
put daemon/core/good.c '#include "daemon/fabric/fabric.h"'
put daemon/io/good.c '#include <uv.h>'
put daemon/fabric/good.c '#include <infiniband/verbs.h>'
put tools/good.c '#include <xferclient.h>'
put bench/good.c '#include "bench/common.h"'
put examples/good.c '#include <xferclient.h>'
got=$(check "$bad" | sed 's/[: ].*//' | sort)
[[ $got == "$want" ]]
rc=$?
[[ $rc -eq 0 ]] || diff <(echo "$want") <(echo "$got") | sed 's/^/# /'
point $rc 'each rule catches a file that breaks it, and lets good ones pass'

found=$(check "$srcdir")
[[ -z $found ]] || sed 's/^/# /' <<<"$found"
[[ -z $found && -n $(sources "$srcdir" -path './daemon/core/*.h') ]]
point $? 'the tree keeps the rules'
plan
