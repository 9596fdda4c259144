#!/usr/bin/env bash
# Compiles every kernel of the tree with NVIDIA's own compilers, without a GPU: the CUDA C++ in
# tests/kernels/, and the PTX written by hand, which drivers compile where it runs, for the oldest
# devices it is for and the newest. The compilers come from PyPI into virtual environments under the
# target folder. Status 3 if they cannot be had.
source "$(dirname "$0")/common.sh"
case "${1:-}" in
    "") ;;
    -h | --help) sed -n '2,4p' "$0" | sed 's/^# \?//'; exit 0 ;;
    *) die "unknown option $1" ;;
esac
need gcc python3
mkdir -p "$CARGO_TARGET_DIR/kernels"
work=$(mktemp -d "$CARGO_TARGET_DIR/kernels/XXXXXX")
trap 'rm -rf "$work"' EXIT
newer=$(venv nvcc nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96)
older=$(venv ptxas nvidia-cuda-nvcc-cu12==12.9.86)
newer=$(echo "$newer"/lib/python3*/site-packages/nvidia/cu13/bin)
older=$(echo "$older"/lib/python3*/site-packages/nvidia/cuda_nvcc/bin)
export PATH="$newer:$PATH"

# assemble NAME: NAME.ptx in the work folder. 12.9 is the last that knows devices older than Turing.
assemble() {
    local at
    for at in "$older/ptxas sm_60" "$older/ptxas sm_70" "$older/ptxas sm_90" "$newer/ptxas sm_75" "$newer/ptxas sm_90" "$newer/ptxas sm_120"; do
        "${at% *}" -arch="${at#* }" -o "$work/out.cubin" "$work/$1.ptx" || die "$1 does not assemble for ${at#* }"
    done
    note "$1: assembles for sm_60 to sm_120"
}

# embedded SOURCE VARIABLE: the PTX that a C file has as a string.
embedded() {
    printf '#define main unused\n#include "%s"\n#undef main\nint main(void) { fputs(%s, stdout); return 0; }\n' "$PWD/$1" "$2" >"$work/$2.c"
    # Unused functions are left out, with their callees.
    cc -ffunction-sections -Wl,--gc-sections -o "$work/$2" "$work/$2.c" -ldl
    "$work/$2" >"$work/$2.ptx"
    assemble "$2"
}

# The texts of softgpu's own tests never run on a GPU.
known="cli/sys/src/meet.ptx cli/sys/src/spin.ptx scripts/gpu/driver.h scripts/gpu/pairs.c scripts/gpu/slice.c softgpu/conformance/engine.c softgpu/conformance/home.c softgpu/conformance/kernel.c softgpu/conformance/launch.c softgpu/conformance/module.c"
found=$(grep -rlE '^ *"?\.version [0-9]|\\n\.target sm_' cli interposer protocol scripts shim-daemon softgpu/conformance tests --include='*.ptx' --include='*.[ch]' --include='*.rs' --include='*.py' | sort | xargs)
[ "$found" = "$known" ] || die "PTX is in $found; this script knows $known"

for source in tests/kernels/*.cu; do
    for arch in sm_75 sm_90 sm_120; do
        nvcc --Werror all-warnings -cubin -arch="$arch" -o "$work/out.cubin" "$source" || die "$source does not compile for $arch"
    done
    note "$source: compiles for sm_75 to sm_120"
done
cp cli/sys/src/spin.ptx cli/sys/src/meet.ptx "$work"
assemble spin
assemble meet
embedded scripts/gpu/driver.h nothing_ptx
embedded scripts/gpu/slice.c leaps_ptx
embedded scripts/gpu/pairs.c spin_ptx
embedded softgpu/conformance/launch.c FILL_PTX
embedded softgpu/conformance/engine.c SPIN_PTX
embedded softgpu/conformance/home.c TOUCH_PTX
embedded softgpu/conformance/module.c MODULE_PTX
embedded softgpu/conformance/kernel.c KERNELS_PTX
nvcc -ptx -arch=compute_75 -o "$work/builtins.ptx" tests/kernels/builtins.cu
python3 scripts/same_spin.py "$work/spin.ptx" "$work/builtins.ptx"
