#!/usr/bin/env bash
# The matrix of container runtimes: each runtime by each door (hook, wrapper, CDI), with a root that
# can be written and one that cannot, with a user namespace and without. A software GPU's client sees
# its quota and hits it in each. Needs root; installs runc, crun and podman with apt-get where they
# are missing (--no-install: takes what is there). Status 3 where no runtime can be had.
#
#   scripts/containers.sh [--no-install]
source "$(dirname "$0")/common.sh"
install=true
case "${1:-}" in
    "") ;;
    --no-install) install=false ;;
    -h | --help) sed -n '2,7p' "$0" | sed 's/^# \?//'; exit 0 ;;
    *) die "unknown option $1" ;;
esac
need cargo
[ "$(id -u)" = 0 ] || { note "containers.sh: only root can make these containers"; exit 3; }
wanted=()
for runtime in runc crun podman; do have "$runtime" || wanted+=("$runtime"); done
if [ ${#wanted[@]} -gt 0 ] && $install && have apt-get; then
    note "installing ${wanted[*]}"
    apt-get update -qq >/dev/null 2>&1 || true
    apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null 2>&1 || note "not all can be installed"
fi
found=()
for runtime in runc crun podman; do
    if have "$runtime"; then found+=("$("$runtime" --version | head -1)"); else note "not here: $runtime"; fi
done
[ ${#found[@]} -gt 0 ] || { note "containers.sh: no runtime is installed"; exit 3; }
printf '   %s\n' "${found[@]}" >&2

log="$CARGO_TARGET_DIR/containers.log"
say "the matrix"
set +e
cargo test --locked -p gpushare-tests --test main containers_runtimes:: -- --ignored --nocapture --test-threads 1 2>&1 |
    tee "$log" | grep -E 'cells passed|read_only|panicked|FAILED|not runnable'
answer=${PIPESTATUS[0]}
set -e
cells=$(awk '/cells passed/ { total += $1 } END { print total + 0 }' "$log")
note "$cells cells passed"
# What this matrix does not have, by name.
for missing in "containerd: not in this matrix" "Docker: not in this matrix" \
    "Debian 13's runtimes: not in this matrix" "youki: not in this matrix"; do
    note "not run: $missing"
done
exit $answer
