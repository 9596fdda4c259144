#!/usr/bin/env bash
# Two containers share one GPU under different quotas: quickstart.sh --containers. With Podman, or
# with bare runc where Podman cannot run. As root, on a software GPU built here, with a daemon of its
# own in a mount namespace: nothing of the machine's is touched. A user's run builds, and names the
# command for root.
source "$(dirname "$0")/common.sh"

mine() { [ "$(stat -c %u .)" = "$(id -u)" ]; }
built() {
    for name in gpushare gpushared gpushare-oci-hook libgpushare.so libsoftgpu_cuda.so libsoftgpu_nvml.so; do
        [ -e "$CARGO_TARGET_DIR/release/$name" ] || return 1
    done
}

# Under sudo there is often no cargo, or none with a toolchain. Where it builds, it leaves root's files
# in the user's target folder, which stop the user's next build.
build() {
    if built && ! { mine && have cargo; }; then
        say "1/4 the programs that were built before"
        return
    fi
    if [ -n "${SUDO_USER:-}" ] && ! mine; then die "first without sudo, which builds: scripts/quickstart.sh --containers"; fi
    need cargo
    say "1/4 building (the first time takes a few minutes)"
    cargo build --release --locked -p gpushare -p gpushared -p gpushare-interposer -p gpushare-oci-hook -p softgpu-cuda -p softgpu-nvml >&2
}

if [ "${GPUSHARE_QUICKSTART:-}" != inside ]; then
    need gcc python3
    build
    again="scripts/quickstart.sh --containers"
    [ "$CARGO_TARGET_DIR" = "$PWD/target" ] || again="env CARGO_TARGET_DIR=$CARGO_TARGET_DIR $again"
    [ "$(id -u)" = 0 ] || die "all is built; containers with a share of a machine's GPU are made by root: sudo $again"
    have podman || have runc || die "neither podman nor runc is installed (Debian: apt install podman)"
    GPUSHARE_QUICKSTART=inside exec unshare --mount --propagation private "$0"
fi

# From here on /run is this script's own; what it mounts ends with it.
build="$CARGO_TARGET_DIR/release"
mount -t tmpfs -o mode=0755 none /run
lab=/run/lab
mkdir -p "$lab"/{library,links,gpu,hooks.d}
chmod 777 "$lab/gpu"
cp "$build/libgpushare.so" "$lab/library/"
for name in libcuda.so.1 libcuda.so; do ln -s "$build/libsoftgpu_cuda.so" "$lab/links/$name"; done
for name in libnvidia-ml.so.1 libnvidia-ml.so; do ln -s "$build/libsoftgpu_nvml.so" "$lab/links/$name"; done
gcc -O1 -o "$lab/quota" tests/clients/quota.c -ldl

say "2/4 the node's daemon, on a software GPU of 16 GiB"
export SOFTGPU="name=quickstart-$$,mem=16GiB"
SOFTGPU_FOLDER="$lab/gpu" LD_LIBRARY_PATH="$lab/links" "$build/gpushared" --state-dir "$lab/state" 2>"$lab/daemon.log" &
daemon=$!
trap 'kill $daemon 2>/dev/null || true; wait' EXIT
for _ in $(seq 100); do grep -q serving "$lab/daemon.log" && break; sleep 0.1; done
grep -q serving "$lab/daemon.log" || die "$(cat "$lab/daemon.log")"

say "3/4 the hook, where Podman looks for hooks"
cat >"$lab/hooks.d/gpushare.json" <<HOOK
{"version": "1.0.0", "hook": {"path": "$build/gpushare-oci-hook", "env": [], "timeout": 10,
  "args": ["gpushare-oci-hook", "--library", "$lab/library", "createRuntime"]},
 "when": {"annotations": {"^gpushare\\\\.io/.*$": ".*"}}, "stages": ["createRuntime"]}
HOOK
note "annotations gpushare.io/mem-limit and its like ask for a share"

say "4/4 two containers, each with the same program, which knows nothing of gpushare"
export LAB="$lab" BUILD="$build"
python3 scripts/quickstart_containers.py "$(have podman && echo podman || echo runc)"
