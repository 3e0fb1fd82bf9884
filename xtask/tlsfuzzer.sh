#!/bin/sh
# tlsfuzzer's scripts against an appliance, and a player of 2017 that has OpenSSL 1.0.2.
# usage: xtask/tlsfuzzer.sh PROGRAMS SOURCE PYTHON OUT      (./x tlsfuzzer SOURCE [OUT])
set -eu
here=$(dirname "$0")
mkdir -p "$4"
programs=$(cd "$1" && pwd)
out=$(cd "$4" && pwd)
work=$(mktemp -d)
# shellcheck source=xtask/one.sh
. "$here/one.sh"
trap 'one_stop; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
one "$programs" "$work" 18450
"$3" "$here/tlsfuzzer.py" "$here/tlsfuzzer.txt" "$2" 18450 "$out/tlsfuzzer" |
    tee "$out/tlsfuzzer.txt"
tail -n 1 "$out/tlsfuzzer.txt" | grep -q '^\([0-9]*\) of \1 scripts pass'
