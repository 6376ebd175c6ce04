#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Runs each fuzzer of XD_FUZZERS (paths below XD_BUILDDIR): its corpus first, then new inputs
# for XD_FUZZ_SECONDS. What it finds is written to fuzz-NAME-* in the build folder.
set -u

seconds=${XD_FUZZ_SECONDS-10}
builddir=${XD_BUILDDIR-.}
srcdir=${XD_SRCDIR-.}
read -ra fuzzers <<<"${XD_FUZZERS-}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "1..${#fuzzers[@]}"
n=0
bad=0
for fuzzer in "${fuzzers[@]}"; do
	n=$((n + 1))
	name=${fuzzer##*/}
	mkdir "$work/$name"
	# The first folder is where new inputs go; it must not be the one in the sources.
	dirs=("$work/$name")
	[[ -d $srcdir/tests/fuzz/corpus/$name ]] && dirs+=("$srcdir/tests/fuzz/corpus/$name")
	if timeout -k 5 $((seconds + 60)) "$builddir/$fuzzer" -max_total_time="$seconds" \
		-timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="$builddir/fuzz-$name-" "${dirs[@]}" >"$work/log" 2>&1 </dev/null; then
		echo "# $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log") inputs"
		echo "ok $n - $name"
	else
		tail -n 40 "$work/log"
		echo "not ok $n - $name"
		bad=1
	fi
done
exit $bad
