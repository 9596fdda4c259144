#!/usr/bin/env bash
# The long tier: a large node of the brain for a virtual day, thousands of random histories, and
# seeds of the differential fuzzer. Hours on two cores; what fails is printed and kept
# (shim-daemon/core/tests/seeds.txt, tests/data/fuzz,
# shim-daemon/core/tests/regressions.txt): commit it with the mend.
#
#   scripts/soak.sh [SEED...]        also runs the node with these seeds; default: a new seed
#   GPUTEST_SIM_MINUTES=1440        how long the node lives
#   GPUTEST_FUZZ_SECONDS=3600       how long driver calls of new seeds are compared, bare and under gpushare
#   GPUTEST_MOVES=100000             random moves of a program's memory while its threads work
#   PROPTEST_CASES=80000             random histories a property; the tests take a quarter of it
#   PROPTEST_RNG_SEED=N              the first seed; the tests have a fixed one, this script takes the time of day
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) sed -n '2,12p' "$0" | sed 's/^# \?//'; exit 0 ;; esac
need cargo
export GPUTEST_SIM_MINUTES="${GPUTEST_SIM_MINUTES:-1440}" PROPTEST_CASES="${PROPTEST_CASES:-80000}" GPUTEST_FUZZ_SECONDS="${GPUTEST_FUZZ_SECONDS:-3600}"
export GPUTEST_MOVES="${GPUTEST_MOVES:-100000}"
[ $# -gt 0 ] || set -- "$(date +%s%N)"
failed=()

run() {
    local name=$1 started=$SECONDS
    shift
    say "$name"
    if "$@"; then note "$name: $((SECONDS - started)) s"; else failed+=("$name"); fi
}

export PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-$(date +%s)}"
run "properties, $PROPTEST_CASES / 4 cases each, from seed $PROPTEST_RNG_SEED" \
    cargo test --profile sim --locked -p gpushare-core --test main properties::
run "turns, $((PROPTEST_CASES / 4)) cases by 32" \
    env PROPTEST_CASES="$((PROPTEST_CASES / 4))" cargo test --profile sim --locked -p gpushare-core --test main turns::
for seed in "$@"; do
    run "$GPUTEST_SIM_MINUTES virtual minutes, seed $seed and those kept" \
        env GPUTEST_SIM_SEED="$seed" cargo test --profile sim --locked -p gpushare-core --test main sim_node:: -- --nocapture
done
run "$GPUTEST_MOVES random moves, and a failure at every step of a move" \
    env GPUTEST_EVERY_STEP=1 cargo test --locked -p gpushare-tests --test main movable_ spill_faults -- --nocapture
run "differential fuzzer, $GPUTEST_FUZZ_SECONDS s" scripts/fuzz.sh --seconds "$GPUTEST_FUZZ_SECONDS"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    git status --short shim-daemon/core/tests tests/data/fuzz
    exit 1
fi
