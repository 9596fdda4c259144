#!/usr/bin/env bash
# Prints what looking at a node costs, in processor time: `ps`, a scrape of the exporter, the daemon's
# part of it with 1,000 connected programs, `top`, and the journal at 1,000 events a second. The
# daemon has a fake device. Nothing is asserted: machines differ.
#
#   scripts/bench_observe.sh
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) sed -n '2,6p' "$0" | sed 's/^# \?//'; exit 0 ;; esac
need cargo python3
cargo build --release --quiet --locked -p gpushare -p gpushare-exporter
cargo build --release --quiet --locked -p gpushared --example load --example journal
python3 scripts/bench_observe.py "$CARGO_TARGET_DIR/release"
