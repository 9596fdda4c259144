#!/usr/bin/env bash
# Builds gpushare and shows its main job: two unmodified CUDA programs, one in C and one in Python,
# share one GPU under different quotas. One reaches its limit and gets CUDA's out-of-memory error;
# its neighbour is unaffected.
#
# Needs Rust, gcc and Python 3. Uses a real GPU if there is one, else the software GPU built here.
# Installs cuda-bindings from PyPI into a virtual environment under the target folder; without PyPI
# both programs are in C.
#
#   scripts/quickstart.sh
#   scripts/quickstart.sh --containers   the same with two containers, by Podman or bare runc: builds, and says how root goes on
source "$(dirname "$0")/common.sh"
case "${1:-}" in
    "") ;;
    --containers) exec scripts/quickstart_containers.sh ;;
    -h | --help) sed -n '2,11p' "$0" | sed 's/^# \?//'; exit 0 ;;
    *) die "unknown option $1" ;;
esac
need cargo gcc python3

say "1/4 building (the first time takes a few minutes)"
cargo build --release --locked -p gpushare -p gpushared -p gpushare-interposer -p softgpu-cuda -p softgpu-nvml >&2
gpushare="$CARGO_TARGET_DIR/release/gpushare"

say "2/4 a GPU"
if "$gpushare" devices >&2 2>/dev/null; then
    gpu=auto
    note "using this real GPU"
else
    gpu="soft:name=quickstart-$$,mem=16GiB"
    note "no real GPU, so: gpushare run --gpu $gpu"
fi

say "3/4 two programs that know nothing of gpushare"
mkdir -p "$CARGO_TARGET_DIR/quickstart"
c_program="$CARGO_TARGET_DIR/quickstart/quota"
gcc -O1 -o "$c_program" tests/clients/quota.c -ldl
note "C:      tests/clients/quota.c"
if python=$(venv quickstart cuda-bindings==12.9.10); then
    other=("$python/bin/python" tests/clients/quota.py)
    note "Python: tests/clients/quota.py (NVIDIA's cuda-bindings)"
else
    other=("$c_program")
    note "C again, because PyPI cannot be reached"
fi

say "4/4 running them side by side"
python3 scripts/quickstart.py "$gpushare" "$gpu" "$c_program" "${other[@]}"

say "from here on"
note "PATH=$CARGO_TARGET_DIR/release:\$PATH"
python3 scripts/quickstart_advice.py "$gpushare" "$gpu"
