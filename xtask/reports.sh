#!/bin/sh
# What outsiders' tools find in control's listeners and an appliance's: schemathesis, sslyze,
# testssl. Into FOLDER. Which listener is at which port: xtask/one.sh.
# usage: xtask/reports.sh PROGRAMS FOLDER      (./x reports; docs/reports/ says what to make of it)
set -eu
mkdir -p "$2"
programs=$(cd "$1" && pwd)
out=$(cd "$2" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
# shellcheck source=xtask/one.sh
. "$here/one.sh"
trap 'one_stop; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
# Schemathesis leaves what it remembers where it runs.
cd "$work"
one "$programs" "$work" 18443
token=$(cat "$work/token")
serve=https://localhost:18443

# Members' operations are on the fleet's address, behind certificates: the lab and tests ask them.
# Who removes tokens at random removes the one that the run has.
failed=0
schemathesis --version >"$out/schemathesis.txt"
schemathesis run "$serve/openapi.json" --tls-verify "$work/ecdsa.pem" \
    -H "Authorization: Bearer $token" \
    --exclude-tag members --exclude-path "/v1/tokens/{id}" --checks all --continue-on-failure \
    --max-examples "${EXAMPLES:-20}" --seed 1 --no-color \
    --report junit --report-junit-path "$out/schemathesis.xml" >>"$out/schemathesis.txt" 2>&1 ||
    failed=1
sed -i "s|$work|STATE|g" "$out/schemathesis.txt" "$out/schemathesis.xml"

sslyze --certinfo --sslv2 --sslv3 --tlsv1 --tlsv1_1 --tlsv1_2 --tlsv1_3 --reneg --resum \
    --heartbleed --robot --fallback --compression --openssl_ccs --elliptic_curves --http_headers \
    localhost:18443 localhost:18444 localhost:18445 localhost:18446 localhost:18447 \
    >"$out/sslyze.txt" 2>&1 || failed=1

for port in 18443 18444 18445 18446 18447; do
    testssl --quiet --warnings batch --color 0 --openssl /usr/bin/openssl "localhost:$port" || true
done >"$out/testssl.txt" 2>&1
echo "reports: in $out; findings of schemathesis: $failed" >&2
