#!/bin/sh
# Trains with torchrun on one machine or several, with a planner beside rank 0. Run it on every machine:
#
#   NNODES=4 NODE_RANK=0 MASTER_ADDR=node0 sh train.sh train.py --its-own arguments
#
#   NNODES (1), NODE_RANK (0), MASTER_ADDR, MASTER_PORT (29500), NPROC_PER_NODE (gpu)   as torchrun knows them
#   RUN_ID          what this training is called on all machines: names the job, too (dip)
#   PLANNER_PORT    where the planner listens if there are several machines (50061)
#   DIP_SECRETS     a directory with tls/ca.crt and trainer/token, and where the planner is with tls/tls.crt, tls/tls.key
#                   and access/access.toml: deploy/make_secrets.sh DIRECTORY MASTER_ADDR makes them. On one machine none
#                   are needed: the planner listens on a UNIX socket that only this user can write to
#   DIP_ALLOW_INSECURE=true   in place of secrets, where the network of the machines is closed to others
#   DIP_COMMAND, TORCHRUN     the commands (dip, torchrun)
#
# All DIP_* settings of planner and agents apply as well; metrics are off unless DIP_METRICS_LISTEN says where they are
# had, as trainings may share a machine. The planner may fail at any time: it is started again, and
# training goes on meanwhile with the fixed fallback schedule. This script ends as torchrun ends.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
nodes=${NNODES:-1}
rank=${NODE_RANK:-0}
first=${MASTER_ADDR:-localhost}
port=${PLANNER_PORT:-50061}
run=${RUN_ID:-dip}
secrets=${DIP_SECRETS:-}
dip=${DIP_COMMAND:-dip}
torchrun=${TORCHRUN:-torchrun}

if [ $# -eq 0 ]; then
    echo "train.sh: which script is trained? sh train.sh train.py ..." >&2
    exit 2
fi
if [ "$nodes" -gt 1 ] && [ -z "${MASTER_ADDR:-}" ]; then
    echo "train.sh: NNODES is $nodes, MASTER_ADDR is not set: the name of machine 0" >&2
    exit 2
fi
if [ "$nodes" -gt 1 ] && [ -z "$secrets" ] && [ "${DIP_ALLOW_INSECURE:-}" != true ]; then
    echo "train.sh: NNODES is $nodes; set DIP_SECRETS to a directory of secrets (sh deploy/make_secrets.sh DIRECTORY" \
        "$first), or DIP_ALLOW_INSECURE=true where nobody else is on the network of these machines" >&2
    exit 2
fi

# A socket's path may have 105 bytes, which a long TMPDIR leaves no room for.
folder=${TMPDIR:-/tmp}
[ "$(printf %s "$folder" | wc -c)" -le 64 ] || folder=/tmp
own=$(mktemp -d "$folder/dip-train.XXXXXX")
planner=
training=

# Ends in the order that lets trainers close their job: they first, then the planner.
clean_up() {
    trap '' TERM INT HUP
    if [ -n "$planner" ]; then
        kill -TERM "$planner" 2>/dev/null || true
        wait "$planner" 2>/dev/null || true
    fi
    rm -rf "$own"
}
trap clean_up EXIT
trap 'if [ -n "$training" ]; then kill -TERM "$training" 2>/dev/null; else exit 143; fi' TERM INT HUP

if [ "$nodes" -eq 1 ]; then
    listen=unix://$own/planner.sock
    endpoint=$listen
    tls=
else
    listen=0.0.0.0:$port
    endpoint=$first:$port
    tls=$secrets
fi

if [ "$rank" -eq 0 ]; then
    (
        if [ -n "$tls" ]; then
            export DIP_TLS_CERT_FILE="$secrets/tls/tls.crt" DIP_TLS_KEY_FILE="$secrets/tls/tls.key"
            export DIP_ACCESS_FILE="$secrets/access/access.toml"
        fi
        exec sh "$here/keep_planner.sh" --listen "${DIP_LISTEN:-$listen}" \
            --health-listen "${DIP_HEALTH_LISTEN:-unix://$own/health.sock}" \
            --metrics-listen "${DIP_METRICS_LISTEN:-off}"
    ) &
    planner=$!
    # Until it is ready to plan, as the start decides the partition, and its solvers come up the faster the less else runs.
    # For a minute at most: ranks that find no planner train all the same.
    tries=60
    until "$dip" health --ready --timeout 1 "${DIP_HEALTH_LISTEN:-unix://$own/health.sock}" >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ] || ! kill -0 "$planner" 2>/dev/null; then
            echo "train.sh: the planner is not ready yet; training begins without it" >&2
            break
        fi
        sleep 1
    done
fi

if [ -n "$tls" ]; then
    export DIP_TLS_CA_FILE="$secrets/tls/ca.crt" DIP_TOKEN_FILE="$secrets/trainer/token"
fi
export DIP_PLANNER_ENDPOINT="${DIP_PLANNER_ENDPOINT:-$endpoint}" DIP_JOB_ID="${DIP_JOB_ID:-$run}"

"$torchrun" --nnodes "$nodes" --node-rank "$rank" --nproc-per-node "${NPROC_PER_NODE:-gpu}" --rdzv-id "$run" \
    --rdzv-backend c10d --rdzv-endpoint "$first:${MASTER_PORT:-29500}" "$@" &
training=$!
code=0
wait "$training" || code=$?
# A signal ended the waiting, not the training.
while kill -0 "$training" 2>/dev/null; do
    code=0
    wait "$training" || code=$?
done
exit "$code"
