#!/usr/bin/env bash
# The part of an OCI runtime that the hook's tests need, where no runtime is installed: makes the
# container's mounts, calls the hook of the stage createRuntime, pivots, starts the program.
#
#   runtime_by_hand.sh BUNDLE ID "CGROUP_PROCS..." READ_ONLY(0|1) PROGRAM ARGUMENT...
set -e
bundle=$1 id=$2 cgroups=$3 read_only=$4
shift 4
cd "$bundle"
rm -f go made
mkfifo go made
exec 4<&0
(
    for cgroup in $cgroups; do echo "$BASHPID" >"$cgroup"; done
    exec unshare --mount --propagation private bash -c '
        mount --bind rootfs rootfs
        mount --rbind /proc rootfs/proc
        mount --rbind /dev rootfs/dev
        while read -r source target; do
            if [ -d "$source" ]; then mkdir -p "rootfs$target"; else touch "rootfs$target"; fi
            mount --bind "$source" "rootfs$target"
        done <volumes
        echo made >made
        read -r answer <go
        cd rootfs
        [ "$0" = 0 ] || mount -o remount,bind,ro .
        # The new root covers the old one, which is let go.
        pivot_root . .
        umount -l .
        cd "$(cat /.cwd)"
        exec env -i $(cat /.environment) "$@" <&4 4<&-
    ' "$read_only" "$@"
) &
init=$!
read -r answer <made
ended() { exec 2>/dev/null; kill -9 $init; wait $init; exit 1; }
state="{\"ociVersion\":\"1.0.2\",\"id\":\"$id\",\"status\":\"creating\",\"pid\":$init,\"bundle\":\"$bundle\"}"
if [ -s hook ]; then
    mapfile -t hook <hook
    env -i "${hook[@]}" <<<"$state" || ended
fi
echo go >go
exec 4<&-
wait $init
