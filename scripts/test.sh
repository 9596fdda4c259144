#!/usr/bin/env bash
# All checks, the quickest first; 12 to 17 minutes on two cores from nothing. Each runs even if one
# before it failed. Ends with each step's time, the test runner's own summary and a line `N run, M
# not runnable here`, by name.
#
#   scripts/test.sh          what CI runs
#   scripts/test.sh --quick  what to run while editing: format, words, clippy, unit tests, and the brain in virtual time with a
#                            tenth of its cases. Leaves out the other integration tests, all end-to-end tests, the package,
#                            documentation and licences.
#   scripts/test.sh --all    the long tier too: tests marked #[ignore], PyCUDA, loom models, kernels through NVIDIA's compilers
source "$(dirname "$0")/common.sh"
all=false
quick=false
case "${1:-}" in
    "") ;;
    --all) all=true ;;
    --quick) quick=true ;;
    -h | --help) sed -n '2,9p' "$0" | sed 's/^# \?//'; exit 0 ;;
    *) die "unknown option $1" ;;
esac
need cargo clippy-driver gcc python3
export GPUTEST_NOT_RUNNABLE="$CARGO_TARGET_DIR/not-runnable"
log="$CARGO_TARGET_DIR/test.log"
flaky="$CARGO_TARGET_DIR/flaky"
mkdir -p "$CARGO_TARGET_DIR"
: >"$GPUTEST_NOT_RUNNABLE"
: >"$flaky"
: >"$log"
failed=()
times=()

# A step is a condition, so `set -e` does not end the function that it calls: each function says with
# `||` or `&&` which of its commands must succeed.
step() {
    local name=$1 started=$SECONDS answer=ok
    shift
    say "$name"
    "$@" || { failed+=("$name"); answer=FAILED; }
    times+=("$(printf '%5d s  %s: %s' $((SECONDS - started)) "$name" "$answer")")
    note "${times[-1]}"
}

not_here() { echo "$1: $2" >>"$GPUTEST_NOT_RUNNABLE"; note "$1: not runnable here: $2"; }

# Clippy compiles: a check of its own would read and type each crate a second time (docs/adr/0186).
linted() { env RUSTC_WORKSPACE_WRAPPER=clippy-driver "$@"; }

# Everything that a later step runs, in one go: what `cargo test` needs and `cargo build` does not is
# then no second build of the same crates with other features. Examples are not run, but linted.
build() {
    linted cargo build --workspace --lib --bins --tests --examples --locked 2>&1 | tee "$CARGO_TARGET_DIR/build.log"
}
tested=(--workspace --tests --locked)

# Cargo ends what it compiled with warnings by this line, also where nothing had to be compiled again.
lints() { ! grep -E '^warning: .* generated [0-9]+ warning' "$CARGO_TARGET_DIR/build.log"; }

# All test binaries are built, so that a full run afterwards builds nothing twice.
quick_tests() {
    local chosen='kind(lib) | kind(bin) | package(gpushare-core) | package(gpushare-cuda-abi)'
    have cargo-nextest || die "--quick needs cargo-nextest"
    GPUTEST_SIM_MINUTES=1 PROPTEST_CASES=26 linted cargo nextest run "${tested[@]}" --no-fail-fast \
        --status-level slow --final-status-level fail -E "$chosen" 2>&1 | tee "$log"
}

# Random mixes of tenants, and minutes of a node of 1,000 tenants and 20 devices in its own time; scripts/soak.sh runs a day.
export GPUTEST_SIM_MINUTES=2 GPUTEST_MIXES=60
! $all || export GPUTEST_SIM_MINUTES=60 GPUTEST_MIXES=1000
# The longest simulations, which only compute and need nothing that is packaged.
SIMULATIONS='package(gpushare-core) & test(/^(sim_node|together_\w+)::/)'
# How programs get at the library.
LOADING='package(gpushare-interposer) & binary(main)'

# nextest ARGUMENT...: the tests of this tier, into the log.
nextest() {
    local ignored=() profile=default
    $all && ignored=(--run-ignored all) profile=long
    GPUTEST_BUILT=1 linted cargo nextest run --profile $profile "${tested[@]}" --no-fail-fast --status-level slow \
        --final-status-level fail "${ignored[@]}" "$@" 2>&1 | tee -a "$log"
}

# The library is packaged meanwhile, mostly by one processor.
simulations() {
    have cargo-nextest || { note "cargo-nextest is not installed: with the other tests"; return 0; }
    nextest --test-threads "$(nproc)" -E "$SIMULATIONS"
}

# The files about races, kills, faults and books, on a machine whose handles and addresses come back
# at once, whose calls take time, wait and keep others waiting (softgpu/src/spec.rs). What a test's own
# machine says it keeps. Each run has another seed.
HARDER='package(gpushare-tests) & test(/^(captures|fuzz|gate|kill|marks|movable_faults\w*|movable_storm|pool_storm|race|seal)::/)'
harder() {
    local seed=${GPUTEST_SEED:-$RANDOM}
    have cargo-nextest || { not_here "the harder machine" "cargo-nextest is not installed"; return 0; }
    note "GPUTEST_SEED=$seed gives this machine again"
    GPUTEST_SPEC="reuse=lifo,seed=$seed,room=locked,stage=waits,load=3ms,launch=4us,vmmcall=30us,pin=6GiB/s" \
        nextest --test-threads $(($(nproc) * 4)) -E "$HARDER"
}

# Instructions are counted in the packaged library.
tests() {
    local answer=0 ignored=() profile=default shipped="$PWD/dist/lib/libgpushare.so" done=$SIMULATIONS
    ! $all || profile=long
    export GPUTEST_BUILT=1
    if [ -f "$shipped" ]; then
        export GPUTEST_SHIPPED_LIBRARY=$shipped
        $all || done="$done | $LOADING"
    fi
    if have cargo-nextest; then
        rm -f target/nextest/$profile/junit.xml
        # Most tests wait for other processes more than they compute.
        nextest --test-threads $(($(nproc) * 4)) -E "not ($done)" || answer=1
        # Tests of real time may have been run again (docs/adr/0122).
        scripts/flaky.py target/nextest/$profile/junit.xml >"$flaky" || answer=1
    else
        note "cargo-nextest is not installed; cargo test does the same, slower"
        $all && ignored=(-- --include-ignored)
        linted cargo test "${tested[@]}" --no-fail-fast "${ignored[@]}" 2>&1 | tee "$log" || answer=1
        echo "flaky: no test is run again without cargo-nextest" >"$flaky"
    fi
    return $answer
}

# Begins beside the documentation, which uses the processor that optimisation of a single crate leaves
# idle. The long tier packages everything.
begin_package() {
    local only=(--core)
    ! $all || only=()
    scripts/package.sh "${only[@]}" >"$CARGO_TARGET_DIR/package.log" 2>&1 &
    packaging=$!
}

# The shipped library is another build by another linker: it passes the same tests of how programs
# get at it. Chosen among those of the whole workspace, they are not built again with fewer features.
package() {
    local answer=0
    local -x GPUTEST_LIBRARY="$PWD/dist/lib/libgpushare.so"
    wait "$packaging" || answer=1
    cat "$CARGO_TARGET_DIR/package.log" >&2
    [ $answer -eq 0 ] || return 1
    if have cargo-nextest; then
        linted cargo nextest run "${tested[@]}" --no-fail-fast --status-level slow -E "$LOADING" 2>&1 | tee -a "$log"
    else
        linted cargo test --locked --no-fail-fast -p gpushare-interposer --test main -- --quiet
    fi
}

# NVIDIA's compilers for kernels that no GPU here will run.
kernels() {
    local answer=0
    scripts/kernels.sh || answer=$?
    [ $answer -ne 3 ] || { not_here kernels "PyPI did not give NVIDIA's compilers"; return 0; }
    return $answer
}

# The Debian package in a fresh root: installed, upgraded under a tenant, removed.
installation() {
    local answer=0
    scripts/check_install.sh || answer=$?
    [ $answer -ne 3 ] || { not_here installation "no other root can be made"; return 0; }
    return $answer
}

# The pages that people open, in a browser.
pages() {
    local answer=0
    scripts/pages.sh || answer=$?
    [ $answer -ne 3 ] || { not_here pages "no Chromium, or no Perfetto page, can be had"; return 0; }
    return $answer
}

# The matrix of container runtimes that are installed here, or can be.
containers() {
    local answer=0
    scripts/containers.sh || answer=$?
    [ $answer -ne 3 ] || { not_here containers "no container runtime can be had, or this is not root"; return 0; }
    return $answer
}

# A minute of new inputs for each parser of bytes that others wrote.
parsers() {
    local answer=0
    scripts/fuzz_parsers.sh || answer=$?
    [ $answer -ne 3 ] || { not_here parsers "crates.io did not give libFuzzer"; return 0; }
    return $answer
}

# Public driver-API suites, bare and under gpushare.
suites() {
    local answer=0
    scripts/suites.sh || answer=$?
    [ $answer -ne 3 ] || { not_here suites "PyPI did not give the suites"; return 0; }
    return $answer
}

# Programs with kernels of their own, bare and under gpushare.
programs() {
    local answer=0
    scripts/programs.sh || answer=$?
    [ $answer -ne 3 ] || { not_here programs "PyPI did not give numba"; return 0; }
    return $answer
}

# Every order in which threads can touch the usage page's words, and launches and closings the
# gate's.
models() {
    local -x RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$CARGO_TARGET_DIR/loom"
    cargo test -p gpushare-protocol --profile sim --lib --locked model &&
        cargo test -p gpushare-interposer --profile sim --test gate_model --locked
}

documentation() {
    local answer=0
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet || answer=1
    # With the same compiler as the build: otherwise all is compiled again.
    linted cargo test --workspace --doc --locked --quiet || answer=1
    return $answer
}

# cargo-deny comes as source only, and takes minutes to build: without it a lock file that was
# checked before is not checked again. `.ci/deny.sum` names the lock file and the rules of the last
# check that passed; commit it with them. The version is pinned so that a new release cannot break
# this run.
licences() {
    local answer=0 version=0.20.2
    if ! have cargo-deny && ! $all && sha256sum --check --status .ci/deny.sum 2>/dev/null; then
        note "Cargo.lock and deny.toml are those of the last check"
        not_here "cargo-deny's advisories" "cargo-deny is not installed, and the lock file has not changed"
        return 0
    fi
    if ! have cargo-deny; then
        note "installing cargo-deny from crates.io"
        cargo install --locked --quiet --root "$CARGO_TARGET_DIR/tools" \
            --target-dir "$CARGO_TARGET_DIR/tools/build" "cargo-deny@$version" \
            || { not_here cargo-deny "it cannot be installed"; return 0; }
        PATH="$CARGO_TARGET_DIR/tools/bin:$PATH"
    fi
    cargo deny --workspace --all-features check --hide-inclusion-graph licenses bans sources || answer=1
    if cargo deny --workspace fetch db; then
        cargo deny --workspace --all-features check --disable-fetch --hide-inclusion-graph advisories || answer=1
    else
        not_here "cargo-deny's advisories" "their database cannot be fetched from GitHub"
    fi
    [ $answer -ne 0 ] || sha256sum Cargo.lock deny.toml >.ci/deny.sum
    return $answer
}

step "format" cargo fmt --all --check
step "words" scripts/check_words.py
step "links" scripts/check_links.py
step "files of tests" scripts/check_tests.py
step "files with unsafe" scripts/check_unsafe.py
step "lock files" scripts/check_locks.py
if $quick; then
    step "build" build
    step "clippy" lints
    step "quick tests" quick_tests
else
    step "build" build
    step "clippy" lints
    begin_package
    step "documentation" documentation
    step "simulations" simulations
    step "package" package
    $all && step "PyCUDA" scripts/clients.sh pycuda
    $all && step "kernels" kernels
    $all && step "public suites" suites
    $all && step "programs with kernels" programs
    $all && step "parsers" parsers
    $all && step "containers" containers
    $all && step "pages in a browser" pages
    $all && step "installation" installation
    $all && step "models of the shared page" models
    $all && step "harder machine" harder
    step "tests" tests
    step "licences and advisories" licences
fi

say "summary"
printf '   %s\n' "${times[@]}" >&2
# nextest prints one line for all, cargo test one for each program.
grep -aE '^ +Summary|^test result:' "$log" || note "the tests did not get as far as a summary"
count=$(awk '/^ +Summary/ { for (i = 2; i <= NF; i++) if ($i ~ /^tests?$/ && $(i + 1) ~ /^run/) total += $(i - 1) }
    /^test result:/ { total += $4 + $6 } END { print total + 0 }' "$log")
sed 's/^/   /' "$flaky"
# In the long tier the library's tests run twice.
sort -u -o "$GPUTEST_NOT_RUNNABLE" "$GPUTEST_NOT_RUNNABLE"
skipped=$(wc -l <"$GPUTEST_NOT_RUNNABLE")
sed 's/^/   not runnable here: /' "$GPUTEST_NOT_RUNNABLE"
# A test that found itself not runnable was counted by the runner as run.
by_tests=$(grep -vcE '^(cargo-deny|package:|kernels:|suites:|programs:|parsers:|containers:|installation:|pages:)' \
    "$GPUTEST_NOT_RUNNABLE" || true)
echo "$((count - by_tests)) run, $skipped not runnable here"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
