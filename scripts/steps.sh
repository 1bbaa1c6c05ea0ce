#!/bin/sh
# Makes each of the targets in turn, and prints a line for each of them. What make prints is shown only where it fails.
# MAKE is make's command.
set -eu

log=$(mktemp)
trap 'rm -f "$log"' EXIT
n=0
for target; do
	n=$((n + 1))
	echo "$n of $#: ${target##*/}"
	if ! ${MAKE:-make} --no-print-directory "$target" >"$log" 2>&1; then
		tail -n 40 "$log" >&2
		exit 1
	fi
done
