#!/usr/bin/env bash
# The long tier of the brain's tests: a large node for a virtual day, and thousands of random
# histories. Hours on two cores; what fails is printed and kept (shim-daemon/core/tests/seeds.txt,
# shim-daemon/core/tests/regressions.txt): commit it with the mend.
#
#   scripts/soak.sh [SEED...]        also runs the node with these seeds; default: a new seed
#   GPUTEST_SIM_MINUTES=1440        how long the node lives
#   PROPTEST_CASES=80000             random histories a property; the tests take a quarter of it
#   PROPTEST_RNG_SEED=N              the first seed; the tests have a fixed one, this script takes the time of day
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) sed -n '2,8p' "$0" | sed 's/^# \?//'; exit 0 ;; esac
need cargo
export GPUTEST_SIM_MINUTES="${GPUTEST_SIM_MINUTES:-1440}" PROPTEST_CASES="${PROPTEST_CASES:-80000}"
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
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    git status --short shim-daemon/core/tests
    exit 1
fi
