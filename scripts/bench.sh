#!/usr/bin/env bash
# Measures the cost of the library and the daemon: prints nanoseconds a call without and with the
# library, above a driver that does nothing, and the cost of loading it. Nothing is asserted here:
# machines differ; instruction counts are checked by `cargo test -p gpushare-tests --test main
# instructions::`. Takes a few minutes.
#
#   scripts/bench.sh [FOLDER]    FOLDER holds libgpushare.so; default: target/release, built first,
#                                and for the cost of loading dist/lib, if it is there
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) sed -n '2,8p' "$0" | sed 's/^# \?//'; exit 0 ;; esac
need cargo gcc python3
if [ $# -eq 0 ]; then
    say "building"
    cargo build --release --quiet --locked -p gpushare-interposer
fi
library=$(realpath "${1:-$CARGO_TARGET_DIR/release}/libgpushare.so")
bench="$CARGO_TARGET_DIR/bench"
mkdir -p "$bench"
cc -O2 -Wall -Werror -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$bench/libcuda.so.1" tests/bench/stub_driver.c
cc -O2 -Wall -Werror -o "$bench/calls" tests/bench/calls.c -ldl
cc -O2 -Wall -Werror -o "$bench/spawn" tests/bench/spawn.c
cc -O2 -shared -o "$bench/libempty.so" -x c /dev/null
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR XDG_STATE_HOME=$XDG_RUNTIME_DIR LD_LIBRARY_PATH="$bench"
trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT

say "driver calls: bare and with the library in turn, medians of seven pairs, and instructions added"
scripts/bench_calls.py calls "$library" "$bench"

say "a program without CUDA: 2,000 rounds of /bin/true bare, with an empty library, and with ours"
shipped=$library
if [ $# -eq 0 ] && [ -f dist/lib/libgpushare.so ]; then
    shipped="$PWD/dist/lib/libgpushare.so"
    note "ours is the packaged one, of commit $(cat dist/COMMIT 2>/dev/null || echo unknown)"
fi
scripts/bench_calls.py loading "$shipped" "$bench"

say "processes: the same by 51 pairs; instructions of the whole process added"
cargo build --release --quiet --locked -p gpushare -p gpushared -p softgpu-cuda -p softgpu-nvml
"$CARGO_TARGET_DIR/release/gpushare" run --gpu soft:name=bench-$$ --name bench --mem-limit 8GiB -- \
    scripts/bench_calls.py processes "$library" "$bench"

say "the daemon: asks of 1,000 connected clients, then nothing to do"
cargo build --release --quiet --locked -p gpushared --example load
"$CARGO_TARGET_DIR/release/examples/load"
say "the same, where grants have to be taken back from other tenants"
"$CARGO_TARGET_DIR/release/examples/load" --most 1500

say "the daemon's journal: 1,000 events a second"
cargo build --release --quiet --locked -p gpushared --example journal
"$CARGO_TARGET_DIR/release/examples/journal"
