#!/usr/bin/env bash
# The cost of sharing against the bare driver, with real processes: each experiment without gpushare
# and with it, in three pairs of runs, of each figure the middle pair. By hand, on a quiet machine:
# 10 seconds take about an hour. Writes a page and the raw figures into docs/results/.
#
#   scripts/bench_together.sh [SECONDS]     how long each run is measured; default 10
#   GPU=soft:slice=1ms,switch=50us          the GPU, as --gpu takes it; default soft. Experiments with two GPUs take a soft one with count=2.
#                                           A soft GPU's slice and switch are the daemon's settings too
#   PAIRS=3                                 pairs of runs, an odd number
#   GROUPS_OF="together curve"              presets or groups; default: all about sharing without idling
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) sed -n '2,10p' "$0" | sed 's/^# \?//'; exit 0 ;; esac
need cargo
seconds=${1:-10} gpu=${GPU:-soft} pairs=${PAIRS:-3}
read -ra groups <<<"${GROUPS_OF:-together gaps serving curve decode copies churn mixed shares gangs}"
case "$gpu" in soft:*) two="$gpu,count=2" ;; soft) two=soft:count=2 ;; *) two=$gpu ;; esac

say "building"
cargo build --release --quiet --locked -p gpushare -p gpushared -p gpushare-interposer -p softgpu -p softgpu-cuda -p softgpu-nvml
# Daemons of this script leave nothing in the journal of this user's.
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR XDG_STATE_HOME=$XDG_RUNTIME_DIR
trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT

# A node's settings say what its GPUs take; this one's are in the key.
of_key() { printf '%s' "$gpu" | tr ':' ',' | tr ',' '\n' | sed -n 's/^\(slice\|switch\)=\(.*\)$/\1 = "\2"/p'; }
case "$gpu" in
    soft:*)
        { echo "[compute]"; of_key; } >"$XDG_RUNTIME_DIR/config.toml"
        export GPUSHARE_DAEMON_CONFIG=$XDG_RUNTIME_DIR/config.toml
        ;;
esac

name="docs/results/$(date +%F)-together-$(printf '%s' "$gpu" | tr -c 'a-z0-9\n' '-')"
one=() several=()
for group in "${groups[@]}"; do
    case "$group" in gang*) several+=(--preset "$group") ;; *) one+=(--preset "$group") ;; esac
done

# measure GPU PART FLAG...: one command for all these groups.
measure() {
    local on=$1 part=$2
    shift 2
    say "$part on $on"
    "$CARGO_TARGET_DIR/release/gpushare" bench share --gpu "$on" --seconds "$seconds" --compare-bare --pairs "$pairs" \
        --markdown "$XDG_RUNTIME_DIR/$part.md" --json "$name-$part.json" "$@" >&2
}

# Written again after each part and at the end, so that measurements are kept when a later experiment
# or part fails: a failed command has written the part of its page that it measured.
page() {
    compgen -G "$XDG_RUNTIME_DIR/*.md" >/dev/null || return 0
    {
        printf '# Sharing beside the bare driver, %s, %s\n\n' "$gpu" "$(date +%F)"
        printf 'By `scripts/bench_together.sh %s` at %s, %s cores, load average at the end %s.\n' \
            "$seconds" "$(git describe --always --dirty)" "$(nproc)" "$(cut -d' ' -f1 /proc/loadavg)"
        for part in one-gpu two-gpus; do
            if [ -f "$XDG_RUNTIME_DIR/$part.md" ]; then echo; cat "$XDG_RUNTIME_DIR/$part.md"; fi
        done
    } >"$name.md"
}
trap 'page; rm -rf "$XDG_RUNTIME_DIR"' EXIT

if [ ${#one[@]} -gt 0 ]; then measure "$gpu" one-gpu "${one[@]}"; page; fi
if [ ${#several[@]} -gt 0 ]; then measure "$two" two-gpus "${several[@]}"; page; fi
note "wrote $name.md"
