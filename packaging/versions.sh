#!/bin/sh
# Keeps the library of each installed version in a folder of its own, for as long as a process, a
# mount, an environment or a CDI specification uses it: programs that run across an upgrade start
# their children with the library that they began with. Called by the package's scripts and by
# install.sh.
#
#   versions.sh add     adds the packaged library, makes it current, drops older
#                      versions out of use but for the last one, and names CDI specifications of
#                      older ones
#   versions.sh add all     the same, but drops none: machines that are not seen here use the folder
#   versions.sh users   lists the processes that use another version than the current one, or whose
#                      mounts show one, or whose environment names one: pid, program, version, the
#                      container's id if it is in one
#   versions.sh remove  drops all versions out of use, and names those in use and CDI specifications
#                      of any; once more by a purge
#
# Where the folder is on a file system that other machines may have too, nothing is dropped: their
# programs are not seen here.
#
# The folder that holds this file has package/ (the library and VERSION, the name of its folder),
# versions/, the link libgpushare.so to the current one, and gpushare-preload/ with links to that:
# what gpushare env names, so that each program of a shell loads the version of its start.
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

# Prints whether the environment of a process names a file in this folder: yes or no; with each=1
# the pids of all such processes instead. What it starts loads that, though it maps nothing itself: a
# shell, or a static program under gpushare run. What is not read within the time counts as a use.
is_named() {
    printf '%s\0' /proc/[0-9]*/environ |
        xargs -0 sh -c 'timeout 5 grep -lsF -- "$@"; [ $? != 124 ] || echo "not read in time"' sh "$1/" |
        if [ "${each:-}" ]; then cut -sd/ -f3; else { read -r _ && echo yes || echo no; }; fi
}

# Whether the folder is certainly on a file system of this machine: ext2 to ext4, xfs, btrfs, tmpfs,
# overlayfs, f2fs, zfs or bcachefs, by the number that the kernel has for it.
is_local() {
    case $(stat -f -c %t "$here" 2>/dev/null) in
        ef53 | 58465342 | 9123683e | 1021994 | 794c7630 | f2f52010 | 2fc12fc1 | ca451a4e) ;;
        *) return 1 ;;
    esac
}

# A path in mountinfo's spelling.
spelt() { printf '%s' "$1" | sed 's/\\/\\134/g; s/ /\\040/g; s/	/\\011/g'; }

# Whether uses can be found out here.
can_look() {
    for tool in awk grep sed stat timeout xargs; do command -v $tool >/dev/null || return 1; done
}

# Whether nothing uses this folder. What cannot be found out counts as a use.
unused() {
    can_look || return 1
    [ "$(is_mounted "$(spelt "$1")")" = no ] && [ "$(is_mapped "$1")" = no ] && [ "$(is_named "$1")" = no ]
}

# Makes the links of gpushare-preload/ in a folder $1 lead to the library in the folder $2, which is
# named from there: nothing for that folder itself.
preload() {
    for lib in $libs; do
        mkdir -p "$1/gpushare-preload/$lib"
        up=$(printf '%s' "$lib/" | sed 's,[^/]*/,../,g')
        # Replaced at once: a program may start meanwhile.
        ln -sfn "../$up${2}libgpushare.so" "$1/gpushare-preload/.new"
        mv -T "$1/gpushare-preload/.new" "$1/gpushare-preload/$lib/libgpushare.so"
    done
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
        preload "$folder" ""
    fi
    # A second run of one upgrade keeps the version that the first one kept: the newest other one.
    if [ "${before%%/*}" = "$version" ]; then
        before=$(cd "$here/versions" && ls -td -- */.complete | sed 's,/\.complete$,,' | grep -vxF -e "$version" | head -n 1) || true
    fi
    # Its time says when it became the current one.
    touch "$folder/.complete"
    # An earlier run may have had another umask. All users' programs load the library.
    chmod 755 "$here" "$here/package" "$here/versions"
    chmod -R u=rwX,go=rX "$folder"
    # Replaced at once: a program that starts meanwhile finds the old one or the new one.
    ln -sfn "versions/$version/libgpushare.so" "$here/.libgpushare.so.new"
    mv -T "$here/.libgpushare.so.new" "$here/libgpushare.so"
    preload "$here" ""
    chmod -R u=rwX,go=rX "$here/gpushare-preload"
    # The one before stays in any case: a program that is about to start may have its path already.
    drop "$version" "${before%%/*}" "the next upgrade or removal"
    for folder in "$here"/versions/*; do
        [ "$folder" != "$here/versions/$version" ] || continue
        specifications "$folder" | while IFS= read -r file; do
            echo "gpushare: $file gives containers the library in $folder: for this version: gpushare cdi generate >$file.new && mv $file.new $file"
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
        elif [ "$unseen" ] || ! is_local; then
            echo "gpushare: kept $folder: other machines may use it; remove it once none does"
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
        { each=1 is_mounted "$(spelt "$folder")" || true; each=1 is_mapped "$folder"; each=1 is_named "$folder"; } | sort -nu |
            while read -r pid; do
                # It may end meanwhile.
                program=$(cat "/proc/$pid/comm" 2>/dev/null) || continue
                container=$(sed -nE 's/.*[^0-9a-f]([0-9a-f]{64}).*/ \1/p' "/proc/$pid/cgroup" 2>/dev/null | head -n 1)
                echo "$pid $program ${folder##*/}$container"
            done
    done
}

# Removes the preload of shells; where one of them may have it still, it leads to the version that
# was current, which is printed and stays as long.
forget_preload() {
    [ -d "$here/gpushare-preload" ] || return 0
    last=$(readlink "$here/gpushare-preload/lib/libgpushare.so" 2>/dev/null || true)
    last=${last##*versions/}
    [ ! -L "$here/libgpushare.so" ] || last=$(readlink "$here/libgpushare.so" | sed 's,^versions/,,')
    last=${last%%/*}
    if [ -z "$last" ] || [ ! -d "$here/versions/$last" ] ||
        { can_look && is_local && [ "$(is_named "$here/gpushare-preload")" = no ]; }; then
        rm -rf "$here/gpushare-preload"
    else
        preload "$here" "versions/$last/"
        echo "$last"
    fi
}

unseen=${2:-}
case "${1:-}" in
    add) add ;;
    users) users ;;
    remove)
        last=$(forget_preload)
        rm -f "$here/libgpushare.so"
        for folder in "$here"/versions/*; do
            specifications "$folder" | while IFS= read -r file; do
                echo "gpushare: $file names $folder: no container with a device of it starts any more; remove it"
            done
        done
        drop "" "$last" "a purge or the next installation"
        [ -z "$last" ] || echo "gpushare: kept $here/versions/$last: the environment of a program may lead to it; once none does, a purge or the next installation removes it"
        rmdir "$here/versions" 2>/dev/null || true
        ;;
    *)
        echo "usage: versions.sh add [all]|users|remove" >&2
        exit 2
        ;;
esac
