#!/usr/bin/env bash
# Makes dist/: the command line and the library, built against glibc 2.17 so that they load in any
# container image since 2014, and checks that they need nothing newer. Installs zig (as a cross linker)
# and cargo-zigbuild from PyPI.
#
#   scripts/package.sh [--core | --no-hook]
#     --core       only the library; of gpushare and gpushared, as target/debug has them, that each function of the C library
#                  that they call is in the old one (docs/adr/0123)
#     --no-hook    without the hook and the wrapper for containers, which take a Rust target of their own
#
#   dist/gpushare            the command line, and dist/gpushared, the daemon
#   dist/gpushare-oci-hook, dist/gpushare-runtime    for containers, static: no library of a container's node is needed
#   dist/gpushared.service   its systemd unit, for /usr/bin/gpushared
#   dist/gpushare-exporter   its metrics over HTTP, with a unit of its own and rules and a dashboard in dist/monitoring
#   dist/lib/libgpushare.so  the library it preloads
#   dist/lib/gpushare-preload/  links to it for every value of the dynamic linker's $LIB, which musl passes over
#   dist/lib/libsoftgpu_*.so    the software GPU
#   dist/debug/              debug symbols of all of them, found by name (.gnu_debuglink)
#   dist/COMMIT              the commit that they are of; scripts/gpu/verify.sh names it
#   dist/archives/           the same as a Debian package and as tarballs (archives.sh)
source "$(dirname "$0")/common.sh"

all=true hooked=true
case "${1:-}" in
    "") ;;
    --core) all=false ;;
    --no-hook) hooked=false ;;
    -h | --help) sed -n '2,21p' "$0" | sed 's/^# \?//'; exit 0 ;;
    *) die "unknown option $1" ;;
esac
need cargo gcc python3 objcopy strip
arch=$(uname -m)
glibc=2.17
target="$arch-unknown-linux-gnu"

say "tools"
tools=$(venv package ziglang==0.13.0 cargo-zigbuild==0.24.0) || die "without these packages nothing can be packaged"
if have rustup && ! rustup target list --installed | grep -qx "$target"; then
    note "installing the Rust target $target"
    rustup target add "$target" >&2
fi

# Each program names the commit behind its version. Not a tag: it would make another string of the same commit.
commit=$(git describe --always --dirty --exclude '*' 2>/dev/null || true)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
[ -z "$commit" ] || export GPUSHARE_BUILD="$version+$commit"

say "building against glibc $glibc"
# Paths of the build machine must not be in the shipped files.
export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=gpushare --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
export PATH="$tools/bin:$PATH"
build="$CARGO_TARGET_DIR/package"
packages=(-p gpushare-interposer)
programs=()
libraries=(libgpushare)
if $all; then
    packages+=(-p gpushare -p gpushared -p gpushare-exporter -p softgpu-cuda -p softgpu-nvml)
    programs+=(gpushare gpushared gpushare-exporter)
    libraries+=(libsoftgpu_cuda libsoftgpu_nvml)
fi
CARGO_TARGET_DIR="$build" cargo zigbuild --release --locked --target "$target.$glibc" "${packages[@]}" >&2

# links NAME...: whether the old C library has all these functions.
links() {
    local folder answer=0
    folder=$(mktemp -d)
    { echo ".data"; printf '.quad %s\n' "$@"; } >"$folder/needs.s"
    "$tools/bin/python" -m ziglang cc -target "$arch-linux-gnu.$glibc" -shared -Wl,-z,defs -o "$folder/needs.so" "$folder/needs.s" \
        -lpthread -ldl -lm -lrt -lgcc_s 2>"$folder/said" || answer=1
    grep -o "undefined symbol.*" "$folder/said" >&2 || [ $answer -eq 0 ] || cat "$folder/said" >&2
    rm -r "$folder"
    return $answer
}

# The hook starts in whatever a container runtime gives it, so it is static: that takes musl's target.
musl="$arch-unknown-linux-musl"
hooks=()
if $all && $hooked && have rustup && ! rustup target list --installed | grep -qx "$musl"; then
    note "installing the Rust target $musl"
    rustup target add "$musl" >&2 || note "it cannot be installed"
fi
if ! $all; then
    note "no programs, software GPU, hook or archives (--core)"
elif ! $hooked; then
    note "no hook and no wrapper for containers (--no-hook)"
elif [ -d "$(rustc --print sysroot)/lib/rustlib/$musl" ]; then
    say "building the hook without a C library of the node's"
    CARGO_TARGET_DIR="$build" cargo zigbuild --release --locked --target "$musl" -p gpushare-oci-hook >&2
    hooks=(gpushare-oci-hook gpushare-runtime)
elif [ -n "${GPUTEST_NOT_RUNNABLE:-}" ]; then
    note "no hook for containers: the Rust target $musl is not installed"
    echo "package: the static hook: no Rust target $musl" >>"$GPUTEST_NOT_RUNNABLE"
else
    # A package without it installs well, and annotations of containers have no effect.
    die "no hook for containers: the Rust target $musl is not installed (rustup target add $musl); or give --no-hook"
fi

say "dist/"
# What scripts/gpu/carry_runc.sh has left in dist/carried stays.
mkdir -p dist
find dist -mindepth 1 -maxdepth 1 ! -name carried -exec rm -rf {} +
mkdir -p dist/lib
echo "${commit:-unknown}" >dist/COMMIT
# A new file each, never one written over: a running program may have the old one mapped.
for program in "${programs[@]}"; do install -m 755 "$build/$target/release/$program" dist/; done
for hook in "${hooks[@]}"; do install -m 755 "$build/$musl/release/$hook" dist/; done
for library in "${libraries[@]}"; do
    install -m 755 "$build/$target/release/$library.so" "dist/lib/$library.so"
done
for lib in lib lib64 lib/x86_64-linux-gnu lib/aarch64-linux-gnu; do
    mkdir -p "dist/lib/gpushare-preload/$lib"
    ln -sr dist/lib/libgpushare.so "dist/lib/gpushare-preload/$lib/libgpushare.so"
done
for library in dist/lib/*.so; do python3 scripts/unset_symbolic.py "$library"; done
python3 scripts/lighten.py dist/lib/libgpushare.so
mkdir dist/debug
for file in "${programs[@]/#/dist/}" "${hooks[@]/#/dist/}" dist/lib/*.so; do
    objcopy --only-keep-debug "$file" "dist/debug/${file##*/}.debug"
    strip --strip-debug "$file"
    objcopy --add-gnu-debuglink="dist/debug/${file##*/}.debug" "$file"
done
install -m 644 LICENSE README.md packaging/gpushared.service packaging/gpushare-exporter.service dist/
mkdir dist/monitoring
install -m 644 packaging/prometheus/gpushare.rules.yml packaging/grafana/gpushare.json dist/monitoring/
if have systemd-analyze; then
    # The unit names the daemon's install path; the check uses this build.
    checked=$(mktemp -d)
    daemon="$PWD/dist/gpushared"
    $all || daemon="$CARGO_TARGET_DIR/debug/gpushared"
    sed "s|^ExecStart=.*|ExecStart=$daemon|" packaging/gpushared.service >"$checked/gpushared.service"
    systemd-analyze verify "$checked/gpushared.service" || die "systemd does not accept packaging/gpushared.service"
    if $all; then
        sed "s|^ExecStart=[^ ]*|ExecStart=$PWD/dist/gpushare-exporter|" packaging/gpushare-exporter.service >"$checked/gpushare-exporter.service"
        systemd-analyze verify "$checked/gpushare-exporter.service" || die "systemd does not accept packaging/gpushare-exporter.service"
    fi
    rm -r "$checked"
fi
python3 scripts/check_binary.py --max-glibc "$glibc" --alone dist/lib/libgpushare.so
for file in "${programs[@]/#/dist/}" dist/lib/*.so; do
    python3 scripts/check_binary.py --max-glibc "$glibc" "$file"
done
if ! $all; then
    say "what gpushare and gpushared call, in glibc $glibc"
    for program in gpushare gpushared; do
        needs=$(nm --dynamic --undefined-only "$CARGO_TARGET_DIR/debug/$program" | awk '$1 == "U" { sub("@.*", "", $2); print $2 }')
        # shellcheck disable=SC2086 # one name a word
        links $needs || die "$program calls what glibc $glibc has not"
        note "$program: all $(wc -l <<<"$needs") are there"
    done
    ! links memfd_create 2>/dev/null || die "this check finds nothing: glibc $glibc has no memfd_create"
fi
for file in "${hooks[@]/#/dist/}"; do
    ! readelf -lW "$file" | grep -q INTERP || die "$file is not static"
done
! $all || scripts/archives.sh
(cd dist && find . -type f ! -name SHA256SUMS ! -path './carried/*' | sort | xargs sha256sum >SHA256SUMS)
ls -l dist dist/lib >&2
