#!/bin/sh
# What httplint and REDbot find in the answers of an appliance and in control's entry manifests.
# usage: xtask/httplint.sh PROGRAMS VENV FOLDER      (./x reports makes VENV; docs/reports/)
# Fails if one of them finds something bad or worth a warning.
set -eu
mkdir -p "$3"
programs=$(cd "$1" && pwd)
tools=$(cd "$2" && pwd)/bin
out=$(cd "$3" && pwd)
work=$(mktemp -d)
demo=
stop() {
    [ -z "$demo" ] || { kill "$demo" 2>/dev/null && wait "$demo" || true; }
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM

"$programs/nearcast" demo --json --no-browser --ports-from 19040 \
    >"$work/demo.json" 2>"$work/demo.log" </dev/null &
demo=$!
until [ -s "$work/demo.json" ]; do
    kill -0 "$demo" 2>/dev/null || { cat "$work/demo.log"; exit 1; }
    sleep 0.2
done
said() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$work/demo.json"; }
control=$(said control)
asset=$(said asset)
# Leave to play, as a service gets it. The token goes by a file: command lines can be read.
token=$(cat "$(said service_token_file)")
printf 'header = "Authorization: Bearer %s"\n' "$token" >"$work/service"
curl -sf --config "$work/service" --json "{\"asset\":\"$asset\"}" "$control/v1/playbacks" \
    >"$work/playback.json"
begins() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$work/playback.json"; }
hls="$control$(begins hls_url)&plain=1"
dash="$control$(begins dash_url)&plain=1"

# The first playlist that is named, and what it names, on the appliance that is best.
playlist=$(curl -sf "$hls" | grep -v '^#' | grep . | head -n 1)
beside=${playlist%/*}
curl -sf "$playlist" >"$work/playlist"
init=$(sed -n 's/.*EXT-X-MAP:URI="\([^"]*\)".*/\1/p' "$work/playlist" | head -n 1)
media=$(grep -v '^#' "$work/playlist" | grep . | head -n 1)

: >"$out/httplint.txt"
# lint NAME URL [CURL-ARGUMENT...]
lint() {
    name=$1
    url=$2
    shift 2
    printf '\n== %s\n' "$name" >>"$out/httplint.txt"
    curl -sik "$@" "$url" | "$tools/httplint" -n >>"$out/httplint.txt"
}
lint "HLS playlist of a rendition" "$playlist"
lint "init segment or first bytes" "$beside/${init:-$media}" -r 0-1023
lint "media, whole" "$beside/$media"
lint "media, a range" "$beside/$media" -r 1000-65535
lint "media, the end" "$beside/$media" -r -1000
lint "media, a range that is not there" "$beside/$media" -r 99999999999-
etag=$(curl -sI "$beside/$media" | tr -d '\r' | sed -n 's/^ETag: //p')
lint "media, not modified" "$beside/$media" -H "If-None-Match: $etag"
lint "media, nothing of that name" "$beside/nothing"
lint "entry playlist of control" "$hls"
lint "MPD of control" "$dash"

: >"$out/redbot.txt"
for url in "$playlist" "$beside/$media" "$hls" "$dash"; do
    name=${url##*/}
    printf '\n== %s\n' "${name%%\?*}" >>"$out/redbot.txt"
    # Its text has no levels.
    "$tools/redbot" -o har "$url" | "$tools/python" -c 'import json, sys
for note in json.load(sys.stdin)["log"]["entries"][0]["_red_messages"]:
    print("* [{level}] {summary}".format(**note))' >>"$out/redbot.txt"
done
# Tokens and grants are in URLs.
sed -i 's|/t/[^/]*/|/t/TOKEN/|g; s|grant=[^& ]*|grant=GRANT|g' "$out/httplint.txt" "$out/redbot.txt"

# Not counted: sniffpy, which both ask for the type of a content, looks for images in every video
# and then says that it is of no type at all.
found=$(cat "$out/httplint.txt" "$out/redbot.txt" | grep -E '\[(BAD|WARN)\]' |
    grep -cv "The content doesn't match the declared Content-Type" || true)
echo "reports: in $out; findings of httplint and REDbot: $found" >&2
[ "$found" -eq 0 ]
