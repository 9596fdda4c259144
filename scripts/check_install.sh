#!/usr/bin/env bash
# Installs the command line by `cargo install`, with the library beside it, and runs a tenant. Then
# installs the Debian package in a fresh Debian root, has `doctor` prove a limit there, runs a tenant,
# upgrades under it, removes all, and fails unless the tenant went on and nothing is left. The long
# tier (`scripts/test.sh --all`) runs it. Needs root, debootstrap and the network; status 3 without
# them.
#
#   scripts/check_install.sh [bookworm|trixie]
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) sed -n '2,8p' "$0" | sed 's/^# \?//'; exit 0 ;; esac
suite=${1:-bookworm}
[[ "$suite" =~ ^(bookworm|trixie)$ ]] || die "which release? bookworm or trixie"
[ -f dist/lib/libgpushare.so ] || scripts/package.sh

# As OPERATIONS says it: without its library the command names the folder where it belongs.
by_cargo() {
    local tree told
    tree=$(mktemp -d)
    local -x XDG_RUNTIME_DIR="$tree/run" XDG_STATE_HOME="$tree/state"
    mkdir -m 700 "$tree/run"
    cargo install --quiet --locked --path cli --root "$tree" 2>"$tree/log" || { cat "$tree/log" >&2; return 1; }
    if told=$("$tree/bin/gpushare" run --gpu soft --mem-limit 1GiB -- true 2>&1); then
        die "it runs programs without its library"
    fi
    [[ "$told" == *"$tree/lib/gpushare"* ]] || die "it does not say where the library belongs: $told"
    install -D -m 644 -t "$tree/lib/gpushare" dist/lib/*.so
    told=$("$tree/bin/gpushare" run --gpu soft --daemon off --mem-limit 1GiB -- "$tree/bin/gpushare" devices)
    [[ "$told" == *"1 GiB"* ]] || die "a tenant does not see its limit: $told"
    "$tree/bin/gpushare" doctor --gpu soft | grep -q '^ok .*limit-holds' || die "doctor does not prove a limit"
    rm -rf "$tree"
    note "cargo install --path cli: runs with the library in ../lib/gpushare, and says so without"
}
by_cargo

[ "$(id -u)" = 0 ] || { note "only root can enter another root"; exit 3; }
for tool in debootstrap dpkg-deb unshare chroot; do have $tool || { note "$tool is not installed"; exit 3; }; done

base="$CARGO_TARGET_DIR/roots/install-$suite"
if [ ! -e "$base/.complete" ]; then
    note "making a root of Debian $suite"
    rm -rf "$base"
    mkdir -p "$base"
    debootstrap --variant=minbase "$suite" "$base" http://deb.debian.org/debian >"$base.log" 2>&1 \
        || { tail -2 "$base.log" >&2; note "Debian $suite cannot be reached"; exit 3; }
    touch "$base/.complete"
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cp -a "$base/." "$root"
for revision in 1 2; do
    REVISION=$revision scripts/archives.sh 2>/dev/null
    cp dist/archives/*.deb "$root/root/$revision.deb"
done
REVISION=1 scripts/archives.sh 2>/dev/null
install -m 755 scripts/install/inside.sh "$root/root/inside.sh"
# A process namespace of its own: what the root starts ends with it.
unshare --mount --pid --fork --kill-child chroot "$root" /bin/sh /root/inside.sh
