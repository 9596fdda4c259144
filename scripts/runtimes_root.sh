#!/usr/bin/env bash
# Makes a root of a Debian release with that release's container runtimes under the target folder,
# once, and prints its path. The machine itself is not changed. Needs root, debootstrap and the
# network; status 3 without them.
#
#   scripts/runtimes_root.sh bookworm|trixie
source "$(dirname "$0")/common.sh"
suite=${1:-}
[[ "$suite" =~ ^(bookworm|trixie)$ ]] || die "which release? bookworm or trixie"
packages=(runc crun podman containerd docker.io python3-grpcio)
[ "$suite" = bookworm ] || packages+=(docker-cli)
root="$CARGO_TARGET_DIR/roots/runtimes-$suite"
mkdir -p "$CARGO_TARGET_DIR/roots"
exec 9>"$CARGO_TARGET_DIR/roots/.runtimes.lock"
flock 9
[ -e "$root/.complete" ] && { echo "$root"; exit 0; }
[ "$(id -u)" = 0 ] || { note "only root can make another root"; exit 3; }
for tool in debootstrap unshare chroot; do have $tool || { note "$tool is not installed"; exit 3; }; done

note "making a root of Debian $suite with its container runtimes (minutes)"
rm -rf "$root"
mkdir -p "$root"
debootstrap --variant=minbase "$suite" "$root" http://deb.debian.org/debian >"$root.log" 2>&1 \
    || { tail -2 "$root.log" >&2; note "Debian $suite cannot be reached"; exit 3; }
# No package may start a service.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
# A process namespace of its own: what an installation starts ends with it.
unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" \
    chroot "$root" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq -y --no-install-recommends "${packages[@]}" >>"$root.log" 2>&1 \
    || { tail -2 "$root.log" >&2; note "Debian $suite's runtimes cannot be installed"; exit 3; }
rm -rf "$root"/var/cache/apt/archives/*.deb
touch "$root/.complete"
echo "$root"
