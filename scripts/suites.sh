#!/usr/bin/env bash
# Driver tests of public suites, from registry packages at pinned versions, on the software GPU: bare, and
# under gpushare in each mode. Every test must end the same. Ends with a table; status 1 on any
# difference, 3 if PyPI cannot be reached. Nothing of the packages is kept in the repository.
#
#   scripts/suites.sh [SUITE...]    numba-cuda, cuda-python; default: all
#
# tests/data/suites.tsv names each test that fails on the bare software GPU, and why.
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) sed -n '2,8p' "$0" | sed 's/^# \?//'; exit 0 ;; esac
need cargo python3
cargo build --locked --quiet -p gpushare -p gpushared -p gpushare-interposer -p softgpu-cuda -p softgpu-nvml
mkdir -p "$CARGO_TARGET_DIR/venv"
exec 9>"$CARGO_TARGET_DIR/venv/.lock-suites"
flock 9
numba=$(venv suite-numba numba==0.68.1 numba-cuda==0.30.4 cuda-bindings==12.9.10 cuda-core==1.2.2 \
    nvidia-cuda-runtime-cu12==12.9.79 pytest==9.2.0 filecheck==1.0.6 psutil==7.2.2 cffi==2.1.1) || exit $?
python=$(venv suite-cuda-python cuda-python==12.6.0 pytest==9.2.0 numpy==2.4.6 nvidia-cuda-nvrtc-cu12==12.6.85) || exit $?
flock -u 9
exec python3 scripts/suites.py "$numba" "$python" "$@"
