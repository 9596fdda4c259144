#!/usr/bin/env bash
# Makes installable archives of dist/, which package.sh has made: a Debian package (where dpkg-deb
# is installed), a tarball with install.sh, and a tarball with the debug symbols.
#
#   scripts/archives.sh      into dist/archives/
#   REVISION=2 scripts/archives.sh    another build of the same version [default: 1]
source "$(dirname "$0")/common.sh"
# dpkg-deb refuses folders that others cannot enter, and one commit makes the same archives everywhere.
umask 022
case "${1:-}" in -h | --help) sed -n '2,6p' "$0" | sed 's/^# \?//'; exit 0 ;; esac
need tar sha256sum
[ -f dist/lib/libgpushare.so ] || die "there is no dist/; scripts/package.sh makes it"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
revision=${REVISION:-1}
[[ "$revision" =~ ^[0-9A-Za-z.+~]+$ ]] || die "REVISION='$revision': accepted are letters, digits and .+~"
machine=$(uname -m)
case "$machine" in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) die "no archives for $machine" ;; esac
# Files of one commit are archived with its date.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=dist/archives
rm -rf "$out"
mkdir -p "$out"
programs=(dist/gpushare dist/gpushare-exporter dist/gpushared)
# package.sh leaves the hook out where it cannot be built.
[ ! -f dist/gpushare-oci-hook ] || programs+=(dist/gpushare-oci-hook dist/gpushare-runtime)

# files ROOT BIN LIB SHARE: everything but units, scripts and settings, into these folders of ROOT.
files() {
    local bin=$1/$2 lib=$1/$3 share=$1/$4 hash
    mkdir -p "$bin" "$lib/package" "$share/doc/gpushare"
    install -m 755 "${programs[@]}" "$bin"
    install -m 644 dist/lib/libsoftgpu_*.so "$lib"
    install -m 644 dist/lib/libgpushare.so "$lib/package/libgpushare.so"
    hash=$(sha256sum <dist/lib/libgpushare.so | cut -c1-12)
    # Two builds of one version are two libraries.
    echo "$version-$revision-$hash" >"$lib/package/VERSION"
    install -m 755 packaging/versions.sh packaging/wrapped.sh "$lib"
    [ ! -f dist/gpushare-oci-hook ] \
        || install -D -m 644 packaging/hooks.d/gpushare.json "$share/containers/oci/hooks.d/gpushare.json"
    install -m 644 LICENSE "$share/doc/gpushare/copyright"
    install -m 644 packaging/config.toml "$share/doc/gpushare"
    scripts/docs.sh "$share/doc/gpushare"
    dist/gpushare man "$share/man/man1"
    mkdir -p "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d"
    dist/gpushare completions bash >"$share/bash-completion/completions/gpushare"
    dist/gpushare completions zsh >"$share/zsh/site-functions/_gpushare"
    dist/gpushare completions fish >"$share/fish/vendor_completions.d/gpushare.fish"
    install -m 644 dist/monitoring/* "$share/doc/gpushare"
}

tarball() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$1" -czf "$2" "$3"; }

# size FOLDER: its KiB, as Debian's own tool counts them. The blocks that it takes here depend on the
# file system.
size() { find "$1" -printf '%y %s\n' | awk '{ kib += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print kib }'; }

say "archives"
name="gpushare-$version-$revision-linux-$machine"
files "$work/tar/$name" bin lib share
install -m 755 packaging/install.sh "$work/tar/$name"
install -m 644 packaging/gpushared.service packaging/gpushare-exporter.service "$work/tar/$name"
install -m 644 packaging/needrestart.conf "$work/tar/$name/share/doc/gpushare"
tarball "$work/tar" "$out/$name.tar.gz" "$name"
mkdir -p "$work/debug/$name-debug"
install -m 644 dist/debug/*.debug "$work/debug/$name-debug"
tarball "$work/debug" "$out/$name-debug.tar.gz" "$name-debug"

if have dpkg-deb; then
    root="$work/deb"
    files "$root" usr/bin usr/lib/gpushare usr/share
    install -D -m 644 packaging/gpushared.service "$root/usr/lib/systemd/system/gpushared.service"
    install -m 644 packaging/gpushare-exporter.service "$root/usr/lib/systemd/system"
    install -D -m 644 packaging/needrestart.conf "$root/etc/needrestart/conf.d/gpushare.conf"
    # Where Debian's zsh looks; it has site-functions below /usr/local alone.
    mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
    # Before a tilde dpkg sorts nothing: 0.2.0~rc1 is older than 0.2.0.
    debian="${version/-/\~}-$revision"
    mkdir -p "$root/DEBIAN"
    install -m 755 packaging/debian/{preinst,postinst,prerm,postrm} "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<CONTROL
Package: gpushare
Version: $debian
Architecture: $arch
Maintainer: gpushare
Section: admin
Priority: optional
Installed-Size: $(size "$root/usr")
Depends: libc6 (>= 2.17)
Description: lets several tenants share one GPU
 Memory quotas and compute shares for CUDA programs: a library between a
 program and the driver, a node daemon that settles collisions, and a command
 line. A software GPU for trials is included.
CONTROL
    # Changes of it are the operator's, and stay until a purge.
    echo /etc/needrestart/conf.d/gpushare.conf >"$root/DEBIAN/conffiles"
    # What `dpkg --verify` compares with.
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz -z6 --build "$root" "$out/gpushare_${debian}_$arch.deb" >&2
else
    note "no Debian package: dpkg-deb is not installed"
fi
ls -l "$out" >&2
