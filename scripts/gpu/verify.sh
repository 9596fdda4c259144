#!/usr/bin/env bash
# Everything only a real GPU can show, in one command of under 8 minutes, without the network: a capability table, then one row
# a fact, written to a report as each finishes, so that a run that is cut short has still said what it found.
#
#   scripts/gpu/verify.sh            on the GPU; the report goes to $OUT if that is set, else to docs/results/
#   scripts/gpu/verify.sh --soft     a rehearsal on the software GPU, which proves only this script
#
# Needs what `cargo build --release` leaves (built here if there is a cargo), a C compiler and Python 3; PyTorch rows need a
# python3 that has torch, and say "not available" otherwise. Never asks for more managed memory than the device has free.
source "$(dirname "$0")/../common.sh"
soft=false
case "${1:-}" in
    "") ;;
    --soft) soft=true ;;
    -h | --help) sed -n '2,10p' "$0" | sed 's/^# \?//'; exit 0 ;;
    *) die "unknown option $1" ;;
esac
have python3 || die "python3 is not installed"
binaries="$CARGO_TARGET_DIR/release"
if have cargo; then
    say "building"
    packages=(-p gpushare -p gpushare-interposer -p gpushared)
    $soft && packages+=(-p softgpu-cuda -p softgpu-nvml)
    timeout 240 cargo build --release --locked --offline "${packages[@]}" >&2 || note "cargo cannot build here; using what is there"
fi
[ -x "$binaries/gpushare" ] || binaries="$PWD/dist"
[ -x "$binaries/gpushare" ] || die "neither $CARGO_TARGET_DIR/release nor dist/ has gpushare; run scripts/package.sh where there is a network"
exec python3 scripts/gpu/verify.py --gpushare "$binaries/gpushare" $($soft && echo --soft) --out "${OUT:-docs/results}"
