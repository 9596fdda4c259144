#!/usr/bin/env bash
# Runs the differential fuzzer for a while: the calls of a seed, bare and under gpushare, must
# answer the same, except for the effects of a quota. A failing case is shrunk, printed and kept in
# tests/data/fuzz.txt: commit it with the fix.
#
#   scripts/fuzz.sh [--seconds N] [--seed S]    N seconds for each of the five modes (60); first seed S
source "$(dirname "$0")/common.sh"
need cargo gcc
export GPUTEST_FUZZ_SECONDS=60
while [ $# -gt 0 ]; do
    case "$1" in
    -h | --help) sed -n '2,7p' "$0" | sed 's/^# \?//'; exit 0 ;;
    --seconds) GPUTEST_FUZZ_SECONDS=${2:?a number of seconds} ;;
    --seed) export GPUTEST_FUZZ_SEED=${2:?a number} ;;
    *) die "$1 is not understood; see --help" ;;
    esac
    shift 2
done
cargo test --locked -p gpushare-tests --test main fuzz:: -- --test-threads=1 --nocapture
