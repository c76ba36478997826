#!/usr/bin/env bash
# Makes the image that deploy/Dockerfile starts from where no registry can be reached.
# Needs root, debootstrap and a Docker engine; writes WARRENMQ_BASE to .env, which compose reads.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v debootstrap >/dev/null || missing+=("debootstrap is not installed: run 'apt-get install debootstrap' first")
command -v docker >/dev/null || missing+=("docker is not installed: run 'apt-get install docker.io' first")
[ "$(id -u)" = 0 ] || missing+=("debootstrap needs root: run it as root, or 'sudo $0'")
if [ ${#missing[@]} -gt 0 ]; then
    printf 'build-base.sh: %s\n' "${missing[@]}" >&2
    exit 1
fi

tag=${1:-warrenmq/base:bookworm}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
folder=$(mktemp -d)
trap 'umount "$folder" 2>/dev/null || true; rm -rf "$folder"' EXIT
# In memory where that may be (400 MB): dpkg syncs every file it unpacks.
mount -t tmpfs -o mode=755,size=2g tmpfs "$folder" 2>/dev/null || true

debootstrap --variant=minbase \
    --include=python3,python3-venv,python3-pip,ca-certificates,iproute2,iptables,tini \
    bookworm "$folder" "$mirror" >"$folder.log" 2>&1 || { tail -n 20 "$folder.log" >&2; exit 1; }
rm -f "$folder.log"
rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
# This machine's certificates, so that pip reaches its index from inside `docker build` too.
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
    cp -L /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/ca-certificates.crt"
fi
tar -C "$folder" -c . | docker import --change 'ENV LANG=C.UTF-8' --change 'CMD ["bash"]' - "$tag" >/dev/null

touch .env
grep -v '^WARRENMQ_BASE=' .env >.env.new || true
echo "WARRENMQ_BASE=$tag" >>.env.new
mv .env.new .env
echo "$tag is ready; .env names it"
