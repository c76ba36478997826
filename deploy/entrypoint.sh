#!/bin/sh
# Starts a node, or runs one of RabbitMQ's tools or another program when that is named. The environment
# (RABBITMQ_DEFAULT_USER, *_FILE, RABBITMQ_NODENAME, ...) is read by the node itself.
set -eu

name=$(basename "$0")
if [ "$name" = docker-entrypoint.sh ]; then
    name=${1:-rabbitmq-server}
    [ $# -eq 0 ] || shift
fi

case "$name" in
rabbitmq-server)
    if [ -z "${RABBITMQ_NODENAME:-}" ]; then
        # The name belongs to the data, not to the container: a new host name must not lose it.
        file=/var/lib/rabbitmq/node_name
        [ -s "$file" ] || echo "rabbit@$(hostname)" >"$file"
        RABBITMQ_NODENAME=$(cat "$file")
        export RABBITMQ_NODENAME
    fi
    # Settings that have no variable of RabbitMQ's: WARRENMQ_SET="key=value key=value".
    for pair in ${WARRENMQ_SET:-}; do
        set -- "$@" --set "$pair"
    done
    exec warrenmq server --conf /etc/rabbitmq/rabbitmq.conf "$@"
    ;;
cluster-secret)
    # 256 random bits in a file, once: whole, or not there.
    [ $# -eq 1 ] || { echo "cluster-secret needs FILE: where to put the secret" >&2; exit 64; }
    if [ ! -s "$1" ]; then
        umask 377
        rm -f "$1.new"
        od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' >"$1.new"
        mv "$1.new" "$1"
    fi
    ;;
*)
    exec "$name" "$@"
    ;;
esac
