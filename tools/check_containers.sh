#!/bin/sh
# Builds the images of deploy/containers without a container engine, its daemon or a registry, starts what they hold, and
# checks that it works: `make check-containers`.
#
#   sh tools/check_containers.sh [planner] [trainer]     the planner's alone where none is named
#
#   SUITE            release of Debian that the base is made of, as the container files say it (trixie)
#   MIRROR           where Debian's packages are taken from
#   TORCH_CPU_INDEX  an index of torch's builds without CUDA, for the trainer's image
#
# buildah runs the steps in a chroot; mmdebstrap makes the base image of Debian's packages, as the one that the container
# files name does. Needs root, both tools (apt-get install buildah mmdebstrap), .venv (make setup), and 4 GB in TMPDIR.
# pip's settings of this machine are handed to the build as a secret.
set -eu
cd "$(dirname "$0")/.."

SUITE=${SUITE:-trixie}
MIRROR=${MIRROR:-http://deb.debian.org/debian}
TORCH_CPU_INDEX=${TORCH_CPU_INDEX:-}
BASE=docker.io/library/debian:$SUITE-slim
PYTHON=.venv/bin/python
if [ $# -eq 0 ]; then set -- planner; fi

say() { printf '%s\n' "$*"; }

die() { printf 'make check-containers: %s\n' "$*" >&2; exit 1; }

# Its own storage, and a policy that lets images be made that nobody signed.
buildah() {
    command buildah --root "$SCRATCH/storage" --runroot "$SCRATCH/run" --storage-driver vfs "$@"
}

make_base() {
    say "Making the base image $BASE of Debian's packages"
    mmdebstrap --quiet --variant=minbase --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        "$SUITE" "$SCRATCH/base.tar" "$MIRROR"
    container=$(buildah from scratch)
    buildah config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --cmd bash "$container"
    buildah add --quiet "$container" "$SCRATCH/base.tar" / >/dev/null
    buildah commit --quiet --signature-policy "$SCRATCH/policy.json" --rm "$container" "$BASE" >/dev/null
    rm "$SCRATCH/base.tar"
}

# build NAME: the steps of NAME.Containerfile, as written.
build() {
    say "Building dip-$1 from deploy/containers/$1.Containerfile"
    volumes=
    while read -r pair; do volumes="$volumes --volume $pair:ro"; done <"$SCRATCH/pip-mounts"
    # shellcheck disable=SC2086 # several words
    buildah bud --quiet --isolation chroot --pull-never --format docker --layers=false \
        --signature-policy "$SCRATCH/policy.json" --build-arg BASE="$BASE" --build-arg TORCH_INDEX="$TORCH_CPU_INDEX" \
        --secret id=pip.conf,src="$SCRATCH/pip.conf" $volumes \
        --file "deploy/containers/$1.Containerfile" --tag "dip-$1" . >"$SCRATCH/$1.log" 2>&1 ||
        { tail -n 40 "$SCRATCH/$1.log" >&2; die "a step of $1.Containerfile failed; its message is above"; }
}

check() {
    container=$(buildah from --pull-never --signature-policy "$SCRATCH/policy.json" "dip-$1")
    root=$(buildah mount "$container")
    buildah inspect "$container" >"$SCRATCH/$1.json"
    $PYTHON tools/check_container.py "$1" "$root" "$SCRATCH/$1.json"
}

[ "$(id -u)" = 0 ] || die "needs root, for chroot and mounts"
for tool in buildah mmdebstrap; do
    command -v $tool >/dev/null || die "$tool is missing: apt-get install --no-install-recommends buildah mmdebstrap"
done
[ -x $PYTHON ] || die ".venv is missing: make setup"

SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/dip-containers.XXXXXX")
trap 'buildah umount --all >/dev/null 2>&1 || true; rm -rf "$SCRATCH"' EXIT
trap 'exit 130' INT TERM
printf '{"default": [{"type": "insecureAcceptAnything"}]}\n' >"$SCRATCH/policy.json"
$PYTHON tools/pip_secret.py "$SCRATCH" >"$SCRATCH/pip-mounts"
make_base
for name in "$@"; do
    build "$name"
    check "$name"
done
