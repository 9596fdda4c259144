#!/bin/sh
# Keeps the library of each installed version in a folder of its own, for as long as a process or a
# mount uses it: programs that run across an upgrade start their children with the library that they
# began with. Called by the package's scripts and by install.sh.
#
#   versions.sh add     adds the packaged library, makes it current, drops older
#                      versions out of use but for the last one
#   versions.sh remove  drops all versions out of use, and names those in use
#
# The folder that holds this file has package/ (the library and VERSION, the name of its folder),
# versions/ and the link libgpushare.so to the current one.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
# What $LIB of a preload's path may be; musl leaves it as it is, finds no file and goes on.
libs="lib lib64 lib/x86_64-linux-gnu lib/aarch64-linux-gnu"

in_use() { grep -qsF -- "$1/" /proc/[0-9]*/maps || grep -qsE -- "$1( |/)" /proc/[0-9]*/mountinfo; }

add() {
    version=$(cat "$here/package/VERSION")
    before=$(readlink "$here/libgpushare.so" 2>/dev/null || true)
    before=${before#versions/}
    folder="$here/versions/$version"
    if [ ! -e "$folder/.complete" ]; then
        mkdir -p "$folder"
        # A new name for the same file, or a copy: an upgrade replaces the packaged one, never writes
        # into it.
        rm -f "$folder/libgpushare.so"
        ln "$here/package/libgpushare.so" "$folder/libgpushare.so" 2>/dev/null ||
            cp "$here/package/libgpushare.so" "$folder/libgpushare.so"
        for lib in $libs; do
            mkdir -p "$folder/gpushare-preload/$lib"
            up=$(printf '%s' "$lib/" | sed 's,[^/]*/,../,g')
            ln -sfn "../${up}libgpushare.so" "$folder/gpushare-preload/$lib/libgpushare.so"
        done
        : >"$folder/.complete"
    fi
    # Replaced at once: a program that starts meanwhile finds the old one or the new one.
    ln -sfn "versions/$version/libgpushare.so" "$here/.libgpushare.so.new"
    mv -T "$here/.libgpushare.so.new" "$here/libgpushare.so"
    # The one before stays in any case: a program that is about to start may have its path already.
    drop "$version" "${before%%/*}"
}

# Drops versions that nothing uses, but for the two named.
drop() {
    for folder in "$here"/versions/*; do
        [ -d "$folder" ] || continue
        case "${folder##*/}" in "$1" | "$2") continue ;; esac
        if in_use "$folder"; then
            echo "gpushare: kept $folder: programs use it; it goes with the next upgrade or removal"
        else
            rm -rf "$folder"
        fi
    done
}

case "${1:-}" in
    add) add ;;
    remove)
        rm -f "$here/libgpushare.so"
        drop "" ""
        rmdir "$here/versions" 2>/dev/null || true
        ;;
    *)
        echo "usage: versions.sh add|remove" >&2
        exit 2
        ;;
esac
