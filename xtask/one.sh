# One appliance and its control plane, for tools that look at it from outside. To be sourced:
#     . xtask/one.sh
#     one PROGRAMS FOLDER PORT
# makes both in FOLDER. Control is at PORT and, for members, PORT + 1. The appliance takes TLS 1.3
# at PORT + 2, TLS 1.2 too at PORT + 3, each with a certificate of ECDSA and one of RSA; a second
# one takes both at PORT + 4, with that of RSA alone. `one_stop` ends them.
one_pids=

one_stop() {
    # shellcheck disable=SC2086 # one word per process
    [ -z "$one_pids" ] || kill $one_pids 2>/dev/null || true
    one_pids=
}

one() {
    one_programs=$1 one_work=$2 one_port=$3
    one_serve=https://localhost:$one_port
    for kind in ecdsa rsa; do
        case $kind in
        ecdsa) set -- ec -pkeyopt ec_paramgen_curve:P-256 ;;
        rsa) set -- rsa:2048 ;;
        esac
        openssl req -x509 -newkey "$@" -nodes -days 30 \
            -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
            -addext basicConstraints=critical,CA:FALSE \
            -keyout "$one_work/$kind.key" -out "$one_work/$kind.pem" 2>/dev/null
    done
    cat >"$one_work/control.toml" <<END
state = "$one_work/control"
[serve]
listen = "127.0.0.1:$one_port"
certificate = "$one_work/ecdsa.pem"
key = "$one_work/ecdsa.key"
[fleet]
listen = "127.0.0.1:$((one_port + 1))"
END
    (umask 077 && "$one_programs/nearcast-control" token --config "$one_work/control.toml" \
        --role admin --name reports >"$one_work/token" 2>"$one_work/token.log")
    "$one_programs/nearcast-control" serve --config "$one_work/control.toml" \
        2>"$one_work/control.log" &
    one_pids=$!
    until curl -s --cacert "$one_work/ecdsa.pem" "$one_serve/healthz" >/dev/null; do
        kill -0 "$one_pids" 2>/dev/null || { cat "$one_work/control.log" >&2; return 1; }
        sleep 0.2
    done
    one_put /v1/sites/s1 '{"prefixes": ["0.0.0.0/0"]}'
    one_put /v1/appliances/a1 '{"site": "s1"}'
    one_put /v1/appliances/a2 '{"site": "s1"}'
    second="second_certificate = \"$one_work/rsa.pem\"
second_key = \"$one_work/rsa.key\""
    one_appliance a1 ecdsa "$second" $((one_port + 2)) $((one_port + 3))
    one_appliance a2 rsa "" $((one_port + 5)) $((one_port + 4))
}

one_put() {
    (umask 077 && printf 'header = "Authorization: Bearer %s"\n' "$(cat "$one_work/token")" \
        >"$one_work/service")
    curl -sS --fail-with-body --cacert "$one_work/ecdsa.pem" --config "$one_work/service" \
        -X PUT --json "$2" "$one_serve$1" >/dev/null
}

# one_appliance NAME CERTIFICATE LINES NEWER OLDER
one_appliance() {
    mkdir -p "$one_work/$1/drive"
    cat >"$one_work/$1.toml" <<END
name = "$1"
state = "$one_work/$1/state"
[serve]
listen = ["127.0.0.1:$4", "127.0.0.1:$5"]
tls12 = ["127.0.0.1:$5"]
base_url = "https://localhost:$4"
certificate = "$one_work/$2.pem"
key = "$one_work/$2.key"
$3
workers = 1
[drives]
paths = ["$one_work/$1/drive"]
[control]
url = "https://localhost:$((one_port + 1))"
[process]
sandbox = "off"
END
    "$one_programs/nearcast-appliance" format "$one_work/$1/drive" >/dev/null 2>&1
    NEARCAST_CONTROL=$one_serve NEARCAST_CA=$one_work/ecdsa.pem \
        NEARCAST_TOKEN_FILE=$one_work/token \
        "$one_programs/nearcast" appliance enrol "$1" |
        "$one_programs/nearcast-appliance" enrol --config "$one_work/$1.toml" >/dev/null
    "$one_programs/nearcast-appliance" serve --config "$one_work/$1.toml" \
        2>"$one_work/$1.log" &
    one_pids="$one_pids $!"
    until curl -sk "https://localhost:$5/" >/dev/null; do
        kill -0 $! 2>/dev/null || { cat "$one_work/$1.log" >&2; return 1; }
        sleep 0.2
    done
}
