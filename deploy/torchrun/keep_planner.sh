#!/bin/sh
# Runs `dip serve`, and runs it again whenever it fails, until SIGTERM or SIGINT: then the planner drains, and this ends.
#
#   sh keep_planner.sh [arguments of dip serve]
#
#   DIP_COMMAND     the command (dip)
#
# What settings make impossible is not tried again: exit code 2 of `dip serve`, which says what is wrong.
set -u

planner=
stopping=

stop() {
    stopping=yes
    if [ -n "$planner" ]; then kill -TERM "$planner" 2>/dev/null; fi
}
trap stop TERM INT HUP

# The planner's exit code, however often signals end the waiting for it.
ended() {
    while :; do
        wait "$planner"
        code=$?
        kill -0 "$planner" 2>/dev/null || return "$code"
    done
}

pause=1
while [ -z "$stopping" ]; do
    began=$(date +%s)
    "${DIP_COMMAND:-dip}" serve "$@" &
    planner=$!
    # A signal that came before there was a planner to send it to.
    if [ -n "$stopping" ]; then kill -TERM "$planner" 2>/dev/null; fi
    ended
    code=$?
    planner=
    if [ -n "$stopping" ]; then break; fi
    if [ "$code" -eq 0 ] || [ "$code" -eq 2 ]; then exit "$code"; fi
    if [ $(($(date +%s) - began)) -ge 60 ]; then pause=1; fi
    echo "keep_planner.sh: the planner ended with exit code $code; it is started again in $pause s" >&2
    sleep "$pause" &
    wait $!
    pause=$((pause * 2 > 30 ? 30 : pause * 2))
done
