#!/usr/bin/env bash
# The matrix of container runtimes: those of this machine and those of Debian 13 in a root of its
# own, each by each door (hook, wrapper, CDI), with a root that can be written and one that cannot,
# with a user namespace and without. In each cell a software GPU's client sees its quota, hits it,
# and has its share of time beside another container. Then restarts, crashes, programs that cannot
# be enforced, many containers at once, and times. Needs root; installs what is missing with apt-get
# (--no-install: takes what is there). Status 3 where no runtime can be had.
#
#   scripts/containers.sh [--no-install] [--record] [--times]
#   --record   also writes the table of cells to docs/results/
#   --times    only the times; on a quiet machine
source "$(dirname "$0")/common.sh"
install=true record=false filter=containers_
while [ $# -gt 0 ]; do
    case "$1" in
        --no-install) install=false ;;
        --record) record=true ;;
        --times) filter=containers_times:: ;;
        -h | --help) sed -n '2,13p' "$0" | sed 's/^# \?//'; exit 0 ;;
        *) die "unknown option $1" ;;
    esac
    shift
done
need cargo
[ "$(id -u)" = 0 ] || { note "containers.sh: only root can make these containers"; exit 3; }
declare -A program=([runc]=runc [crun]=crun [podman]=podman [containerd]=containerd [docker.io]=dockerd
    [uidmap]=newuidmap [debootstrap]=debootstrap [musl-tools]=musl-gcc)
wanted=()
for package in "${!program[@]}"; do have "${program[$package]}" || wanted+=("$package"); done
/usr/bin/python3 -c 'import grpc' 2>/dev/null || wanted+=(python3-grpcio)
if [ ${#wanted[@]} -gt 0 ] && $install && have apt-get; then
    note "installing ${wanted[*]}"
    apt-get update -qq >/dev/null 2>&1 || true
    # No package may start a daemon of the machine's.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
        trap 'rm -f $policy' EXIT
    fi
    apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null 2>&1 || note "not all can be installed"
fi
youki="$CARGO_TARGET_DIR/youki"
if $install && [ ! -x "$youki/bin/youki" ]; then
    note "building youki (minutes, once)"
    CARGO_TARGET_DIR="$youki/build" cargo install --quiet youki --version 0.7.0 --no-default-features --features v1,v2 \
        --root "$youki" --locked >/dev/null 2>&1 || note "youki cannot be built"
    rm -rf "$youki/build"
fi
found=()
for runtime in runc crun "$youki/bin/youki" podman containerd dockerd; do
    if have "$runtime"; then found+=("$("$runtime" --version | head -1)"); else note "not here: $runtime"; fi
done
[ ${#found[@]} -gt 0 ] || { note "containers.sh: no runtime is installed"; exit 3; }
printf '   %s\n' "${found[@]}" >&2

if rustup target list --installed 2>/dev/null | grep -q "$(uname -m)-unknown-linux-musl"; then
    # The times are those of the hook that the package has.
    cargo build --quiet --release --locked -p gpushare-oci-hook --target "$(uname -m)-unknown-linux-musl" \
        && export GPUTEST_HOOK="$CARGO_TARGET_DIR/$(uname -m)-unknown-linux-musl/release/gpushare-oci-hook"
fi
# The times are of what is shipped.
[ -f dist/lib/libgpushare.so ] && export GPUTEST_LIBRARY="$PWD/dist/lib/libgpushare.so"
[ "$filter" = containers_times:: ] && [ -f dist/gpushared ] && export GPUTEST_DAEMON="$PWD/dist/gpushared"
log="$CARGO_TARGET_DIR/containers.log"
say "containers"
set +e
cargo test --locked -p gpushare-tests --test main "$filter" -- --ignored --nocapture --test-threads 1 2>&1 |
    tee "$log" | grep -E '(cell|time): |panicked|FAILED|not runnable|^test result'
answer=${PIPESTATUS[0]}
set -e
# A test's first line follows the test's name.
sed -n 's/^.*cell: /| /p' "$log" | sed 's/$/ |/' >"$log.cells"
count() { grep -cE "$1" "$log.cells" || true; }
note "$(count '\| passed \|$') cells passed, $(count 'FAILED') failed, $(count 'not run: ') do not exist or cannot run here:"
sed -n 's/^| \([^|]*\) | \([^|]*\) | \([^|]*\) |.*| not run: \(.*\) |$/\1, \2, by \3: \4/p' "$log.cells" | sort | uniq -c >&2
not_here="CRI-O, kubelet and nerdctl: not packaged by Debian"
note "not here: $not_here"
if $record; then
    results="docs/results/$(date +%F)-containers.md"
    {
        echo "# Containers on $(date +%F)"
        echo
        echo "By \`scripts/containers.sh --record\`: $(count '\| passed \|$') cells passed, $(count 'FAILED') failed,"
        echo "$(count 'not run: ') do not exist or were not run. In each cell a client of the software GPU"
        echo "sees its quota, hits it, and has its share of time beside another container."
        echo "Kernel $(uname -r), load average $(cut -d' ' -f1 /proc/loadavg). Not here:"
        echo "$not_here."
        echo
        echo "| release | runtime | door | root | user namespace | result |"
        echo "|---|---|---|---|---|---|"
        cat "$log.cells"
        echo
        sed -n 's/^.*time: /- /p' "$log"
    } >"$results"
    note "written to $results"
fi
exit $answer
