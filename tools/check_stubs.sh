#!/bin/sh
# Fails where the committed stubs are not what the .proto files generate.
set -eu
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
tools/protos.sh "$fresh"
stale=0
stubs() { (cd "$1" && find . -name '*_pb2*.py*' -not -path '*/__pycache__/*'); }
for stub in $( { stubs "$fresh"; stubs protos; } | sort -u); do
    cmp -s "$fresh/$stub" "protos/$stub" || { stale=1; echo "stale: protos/${stub#./}" >&2; }
done
if [ $stale -ne 0 ]; then echo "Run make protos and commit what it writes." >&2; fi
exit $stale
