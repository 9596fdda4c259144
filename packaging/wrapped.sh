#!/bin/sh
# Prints what still calls this installation's runtime wrapper, a path a line: settings of engines that
# name it, or a script that calls it, and the folders of containers that it made. An engine's shim calls
# it for each command on such a container: without it none can be stopped, entered or deleted, and none
# starts where it is the default runtime. Called by the package's scripts and by install.sh.
#
#   wrapped.sh PREFIX [ROOT]
#   wrapped.sh PREFIX [ROOT] units    prints the units that do not start without gpushare's daemon
#   wrapped.sh PREFIX [ROOT] hooks    prints files of hooks that name this installation's, and links
#                                     to the one that it brings: engines pass over them without the
#                                     program, and their containers have no limits
set -eu
prefix=$1 root=${2:-} ask=${3:-}
# By its path, or by its name alone as in NVIDIA's list of runtimes; not another installation's.
named="(^|[^[:alnum:]_./-])($prefix/bin/)?gpushare-runtime"
cd "${root:-/}"

case $ask in
    units)
        grep -lsE '^(Assert|Condition)Path[[:alnum:]]*=.*/run/gpushare/|^(Requires|Requisite|BindsTo)=.*gpushared\.service' \
            etc/systemd/system/*.service etc/systemd/system/*.d/*.conf | sed 's|^|/|' || true
        exit 0
        ;;
    hooks)
        own=$prefix/share/containers/oci/hooks.d/gpushare.json
        for file in etc/containers/oci/hooks.d/*.json usr/share/containers/oci/hooks.d/*.json; do
            if [ -L "$file" ]; then
                [ "$(readlink "$file")" != "$own" ] || echo "/$file"
                continue
            fi
            [ "/$file" != "$own" ] || continue
            if grep -qsF "\"$prefix/bin/gpushare-oci-hook\"" "$file"; then echo "/$file"; fi
        done
        exit 0
        ;;
esac

settings="etc/docker/daemon.json etc/systemd/system/docker.service etc/systemd/system/docker.service.d/*.conf
    etc/default/docker etc/sysconfig/docker etc/containerd/config.toml etc/containerd/conf.d/*
    var/lib/rancher/*/agent/etc/containerd/config* var/lib/rancher/*/agent/etc/containerd/config*.d/*
    etc/k0s/containerd.toml etc/k0s/containerd.d/* etc/crio/crio.conf etc/crio/crio.conf.d/*
    etc/containers/containers.conf etc/containers/containers.conf.d/*"
# containerd's shim keeps the program that it calls: the wrapper, or a script that calls it.
bundles=
for engine in containerd docker/containerd/daemon k3s/containerd k0s/containerd; do
    bundles="$bundles run/$engine/io.containerd.runtime.v2.task/*/*/runtime"
done

# Whether the program at this path is a script that calls the wrapper.
calls() {
    [ -f "$root$1" ] && head -c 2 "$root$1" | grep -qs '^#!' && head -c 4096 "$root$1" | grep -qE "$named"
}
# Whether these settings name such a script.
by_script() {
    grep -ohsE '/[^][:space:]"'\'',=[]+' "$1" | sort -u | while IFS= read -r path; do
        if calls "$path"; then echo "$path"; fi
    done | grep -q .
}

# NVIDIA's runtime has a list of those that it calls: in /etc, or beside it, as in the folder where
# the GPU Operator puts its toolkit.
list=.config/nvidia-container-runtime/config.toml
# shellcheck disable=SC2086  # patterns
beside=$(grep -ohsE '/[^"[:space:]]*/nvidia-container-runtime' $settings $bundles |
    sed "s|^/||; s|[^/]*\$|$list|" | sort -u) || true

# shellcheck disable=SC2086
printf '%s\n' $settings etc/nvidia-container-runtime/config.toml usr/local/nvidia/toolkit/$list $beside |
    sort -u | while IFS= read -r file; do
    if grep -qsE "$named" "$file" || by_script "$file"; then echo "/$file"; fi
done

for file in $bundles; do
    [ -f "$file" ] || continue
    program=$(cat "$file")
    if printf '%s\n' "$program" | grep -qE "$named" || calls "$program"; then
        echo "/${file%/runtime}"
    fi
done
