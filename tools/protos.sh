#!/bin/sh
# Generates the stubs of every .proto file into a folder: tools/protos.sh [FOLDER], protos/ by default.
set -eu
cd "$(dirname "$0")/.."
out=${1:-protos}
PATH=$PWD/.venv/bin:$PATH # protoc finds its mypy plug-ins there
export PATH
find protos -name '*.proto' | sort | xargs python -m grpc_tools.protoc --proto_path=protos \
    --python_out="$out" --grpc_python_out="$out" --mypy_out=quiet:"$out" --mypy_grpc_out=quiet:"$out"
