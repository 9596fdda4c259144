#!/usr/bin/env bash
# Driver tests of public suites, from registry packages at pinned versions, on the software GPU: bare, and
# under gpushare in each mode. Every test must end the same. Ends with a table; status 1 on any
# difference, 3 if PyPI cannot be reached. Nothing of the packages is kept in the repository.
#
#   scripts/suites.sh [SUITE...]    numba-cuda, cuda-python, cudarc, nvml-wrapper; default: all
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

# crate NAME FEATURES: the tests inside a crate that the workspace depends on, at its locked version.
crates="$CARGO_TARGET_DIR/suites"
crate() {
    local from program
    from=$(cargo metadata --locked --format-version 1 | python3 -c '
import json, os, sys
print(os.path.dirname(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == sys.argv[1] and sys.argv[1] in {"cudarc", "nvml-wrapper"})))' "$1")
    mkdir -p "$crates"
    rm -rf "$crates/source-$1"
    cp -r "$from" "$crates/source-$1"
    # The copy is no member of this workspace.
    printf '\n[workspace]\n' >>"$crates/source-$1/Cargo.toml"
    program=$(cargo test --quiet --lib --no-run --no-default-features --features "$2" --message-format json \
        --manifest-path "$crates/source-$1/Cargo.toml" --target-dir "$crates/built" |
        python3 -c 'import json, sys; print([m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")][-1])') || exit $?
    ln -sf "$program" "$crates/$1"
}
wanted=" ${*:-cudarc nvml-wrapper} "
[[ $wanted != *" cudarc "* ]] || crate cudarc std,driver,dynamic-loading,cuda-12080
[[ $wanted != *" nvml-wrapper "* ]] || crate nvml-wrapper legacy-functions
exec python3 scripts/suites.py "$numba" "$python" "$crates" "$@"
