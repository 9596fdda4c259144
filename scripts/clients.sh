#!/usr/bin/env bash
# The unmodified CUDA programs of the tests, versions pinned, from PyPI into a virtual environment
# under the target folder, made once. Prints the environment's folder; status 3 if PyPI cannot be
# reached.
#
#   scripts/clients.sh            cuda-bindings, cuda-core, nvidia-ml-py, numba-cuda, gpustat, nvitop
#   scripts/clients.sh pycuda     PyCUDA, built here against NVIDIA's headers from PyPI (minutes)
source "$(dirname "$0")/common.sh"
need python3
mkdir -p "$CARGO_TARGET_DIR/venv"
# Several tests may call this at once; one installs, the others wait for it.
exec 9>"$CARGO_TARGET_DIR/venv/.lock-${1:-clients}"
flock 9

case "${1:-}" in
    "")
        venv clients cuda-bindings==12.9.10 cuda-core==1.2.2 nvidia-ml-py==13.615.71 numba==0.68.1 numba-cuda==0.30.4 nvidia-cuda-runtime-cu12==12.9.79 \
            gpustat==1.1.1 nvitop==1.7.2
        ;;
    pycuda)
        headers=$(venv pycuda-headers nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-profiler-api-cu12==12.9.79 nvidia-curand-cu12==10.3.10.19 nvidia-cuda-nvcc-cu12==12.9.86)
        soft="$CARGO_TARGET_DIR/venv/pycuda-link"
        mkdir -p "$soft"
        nvidia=$(echo "$headers"/lib/python3*/site-packages/nvidia)
        # The linker wants the driver and curand under their development names.
        ln -sf "$nvidia/curand/lib/libcurand.so.10" "$soft/libcurand.so"
        library=
        for profile in release debug; do
            found="$CARGO_TARGET_DIR/$profile/libsoftgpu_cuda.so"
            if [ -z "$library" ] && [ -e "$found" ]; then library=$found; fi
        done
        [ -n "$library" ] || die "build softgpu-cuda first: PyCUDA links to a libcuda"
        ln -sf "$library" "$soft/libcuda.so"
        export CPATH="$nvidia/cuda_runtime/include:$nvidia/cuda_profiler_api/include:$nvidia/curand/include:$nvidia/cuda_nvcc/include"
        export LIBRARY_PATH="$soft" LDFLAGS="-L$soft -Wl,-rpath,\$ORIGIN/../nvidia/curand/lib" CUDA_ROOT="$nvidia/cuda_runtime"
        # pip keeps what it has built for other target folders too: libcurand is found beside PyCUDA.
        venv pycuda pycuda==2026.1 numpy==2.4.6 pytest==9.2.0 mako==1.3.10 nvidia-curand-cu12==10.3.10.19
        ;;
    -h | --help) sed -n '2,7p' "$0" | sed 's/^# \?//' ;;
    *) die "unknown set of clients: $1" ;;
esac
