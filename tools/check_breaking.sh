#!/bin/sh
# Fails where the protos break clients of the latest release: the newest tag v* before this commit, if there is one.
set -eu
cd "$(dirname "$0")/.."
released=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || { echo "No release yet that the protos could break."; exit 0; }
.venv/bin/buf breaking --against ".git#tag=$released"
