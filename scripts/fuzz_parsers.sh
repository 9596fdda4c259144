#!/usr/bin/env bash
# Coverage-guided fuzzing (libFuzzer) of everything that reads what others wrote: wire frames, usage
# pages, limits, sizes, the daemon's configuration, the software GPU's SPEC. A planted defect is
# looked for first: if it is not found, nothing else is believed. Ends with a table; the status says
# whether an input violates what its parser must keep. Such an input is kept in fuzz/corpus: commit it
# with the mend. Status 3 if libFuzzer cannot be had.
#
#   scripts/fuzz_parsers.sh [--seconds N] [TARGET...]    N seconds each (60); default: all targets
source "$(dirname "$0")/common.sh"
need cargo g++
seconds=60
targets=()
while [ $# -gt 0 ]; do
    case "$1" in
    -h | --help) sed -n '2,9p' "$0" | sed 's/^# \?//'; exit 0 ;;
    --seconds) seconds=${2:?a number of seconds}; shift ;;
    *) [ -d "fuzz/corpus/$1" ] || die "$1 is no target; see fuzz/corpus"; targets+=("$1") ;;
    esac
    shift
done
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls fuzz/corpus)

# Options of the stable compiler: counters and comparisons in all code, as `cargo fuzz` sets them.
# A target is named so that build scripts have none.
triple=$(rustc -vV | sed -n 's/^host: //p')
flags=-Cpasses=sancov-module
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
cargo fetch --locked --quiet --manifest-path fuzz/Cargo.toml || { note "crates.io did not give libFuzzer"; exit 3; }
RUSTFLAGS=$flags cargo build --locked --quiet --release --target "$triple" --manifest-path fuzz/Cargo.toml --target-dir "$CARGO_TARGET_DIR/fuzz"
program="$CARGO_TARGET_DIR/fuzz/$triple/release/gpushare-fuzz"
work=$(mktemp -d "$CARGO_TARGET_DIR/fuzz/XXXXXX")
trap 'rm -rf "$work"' EXIT

# look TARGET SECONDS CORPUS...: new inputs go to the work folder. An input may take 5 s and 1 GiB.
look() {
    local target=$1 time=$2
    shift 2
    mkdir -p "$work/$target"
    GPUTEST_PARSER=$target "$program" -max_total_time="$time" -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="$work/found-$target-" "$work/$target" "$@" >"$work/$target.log" 2>&1
}

! look planted 60 || die "the planted defect was not found in 60 s: the fuzzer does not see which branches are taken"
rm "$work"/found-planted-*

failed=0
rows=()
for target in "${targets[@]}"; do
    answer=holds
    look "$target" "$seconds" "fuzz/corpus/$target" || answer=VIOLATED
    for found in "$work/found-$target-"*; do
        [ -e "$found" ] || continue
        kept="fuzz/corpus/$target/$(basename "$found" | sed "s/^found-$target-//")"
        cp "$found" "$kept"
        note "$kept:"
        grep -m 3 -aE "panicked|^ *(left|right):|ERROR: libFuzzer" "$work/$target.log" >&2 || true
    done
    [ "$answer" = holds ] || { failed=1; tail -40 "$work/$target.log" >&2; }
    number() { sed -n "s/^stat::$1: *//p" "$work/$target.log" | tail -1; }
    covered=$(grep -ao 'cov: [0-9]*' "$work/$target.log" | tail -1)
    rows+=("| $target | $(number number_of_executed_units) | ${covered#cov: } | $(find "fuzz/corpus/$target" -type f | wc -l) | $answer |")
done
echo "| parser | inputs | branches seen | kept inputs | what it must keep |"
echo "|---|---|---|---|---|"
printf '%s\n' "${rows[@]}"
exit $failed
