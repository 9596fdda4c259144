#!/bin/sh
# Keeps the library of each installed version in a folder of its own, for as long as a process, a
# mount or a CDI specification uses it: programs that run across an upgrade start their children with
# the library that they began with. Called by the package's scripts and by install.sh.
#
#   versions.sh add     adds the packaged library, makes it current, drops older
#                      versions out of use but for the last one, and names CDI specifications of
#                      older ones
#   versions.sh users   lists the processes that use another version than the current one, or whose
#                      mounts show one: pid, program, version, the container's id if it is in one
#   versions.sh remove  drops all versions out of use, and names those in use and CDI specifications
#                      of any; once more by a purge
#
# The folder that holds this file has package/ (the library and VERSION, the name of its folder),
# versions/ and the link libgpushare.so to the current one.
set -eu
umask 022
here=$(cd "$(dirname "$0")" && pwd -P)
# What $LIB of a preload's path may be; musl leaves it as it is, finds no file and goes on.
libs="lib lib64 lib/x86_64-linux-gnu lib/aarch64-linux-gnu"

# Prints the place of a folder in its file system: "MAJOR:MINOR PATH", as mountinfo says it of a
# mount of that folder. Nothing where the mount that it is in cannot be seen, as in some chroots.
# Paths are in mountinfo's spelling.
place() {
    folder=$1 awk '
        BEGIN { folder = ENVIRON["folder"]; best = 0 }
        {
            mount = $5 == "/" ? "" : $5
            # Of mounts on one another the last is seen.
            if (index(folder "/", mount "/") == 1 && length(mount) + 1 >= best) {
                best = length(mount) + 1
                device = $3
                path = ($4 == "/" ? "" : $4) substr(folder, length(mount) + 1)
            }
        }
        END { if (best) print device, path }' /proc/self/mountinfo
}

# Prints whether a mount of any process shows this folder or a part of it: yes or no; with each=1
# the pids of all such processes instead. A mount has another path than the folder where that is on
# a file system of its own, and containers have mount namespaces of their own, so the place in the
# file system is compared. Where it is not known, the name of the version has to do: then another
# copy of it may be taken for this one.
is_mounted() {
    at=$(place "$1") &&
        printf '%s\n' /proc/[0-9]*/mountinfo | at=$at name=/versions/${1##*/} awk -v each="${each:-}" '
        BEGIN {
            known = split(ENVIRON["at"], at, " ")
            name = ENVIRON["name"] "/"
        }
        # The first input is the list of files. A process may end before its file is read.
        {
            file = $0
            while (!found && (getline line <file) > 0) {
                split(line, mount, " ")
                root = mount[4] "/"
                is_it = known ? mount[3] == at[1] && index(root, at[2] "/") == 1 : index(root, name)
                if (is_it && each) { split(file, part, "/"); print part[3]; break }
                found = is_it
            }
            close(file)
        }
        END { if (!each) print found ? "yes" : "no" }'
}

# Prints whether a process maps the library of this folder: yes or no; with each=1 the pids of all
# such processes instead. Its path there may be a container's, and its device another one than stat
# names (btrfs, overlays): a library of that number and our name counts as this one. The kernel does
# not show the maps of a process within an exec, which lasts as long as a file system of that
# process's user likes: what is not read within the time is taken for a use, and names no pid.
is_mapped() {
    number=$(stat -c %i "$1/libgpushare.so" 2>/dev/null) || { [ "${each:-}" ] || echo no; return 0; }
    device=$(stat -c %d "$1/libgpushare.so")
    device=$(printf '%02x:%02x' $(((device >> 8) & 0xfff)) $(((device & 0xff) | ((device >> 12) & 0xfff00))))
    printf '%s\0' /proc/[0-9]*/maps |
        xargs -0 sh -c 'timeout 5 grep -lsE -- "$@"; [ $? != 124 ] || echo "not read in time"' sh \
            "^[^ ]+ [^ ]+ [^ ]+ ($device $number |[^ ]+ $number .*/libgpushare\\.so( \\(deleted\\))?\$)" |
        if [ "${each:-}" ]; then cut -sd/ -f3; else { read -r _ && echo yes || echo no; }; fi
}

# A path in mountinfo's spelling.
spelt() { printf '%s' "$1" | sed 's/\\/\\134/g; s/ /\\040/g; s/	/\\011/g'; }

# Whether nothing uses this folder. What cannot be found out counts as a use.
unused() {
    for tool in awk grep sed stat timeout xargs; do command -v $tool >/dev/null || return 1; done
    [ "$(is_mounted "$(spelt "$1")")" = no ] && [ "$(is_mapped "$1")" = no ]
}

# The CDI specifications that name this folder, but for the daemon's own, which it writes anew.
specifications() {
    text=$(printf '%s' "$1" | sed 's/[][\.*^$+?(){}|]/\\&/g')
    grep -slE "$text([/\"',[:space:]]|\$)" /etc/cdi/* /run/cdi/* | while IFS= read -r file; do
        grep -qsxF -e "$file" -e "/var$file" /run/gpushare/cdi || echo "$file"
    done
}

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
    # An earlier run may have had another umask. All users' programs load the library.
    chmod 755 "$here" "$here/package" "$here/versions"
    chmod -R u=rwX,go=rX "$folder"
    # Replaced at once: a program that starts meanwhile finds the old one or the new one.
    ln -sfn "versions/$version/libgpushare.so" "$here/.libgpushare.so.new"
    mv -T "$here/.libgpushare.so.new" "$here/libgpushare.so"
    # The one before stays in any case: a program that is about to start may have its path already.
    drop "$version" "${before%%/*}" "the next upgrade or removal"
    for folder in "$here"/versions/*; do
        [ "$folder" != "$here/versions/$version" ] || continue
        specifications "$folder" | while IFS= read -r file; do
            echo "gpushare: $file gives containers the library in $folder: for this version, gpushare cdi generate >$file"
        done
    done
}

# Drops versions that nothing uses, but for the two named. What removes the others later is named,
# too.
drop() {
    for folder in "$here"/versions/*; do
        [ -d "$folder" ] || continue
        case "${folder##*/}" in "$1" | "$2") continue ;; esac
        specification=$([ -z "$1" ] || specifications "$folder")
        if [ -n "$specification" ]; then
            # Without it no container of its classes would start.
            echo "gpushare: kept $folder: a CDI specification names it; once none does, $3 removes it"
        elif unused "$folder"; then
            rm -rf "$folder"
        else
            echo "gpushare: kept $folder: programs use it; once they have ended, $3 removes it"
        fi
    done
}

# Lists the processes that use another version than the current one. A container has the mount in
# each of its processes, and its next program the library of it.
users() {
    current=$(readlink "$here/libgpushare.so" 2>/dev/null || true)
    current=${current#versions/}
    for folder in "$here"/versions/*; do
        [ -d "$folder" ] && [ "${folder##*/}" != "${current%%/*}" ] || continue
        { each=1 is_mounted "$(spelt "$folder")" || true; each=1 is_mapped "$folder"; } | sort -nu |
            while read -r pid; do
                # It may end meanwhile.
                program=$(cat "/proc/$pid/comm" 2>/dev/null) || continue
                container=$(sed -nE 's/.*[^0-9a-f]([0-9a-f]{64}).*/ \1/p' "/proc/$pid/cgroup" 2>/dev/null | head -n 1)
                echo "$pid $program ${folder##*/}$container"
            done
    done
}

case "${1:-}" in
    add) add ;;
    users) users ;;
    remove)
        rm -f "$here/libgpushare.so"
        for folder in "$here"/versions/*; do
            specifications "$folder" | while IFS= read -r file; do
                echo "gpushare: $file names $folder: no container with a device of it starts any more; remove it"
            done
        done
        drop "" "" "a purge or the next installation"
        rmdir "$here/versions" 2>/dev/null || true
        ;;
    *)
        echo "usage: versions.sh add|users|remove" >&2
        exit 2
        ;;
esac
