#!/bin/sh
# What outsiders' tools find in control's listeners: schemathesis, sslyze, testssl. Into FOLDER.
# usage: xtask/reports.sh PROGRAMS FOLDER      (./x reports; docs/reports/ says what to make of it)
set -eu
mkdir -p "$2"
programs=$(cd "$1" && pwd)
out=$(cd "$2" && pwd)
work=$(mktemp -d)
control=
stop() {
    [ -z "$control" ] || kill "$control" 2>/dev/null || true
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM
# Schemathesis leaves what it remembers where it runs.
cd "$work"

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
    -addext basicConstraints=critical,CA:FALSE \
    -keyout "$work/key.pem" -out "$work/certificate.pem" 2>/dev/null
cat >"$work/control.toml" <<END
state = "$work/state"
[serve]
listen = "127.0.0.1:18443"
certificate = "$work/certificate.pem"
key = "$work/key.pem"
[fleet]
listen = "127.0.0.1:18444"
END
token=$("$programs/nearcast-control" token --config "$work/control.toml" --role admin \
    --name reports 2>"$work/token.log")
"$programs/nearcast-control" serve --config "$work/control.toml" 2>"$work/control.log" &
control=$!
serve=https://localhost:18443
until curl -s --cacert "$work/certificate.pem" "$serve/healthz" >/dev/null; do
    kill -0 "$control" 2>/dev/null || { cat "$work/control.log"; exit 1; }
    sleep 0.2
done

# Members' operations are on the fleet's address, behind certificates: the lab and tests ask them.
# Who removes tokens at random removes the one that the run has.
failed=0
schemathesis --version >"$out/schemathesis.txt"
schemathesis run "$serve/openapi.json" --tls-verify "$work/certificate.pem" \
    -H "Authorization: Bearer $token" \
    --exclude-tag members --exclude-path "/v1/tokens/{id}" --checks all --continue-on-failure \
    --max-examples "${EXAMPLES:-20}" --seed 1 --no-color \
    --report junit --report-junit-path "$out/schemathesis.xml" >>"$out/schemathesis.txt" 2>&1 ||
    failed=1
sed -i "s|$work|STATE|g" "$out/schemathesis.txt" "$out/schemathesis.xml"

sslyze --certinfo --sslv2 --sslv3 --tlsv1 --tlsv1_1 --tlsv1_2 --tlsv1_3 --reneg --resum \
    --heartbleed --robot --fallback --compression --openssl_ccs --elliptic_curves --http_headers \
    localhost:18443 localhost:18444 >"$out/sslyze.txt" 2>&1 || failed=1

for port in 18443 18444; do
    testssl --quiet --warnings batch --color 0 --openssl /usr/bin/openssl "localhost:$port" || true
done >"$out/testssl.txt" 2>&1
echo "reports: in $out; findings of schemathesis: $failed" >&2
