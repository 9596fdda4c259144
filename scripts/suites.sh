#!/usr/bin/env bash
# Driver tests of public suites, from registry packages at pinned versions, on the software GPU: bare, and
# under gpushare in each mode. Every test must end the same. Ends with a table; status 1 on any
# difference, 3 if PyPI cannot be reached. Nothing of the packages is kept in the repository.
#
#   scripts/suites.sh [SUITE...]    numba-cuda, cuda-python, pycuda, cudarc, rustacuda, nvml-wrapper; default: all
#
# tests/data/suites.tsv names each test that fails on the bare software GPU, and why.
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) sed -n '2,8p' "$0" | sed 's/^# \?//'; exit 0 ;; esac
need cargo python3
cargo build --locked --quiet -p gpushare -p gpushared -p gpushare-interposer -p softgpu-cuda -p softgpu-nvml
mkdir -p "$CARGO_TARGET_DIR/venv"
exec 9>"$CARGO_TARGET_DIR/venv/.lock-suites"
flock 9
# Without nvJitLink numba links with the driver, which gets PTX: the software GPU runs no machine code.
numba=$(venv suite-numba numba==0.68.1 numba-cuda==0.30.4 cuda-bindings==12.9.10 cuda-core==1.2.2 \
    nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-nvcc-cu12==12.9.86 \
    nvidia-cuda-cccl-cu12==12.9.27 pytest==9.2.0 filecheck==1.0.6 psutil==7.2.2 cffi==2.1.1) || exit $?
python=$(venv suite-cuda-python cuda-python==12.6.0 pytest==9.2.0 numpy==2.4.6 nvidia-cuda-nvrtc-cu12==12.6.85) || exit $?
flock -u 9

crates="$CARGO_TARGET_DIR/suites"
wanted=" ${*:-pycuda cudarc rustacuda nvml-wrapper} "
mkdir -p "$crates"
# PyCUDA's tests are in its source archive only. They call nvcc.
if [[ $wanted == *" pycuda "* ]]; then
    pycuda=$(scripts/clients.sh pycuda) || exit $?
    nvcc=$(venv nvcc nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96) || exit $?
    if [ ! -e "$crates/pycuda/2026.1" ]; then
        note "fetching the tests of PyCUDA 2026.1"
        rm -rf "$crates/pycuda"
        mkdir -p "$crates/pycuda"
        "$pycuda/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary pycuda \
            --dest "$crates/pycuda" pycuda==2026.1 >&2 || { note "PyPI did not give: pycuda 2026.1"; exit 3; }
        tar -xzf "$crates/pycuda/pycuda-2026.1.tar.gz" -C "$crates/pycuda" --strip-components=1
        touch "$crates/pycuda/2026.1"
    fi
    export SUITE_PYCUDA="$pycuda/bin/python"
    SUITE_NVCC=$(echo "$nvcc"/lib/python3*/site-packages/nvidia/cu13/bin)
    export SUITE_NVCC
fi

# crate NAME FEATURES [MANIFEST]: the tests inside a crate, at its locked version in the workspace, or in the project of
# MANIFEST.
crate() {
    local from program project=(--locked)
    [ $# -lt 3 ] || project=(--manifest-path "$3")
    from=$(cargo metadata "${project[@]}" --format-version 1 | python3 -c '
import json, os, sys
print(os.path.dirname(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == sys.argv[1])))' "$1")
    rm -rf "$crates/source-$1"
    cp -r "$from" "$crates/source-$1"
    # The copy is no member of this workspace.
    printf '\n[workspace]\n' >>"$crates/source-$1/Cargo.toml"
    program=$(cargo test --quiet --lib --no-run --no-default-features ${2:+--features "$2"} --message-format json \
        --manifest-path "$crates/source-$1/Cargo.toml" --target-dir "$crates/built" |
        python3 -c 'import json, sys; print([m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")][-1])') || exit $?
    ln -sf "$program" "$crates/$1"
}
[[ $wanted != *" cudarc "* ]] || crate cudarc std,driver,dynamic-loading,cuda-12080
# No crate of the workspace needs RustaCUDA, which links to a libcuda.
if [[ $wanted == *" rustacuda "* ]]; then
    mkdir -p "$crates/rustacuda-project/src" "$crates/link/lib64"
    printf '[package]\nname = "of-rustacuda"\nversion = "0.0.0"\nedition = "2024"\n[dependencies]\nrustacuda = "=0.1.3"\n[workspace]\n' >"$crates/rustacuda-project/Cargo.toml"
    touch "$crates/rustacuda-project/src/lib.rs"
    ln -sf "$CARGO_TARGET_DIR/debug/libsoftgpu_cuda.so" "$crates/link/lib64/libcuda.so"
    CUDA_LIBRARY_PATH="$crates/link" crate rustacuda "" "$crates/rustacuda-project/Cargo.toml"
fi
[[ $wanted != *" nvml-wrapper "* ]] || crate nvml-wrapper legacy-functions
exec python3 scripts/suites.py "$numba" "$python" "$@"
