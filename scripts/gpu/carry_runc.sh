#!/usr/bin/env bash
# Copies this machine's runc, with the libraries that it needs besides glibc's, into dist/carried/,
# for verify.sh on a machine that has none. Needs patchelf where runc has such libraries (Debian: apt
# install runc patchelf).
source "$(dirname "$0")/../common.sh"
have runc || die "runc is not installed (Debian: apt install runc)"
mkdir -p dist/carried
cp -L "$(command -v runc)" dist/carried/runc
chmod 755 dist/carried/runc
libraries=$(ldd dist/carried/runc 2>/dev/null | grep -oE '/[^ ]+' | grep -vE '/(ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.)' || true)
if [ -n "$libraries" ]; then
    have patchelf || die "runc needs $(basename -a $libraries | xargs), and patchelf is not installed (Debian: apt install patchelf)"
    for library in $libraries; do cp -L "$library" dist/carried/; done
    patchelf --set-rpath '$ORIGIN' dist/carried/runc
fi
dist/carried/runc --version >&2
note "dist/carried/runc"
