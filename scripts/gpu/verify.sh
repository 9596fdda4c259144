#!/usr/bin/env bash
# Checks everything that only a real GPU can show, in one command of under 8 minutes, without the
# network: first the machine's description, then one row a fact. Each row is written to a report as
# it finishes, so that an interrupted run keeps its results. Changes none of the card's settings.
#
#   scripts/gpu/verify.sh                  on the GPU; DATE-verify-GPU.{md,log,json} and .transcript.tsv go to $OUT if that is set, else to docs/results/
#   scripts/gpu/verify.sh --only REGEX     only the rows whose names match, such as 'PyTorch time'
#   scripts/gpu/verify.sh --seconds N      for so long at most (460); rows for which no time is left say so
#   scripts/gpu/verify.sh --row N          no row for longer than that
#   scripts/gpu/verify.sh --resume REPORT  only the rows that did not pass in REPORT, an earlier run's .md
#   scripts/gpu/verify.sh --list           only says all rows in their order, with the second at which each ends if it takes as long as it did on
#                                          an H100 or H200 at most: open questions first, and last those that passed
#                                          when they last ran, by the reports in docs/results/, the shortest first
#   scripts/gpu/verify.sh --dist           the binaries in dist/, without a build
#   scripts/gpu/verify.sh --check          only says what a run with the same options would lack; status 1 if that is anything. To ask before a lease of a GPU begins
#   scripts/gpu/verify.sh --soft           a rehearsal on the software GPU, which proves only this script; goes to the target folder
#
# Needs what `cargo build --release` leaves (built here if there is a cargo, in addition to the 8
# minutes' work) or dist/, a C compiler and Python 3.10; PyTorch rows need a python3 that has torch,
# and say "not available" otherwise; rows with containers need root and a runc, installed or carried
# (scripts/gpu/carry_runc.sh). Rows have daemons of their own: it refuses a machine that has its own.
# Never asks for more managed memory than the device has free.
source "$(dirname "$0")/../common.sh"
soft=false dist=false only= seconds=460 list=false check=false more=()
while [ $# -gt 0 ]; do
    case "$1" in
        --soft) soft=true ;;
        --dist) dist=true ;;
        --only) only=${2:?--only needs a regular expression}; shift ;;
        --seconds) seconds=${2:?--seconds needs a number}; shift ;;
        --row) more+=(--row "${2:?--row needs a number}"); shift ;;
        --resume) more+=(--resume "${2:?--resume needs a report}"); shift ;;
        --list) list=true ;;
        --check) check=true ;;
        -h | --help) sed -n '2,22p' "$0" | sed 's/^# \?//'; exit 0 ;;
        *) die "unknown option $1" ;;
    esac
    shift
done
have python3 || die "python3 is not installed"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "python3 is older than 3.10"
! $list || exec python3 scripts/gpu/verify.py --list

# Names what rows need that is not here. Of the programs: those of dist/, where they are to be taken from there.
lacking() {
    local program now of
    have runc || [ -x dist/carried/runc ] || echo "no runc: rows about containers will say so (apt install runc patchelf; scripts/gpu/carry_runc.sh)"
    $dist || return 0
    for program in gpushare gpushared gpushare-oci-hook gpushare-runtime lib/libgpushare.so; do
        [ -e "dist/$program" ] || echo "no dist/$program (scripts/package.sh)"
    done
    of=$(cat dist/COMMIT 2>/dev/null || echo unknown)
    now=$(git describe --always --dirty --exclude '*' 2>/dev/null || echo "$of")
    [ "$of" = "$now" ] || echo "dist/ is of the commit $of, and these scripts are of $now (scripts/package.sh)"
}
lacks=$(lacking)
[ -z "$lacks" ] || note "${lacks//$'\n'/$'\n'   }"
if $check; then
    [ -z "$lacks" ] || exit 1
    exit 0
fi
binaries="$CARGO_TARGET_DIR/release"
$dist && binaries="$PWD/dist"
if ! $dist && have cargo; then
    say "building"
    packages=(-p gpushare -p gpushare-interposer -p gpushared -p gpushare-oci-hook)
    $soft && packages+=(-p softgpu-cuda -p softgpu-nvml)
    timeout 240 cargo build --release --locked --offline "${packages[@]}" >&2 || note "cargo cannot build here; using the existing build"
fi
[ -x "$binaries/gpushare" ] || binaries="$PWD/dist"
[ -x "$binaries/gpushare" ] || die "neither $CARGO_TARGET_DIR/release nor dist/ has gpushare; run scripts/package.sh where there is a network"
out="${OUT:-docs/results}"
$soft && out="${OUT:-$CARGO_TARGET_DIR/verify}"
# The second limit is for what Python cannot end by itself.
exec timeout -k 10 $((seconds + 10)) python3 scripts/gpu/verify.py --gpushare "$binaries/gpushare" $($soft && echo --soft) --out "$out" --seconds "$seconds" --only "$only" "${more[@]}"
