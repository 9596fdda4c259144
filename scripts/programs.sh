#!/usr/bin/env bash
# Programs with kernels of their own on the software GPU: numba's (tests/clients/numba_kernels.py), NVRTC's by
# cuda.core (core_kernels.py), and cudarc's examples. Each runs bare, under a memory limit with and without a
# daemon, and under a cap. Each must compute right, and print the same. Status 3 if the packages cannot be had.
source "$(dirname "$0")/common.sh"
case "${1:-}" in
    "") ;;
    -h | --help) sed -n '2,4p' "$0" | sed 's/^# \?//'; exit 0 ;;
    *) die "unknown option $1" ;;
esac
need cargo python3
cargo build --locked --quiet -p gpushare -p gpushared -p gpushare-interposer -p softgpu-cuda -p softgpu-nvml
mkdir -p "$CARGO_TARGET_DIR/venv" "$CARGO_TARGET_DIR/suites"
exec 9>"$CARGO_TARGET_DIR/venv/.lock-programs"
flock 9
# Without nvJitLink, numba and cuda.core link with the driver, and hand it PTX. The software GPU runs no machine code.
python=$(venv programs numba==0.68.1 numba-cuda==0.30.4 cuda-bindings==12.9.10 cuda-core==1.2.2 numpy==2.4.6 \
    nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-nvcc-cu12==12.9.86) || exit $?
packages=$(echo "$python"/lib/python3*/site-packages/nvidia)

examples="01-allocate 02-copy 03-launch-kernel 04-streams 05-device-repr 09-constant-memory matmul-kernel nvrtc-compile"
source="$CARGO_TARGET_DIR/suites/examples-cudarc"
from=$(cargo metadata --locked --format-version 1 | python3 -c '
import json, os, sys
print(os.path.dirname(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "cudarc")))')
rm -rf "$source"
cp -r "$from" "$source"
# The copy is no member of this workspace.
printf '\n[workspace]\n' >>"$source/Cargo.toml"
# shellcheck disable=SC2046,SC2086
cargo build --quiet --manifest-path "$source/Cargo.toml" --target-dir "$CARGO_TARGET_DIR/suites/built" --no-default-features \
    --features std,driver,nvrtc,dynamic-loading,cuda-12080 $(printf -- '--example %s ' $examples)
flock -u 9

work=$(mktemp -d "${TMPDIR:-/tmp}/gpushare-programs-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/links" "$work/run"
for link in libcuda.so.1 libcuda.so; do ln -s "$CARGO_TARGET_DIR/debug/libsoftgpu_cuda.so" "$work/links/$link"; done
for link in libnvidia-ml.so.1 libnvidia-ml.so; do ln -s "$CARGO_TARGET_DIR/debug/libsoftgpu_nvml.so" "$work/links/$link"; done
export XDG_RUNTIME_DIR="$work/run" XDG_STATE_HOME="$work/state" PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore CUDA_HOME="$packages/cuda_runtime"
spec="name=programs-$$,mem=4GiB"

# run MODE COMMAND...: standard output without times.
run() {
    local mode=$1
    shift
    local library="$packages/cuda_nvrtc/lib"
    local gpushare=("$CARGO_TARGET_DIR/debug/gpushare" run --gpu "soft:$spec")
    (
        # cudarc's examples read files in their folder.
        cd "$source"
        case "$mode" in
            bare) SOFTGPU="$spec" LD_LIBRARY_PATH="$work/links:$library" "$@" ;;
            limit) LD_LIBRARY_PATH="$library" "${gpushare[@]}" --daemon off --mem-limit 1GiB -- "$@" ;;
            daemon) LD_LIBRARY_PATH="$library" "${gpushare[@]}" --daemon on --mem-limit 1GiB -- "$@" ;;
            cap) LD_LIBRARY_PATH="$library" "${gpushare[@]}" --daemon off --sm-limit 50 -- "$@" ;;
        esac
    ) | sed -E 's/[0-9.]+(ns|µs|ms|s)\b/TIME/g'
}

failed=0
# compare NAME COMMAND...
compare() {
    local name=$1 mode
    shift
    for mode in bare limit daemon cap; do
        if ! run "$mode" timeout 300 "$@" >"$work/$mode" 2>"$work/errors"; then
            tail -5 "$work/errors" >&2
            note "$name, $mode: failed"
            failed=1
        elif ! cmp -s "$work/bare" "$work/$mode"; then
            diff "$work/bare" "$work/$mode" >&2 || true
            note "$name, $mode: differs from bare"
            failed=1
        fi
    done
    note "$name: $(grep -c . "$work/bare" || true) lines, in four modes"
}

compare numba "$python/bin/python" "$PWD/tests/clients/numba_kernels.py"
compare cuda.core "$python/bin/python" "$PWD/tests/clients/core_kernels.py"
for example in $examples; do
    compare "cudarc $example" "$CARGO_TARGET_DIR/suites/built/debug/examples/$example"
done
exit "$failed"
