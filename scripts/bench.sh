#!/usr/bin/env bash
# What the library and the daemon cost: prints nanoseconds a call without and with it, above a driver that does nothing, and what a process pays to
# have it loaded. Nothing is asserted here: machines differ; instruction counts are checked by `cargo test -p gpushare-tests --test
# instructions`. Takes a few minutes.
#
#   scripts/bench.sh [FOLDER]    FOLDER holds libgpushare.so; default: target/release, built first
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) sed -n '2,6p' "$0" | sed 's/^# \?//'; exit 0 ;; esac
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
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR LD_LIBRARY_PATH="$bench"
trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT

hooked() { env LD_PRELOAD="$library" GPUSHARE_CONTAINER=bench GPUSHARE_MEM_LIMIT=8GiB "$@"; }

# middle COMMAND...: the median of five runs.
middle() { for _ in 1 2 3 4 5; do "$@"; done | sort -n | sed -n 3p; }

# row NAME ARGUMENT...: one line of the table.
row() {
    local name=$1 bare with
    shift
    bare=$(middle "$bench/calls" "$@")
    with=$(middle hooked "$bench/calls" "$@")
    printf '%-58s %8s %8s %8s\n' "$name" "$bare" "$with" "$(echo "$with - $bare" | bc)"
}

say "nanoseconds of processor time a call: bare, with the library, difference (each the median of five runs)"
printf '%-58s %8s %8s %8s\n' "" bare with added
for neighbours in 0 63; do
    for live in 1 1000 1000000; do
        row "cuMemAlloc + cuMemFree, $live live, $((neighbours + 1)) processes" alloc 2100000 "$live" "$neighbours"
    done
done
row "  the same, one of 1000000 at random (cold caches)" random 2100000 1000000
row "cuLaunchKernel" launch 21000000
row "cuGraphLaunch, nothing allocated" graph 21000000

say "milliseconds a process: without, with the library (median of 101)"
python3 - "$library" "$bench/calls" <<'PYTHON'
import os, statistics, subprocess, sys, time

library, calls = sys.argv[1:]

def median(command, extra):
    taken = []
    for _ in range(101):
        began = time.perf_counter()
        subprocess.run(command, env={**os.environ, **extra}, stdout=subprocess.DEVNULL, check=True)
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)

for name, command in [("/bin/true", ["/bin/true"]), ("cuInit and one allocation", [calls, "alloc", "21"])]:
    bare = median(command, {})
    hooked = median(command, {"LD_PRELOAD": library, "GPUSHARE_CONTAINER": "bench", "GPUSHARE_MEM_LIMIT": "8GiB"})
    print(f"{name:<58} {bare:8.2f} {hooked:8.2f} {hooked - bare:8.2f}")
PYTHON

say "the daemon: asks of 1,000 connected clients, then nothing to do"
cargo build --release --quiet --locked -p gpushared --example load
"$CARGO_TARGET_DIR/release/examples/load"
say "the same, where grants have to be taken back from others"
"$CARGO_TARGET_DIR/release/examples/load" --most 1500
