#!/usr/bin/env bash
# A fleet on Flower with TLS and authenticated nodes, one command for each step. docs/reference/flower.md explains them.
#
#   flower.sh certificates    once: a certificate authority, and the certificate of the SuperLink
#   flower.sh superlink       the server, which keeps running
#   flower.sh connect         once: tell the command flwr where the server is
#   flower.sh key NAME        at each site, once: the key of its node
#   flower.sh register NAME   at the server, once for each site: accept the public key of its node
#   flower.sh supernode NAME  at each site: its node, which keeps running
#   flower.sh run APP ...     start a run of an app; more options go to flwr run
set -euo pipefail

HOST=${HOST:-127.0.0.1}           # where nodes reach the SuperLink: a name or an address
BIND=${BIND:-$HOST}               # where it listens, if that is another address, such as 0.0.0.0
PORT=${PORT:-8000}                # its port
NODE_PORT=${NODE_PORT:-9094}      # a free port of the node's machine, for the node itself
FLEET=${FLEET:-$HOME/fleet}       # certificates, keys, the SuperLink's database, the trials of sites
NODE_CONFIG=${NODE_CONFIG:-}      # more for --node-config, such as data="/srv/data"
FLEET=$(realpath -m "$FLEET")
export FEDBO_STATE=${FEDBO_STATE:-$FLEET/state} FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1

certificates() {
    mkdir -p "$FLEET" && chmod 700 "$FLEET" && cd "$FLEET"
    refuse_if_there ca.key
    case $HOST in *[!0-9.]*) name=DNS:$HOST ;; *) name=IP:$HOST ;; esac
    openssl req -x509 -newkey rsa:3072 -nodes -days 3650 -subj "/CN=fleet" -keyout ca.key -out ca.crt
    openssl req -newkey rsa:3072 -nodes -subj "/CN=$HOST" -keyout server.key -out server.csr
    openssl x509 -req -days 825 -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt \
        -extfile <(echo "subjectAltName=$name,IP:127.0.0.1,DNS:localhost")
}

superlink() {
    cd "$FLEET"
    exec flower-superlink --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key \
        --enable-supernode-auth --host "$BIND" --port "$PORT" --database "$FLEET/superlink.db" \
        --disable-runtime-dependency-installation
}

connect() {
    flwr_home=${FLWR_HOME:-$HOME/.flwr}
    mkdir -p "$flwr_home"
    if grep -qsF '[superlink.fleet]' "$flwr_home/config.toml"; then
        echo "$flwr_home/config.toml knows a server called fleet: change its address there" >&2
        exit 1
    fi
    printf '\n[superlink.fleet]\naddress = "%s:%s"\nroot-certificates = "%s"\n' \
        "$HOST" "$PORT" "$FLEET/ca.crt" >> "$flwr_home/config.toml"
}

key() {
    mkdir -p "$FLEET" && chmod 700 "$FLEET"
    refuse_if_there "$FLEET/$1"
    ssh-keygen -q -t ecdsa -b 384 -N "" -C "$1" -f "$FLEET/$1"
}

register() {
    flwr supernode register "$FLEET/$1.pub" fleet --name "$1"
}

supernode() {
    cd "$FLEET"
    exec flower-supernode --root-certificates ca.crt --superlink "$HOST:$PORT" --port "$NODE_PORT" \
        --auth-supernode-private-key "$FLEET/$1" \
        --node-config "name=\"$1\" folder=\"$FLEET/sites\" $NODE_CONFIG"
}

run() {
    app=$1 && shift
    flwr run "$app" fleet --stream "$@"
}

refuse_if_there() {
    if [ -e "$1" ]; then
        echo "$1 is there already, and others rely on it: move it away if you really want a new one" >&2
        exit 1
    fi
}

usage() {
    sed -n 's/^#  *\(flower.sh .*\)/\1/p' "$0" >&2
    exit 2
}

case "${1:-} $#" in
    "certificates 1" | "superlink 1" | "connect 1") "$1" ;;
    "key 2" | "register 2" | "supernode 2") "$1" "$2" ;;
    run\ [2-9]*) "$@" ;;
    *) usage ;;
esac
