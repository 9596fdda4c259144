#!/bin/sh
# Installs what this folder holds, or removes it. As root; nothing is downloaded.
#
#   ./install.sh [--prefix DIR] [--no-start]   default: /usr/local; a second run upgrades
#   ./install.sh --uninstall [--prefix DIR]    keeps settings, journal, and library versions in use;
#                                              ends with 1 where another prefix has the daemon
#   ./install.sh --purge [--prefix DIR]        as --uninstall, without settings and journal
#
# With systemd it installs, enables and starts gpushared.service. A running daemon is restarted:
# tenants run on. DESTDIR puts everything below another root and starts nothing.
set -eu
# All users' programs load the library.
umask 022
here=$(cd "$(dirname "$0")" && pwd -P)
prefix=/usr/local start=yes action=install purge=no
while [ $# -gt 0 ]; do
    case "$1" in
        --prefix) prefix=${2:?--prefix needs a folder}; shift ;;
        --no-start) start=no ;;
        --uninstall) action=uninstall ;;
        --purge) action=uninstall purge=yes ;;
        -h | --help) sed -n '2,10p' "$0" | sed 's/^# \?//'; exit 0 ;;
        *) echo "install.sh: unknown option $1; see --help" >&2; exit 2 ;;
    esac
    shift
done
prefix=${prefix%/}
case "$prefix" in /*) ;; *) echo "install.sh: --prefix is an absolute path other than /, not '$prefix'" >&2; exit 2 ;; esac
root=${DESTDIR:-}
bin="$root$prefix/bin" lib="$root$prefix/lib/gpushare" units="$root/etc/systemd/system"
# Where a package has its units. One of the same name in $units hides it.
packaged="$root/usr/lib/systemd/system"
hook=share/containers/oci/hooks.d/gpushare.json
systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

# The program that a unit starts; another one may be in front of it, such as numactl. Nothing where
# there is no such unit.
program() {
    awk '/^ExecStart=/ {
        sub(/^ExecStart=[ \t]*[-@:+!|]*/, "")
        name = $1
        for (at = NF; at; at--) if ($at ~ /(^|\/)gpushare(d|-exporter)$/) name = $at
        if (name == "" || !found) found = name
    } END { if (found) print found }' "$1" 2>/dev/null || true
}
# Whether the unit of this name starts this installation's program.
own() { [ "$(program "$units/$1")" = "$prefix/bin/${1%.service}" ]; }

# In place of the old file, never into it: a program may be running from that. What is below the
# prefix is noted, for later upgrades and the removal.
put() {
    mkdir -p "$(dirname "$3")"
    cp "$2" "$3.new"
    chmod "$1" "$3.new"
    mv "$3.new" "$3"
    case "$3" in "$root$prefix"/*) echo "${3#"$root"}" >>"$list" ;; esac
}

# Puts a unit into place. A file that was changed since the last installation is left to its
# operator: its flags may be those that limits depend on.
put_unit() {
    at="$units/$1" noted="$lib/$1"
    if own "$1" && [ -f "$noted" ] && [ "$(cat "$at")" != "$(cat "$noted")" ] && [ "$(cat "$at")" != "$(cat "$2")" ]; then
        put 644 "$2" "$at.new"
        echo "kept $at, which was changed; this version's is $at.new: move it there, with changes in a drop-in (systemctl edit $1)" >&2
    else
        put 644 "$2" "$at"
        rm -f "$at.new"
    fi
    put 644 "$2" "$noted"
}

# Files that an older version brought and this one does not. The hook, its file and the wrapper stay until a
# removal, which says who calls them: without them engines start containers without limits, or none.
drop_old() {
    [ -f "$lib/installed" ] || return 0
    grep -vxF -f "$list" "$lib/installed" | while IFS= read -r path; do
        case "$path" in
            "$prefix"/bin/gpushare-oci-hook | "$prefix"/bin/gpushare-runtime | "$prefix/$hook") echo "$path" >>"$list" ;;
            "$prefix"/*) rm -f "$root$path" ;;
        esac
    done || true
    prune
}

# The folders of pages that are empty, the innermost first.
prune() { find "$root$prefix/share/doc/gpushare" -depth -type d -exec rmdir {} + 2>/dev/null || true; }

install_all() {
    case "$prefix/" in /home/* | /root/* | /run/user/* | /tmp/* | /var/tmp/*)
        echo "install.sh: the unit hides $prefix from its daemon (ProtectHome=, PrivateTmp=): take another --prefix" >&2
        exit 2
        ;;
    esac
    # Others mean something in a unit, or lead elsewhere than they say.
    case "$prefix/" in *[!A-Za-z0-9._/+@:-]* | *//* | */./* | */../*)
        echo "install.sh: --prefix has letters, digits and ._+@:- between single slashes, not '$prefix'" >&2
        exit 2
        ;;
    esac
    list=$(mktemp)
    for program in "$here"/bin/*; do put 755 "$program" "$bin/${program##*/}"; done
    for file in "$here"/lib/*; do
        case "$file" in *.so) put 644 "$file" "$lib/${file##*/}" ;; esac
    done
    put 644 "$here/lib/package/libgpushare.so" "$lib/package/libgpushare.so"
    put 644 "$here/lib/package/VERSION" "$lib/package/VERSION"
    put 755 "$here/lib/versions.sh" "$lib/versions.sh"
    # Programs of machines that have another root as their own are not seen here.
    "$lib/versions.sh" add ${root:+all}
    # A removed package's, whose purge would remove the library and the wrapper with it.
    rm -f "$lib/kept.sh" "$lib/kept-runtime" "$lib/kept-wrapped.sh"
    unit=$(mktemp)
    for service in gpushared gpushare-exporter; do
        sed "s|^ExecStart=/usr/bin/|ExecStart=$prefix/bin/|" "$here/$service.service" >"$unit"
        put_unit "$service.service" "$unit"
    done
    rm "$unit"
    # Engines pass over a file of hooks that names a program which is not there, and start containers
    # without limits: so it is put there with its path.
    (cd "$here/share" && find . -type f) | while read -r file; do
        [ "share/${file#./}" = $hook ] || put 644 "$here/share/$file" "$root$prefix/share/$file"
    done
    if [ -f "$here/$hook" ]; then
        own=$(mktemp)
        sed "s|\"/usr/bin/|\"$prefix/bin/|g" "$here/$hook" >"$own"
        put 644 "$own" "$root$prefix/$hook"
        rm "$own"
    fi
    drop_old
    sort -u "$list" >"$list.sorted"
    put 644 "$list.sorted" "$lib/installed"
    rm "$list" "$list.sorted"
    if systemd; then systemctl daemon-reload; fi
    if [ "$start" = yes ] && systemd; then
        systemctl enable gpushared.service
        # A machine that gets its driver later has the installation all the same.
        state=runs
        if ! systemctl is-active --quiet gpushared.service; then
            restart
        elif ! settings_hold; then
            stays "these settings would end it; correct them, then: systemctl restart gpushared"
        elif ! driver_fits; then
            stays "it would find no driver: reboot"
        else
            restart
        fi
        if systemctl is-active --quiet gpushare-exporter.service && ! exporter_starts; then
            echo "gpushare-exporter.service is not restarted and runs on as before, because this version would not accept its flags: correct them (systemctl cat gpushare-exporter), then: systemctl restart gpushare-exporter" >&2
        else
            systemctl try-restart gpushare-exporter.service || echo "gpushare-exporter.service did not start: journalctl -u gpushare-exporter" >&2
        fi
        echo "installed below $prefix; gpushared.service is enabled and $state; next: $prefix/bin/gpushare doctor"
    else
        echo "installed below $root$prefix; no daemon was started; next: $prefix/bin/gpushare doctor"
    fi
}

# The outcome for the daemon, in state.
restart() {
    systemctl restart gpushared.service || state="did not start (journalctl -u gpushared; without a GPU driver, with one that was upgraded since the boot, or with settings that it refuses, it cannot)"
}
stays() {
    state="runs on as before: not restarted, because $1; until then programs and containers that start are refused if it speaks another protocol (gpushare doctor says)"
}

# Whether a daemon that starts now finds a driver. After an upgrade of the driver it finds none before
# the boot (69); one that runs serves on. Of libraries that are the unit's own nothing is known here.
driver_fits() {
    case $(systemctl show -p Environment gpushared.service) in *LD_LIBRARY_PATH=*) return 0 ;; esac
    fits=0
    "$bin/gpushared" --check-driver >/dev/null || fits=$?
    [ $fits != 69 ]
}

# The flags of a unit's program, behind its own name: another program may be in front of it. Where none
# is it, they are as unknown as a variable.
flags_of() {
    systemctl show -p ExecStart "$1" | sed -n 's/.*argv\[\]=\([^;]*\);.*/\1/p' | awk -v name="${1%.service}" '{
        at = 0
        while (++at <= NF && $at != name && substr($at, length($at) - length(name)) != "/" name) ;
        if (at > NF) print "--config $none"
        while (++at <= NF) printf "%s ", $at }'
}

# Whether the exporter takes the flags of its unit, else 2: its end would be seen by nobody.
exporter_starts() {
    flags=$(flags_of gpushare-exporter.service)
    case $flags in *[\$\"\'*?[\\]*) return 0 ;; esac
    taken=0
    # shellcheck disable=SC2086  # words, as systemd shows them
    "$bin/gpushare-exporter" $flags --version >/dev/null || taken=$?
    [ $taken != 2 ]
}

# Whether the daemon takes the settings (else 78) and the flags (else 2) of its unit. With wrong ones it
# would end, and not be tried again; one that runs has those that it read. A file that is not seen
# here (a variable in its name, a blank, a folder of the unit alone) says nothing.
settings_hold() {
    flags=$(flags_of gpushared.service)
    config=$(printf ' %s' "$flags" | sed -n 's/.* --config[ =]\([^ ]*\).*/\1/p')
    [ -z "$config" ] || { [ -f "$config" ] && [ -r "$config" ]; } || return 0
    held=0
    # shellcheck disable=SC2086  # words, as systemd shows them; what it does not show plainly is left out
    case $flags in
        *[\$\"\'*?[\\]*) "$bin/gpushared" ${config:+--config "$config"} --check-config ;;
        *) "$bin/gpushared" $flags --check-config ;;
    esac >/dev/null || held=$?
    [ $held != 78 ] && [ $held != 2 ]
}

# Removes a folder below the prefix, and those it is in, as far as they are empty. Those of /usr and
# /usr/local are the system's.
leave() {
    case "$prefix" in /usr | /usr/local) return ;; esac
    (cd "$root$prefix" 2>/dev/null && rmdir -p "$1" 2>/dev/null) || true
}

# Removes a unit, if it is this installation's. A package's that it hid is enabled, and runs, if this
# one was and did. One that waits for its next start (without a driver) counts as running.
retire() {
    own "$1" || return 0
    enabled=no active=no
    if systemd; then
        ! systemctl is-enabled --quiet "$1" || enabled=yes
        case $(systemctl show -p ActiveState "$1") in *=active | *=activating | *=reloading) active=yes ;; esac
        systemctl disable --now "$1" || echo "$1 could not be stopped: systemctl status $1" >&2
    fi
    rm -f "$units/$1" "$units/$1.new"
    systemd || return 0
    systemctl daemon-reload
    [ -e "$packaged/$1" ] || return 0
    echo "$packaged/$1 is the machine's now"
    [ $enabled = no ] || systemctl enable "$1" || true
    [ $active = no ] || systemctl start "$1" || echo "$1 did not start: journalctl -u $1" >&2
}

# Whether there is something to remove: an installation, or what a removal kept or left when it was cut
# short. A purge also takes what the last installation's removal left of the machine.
installed() {
    for path in "$bin/gpushare" "$bin/gpushare-runtime" "$lib" "$root$prefix/share/doc/gpushare"; do
        [ ! -e "$path" ] || return 0
    done
    own gpushared.service || own gpushare-exporter.service || { [ "$purge" = yes ] && ! others >/dev/null; }
}

uninstall_all() {
    if ! installed; then
        none="nothing is installed below $root$prefix"
        other=$(program "$units/gpushared.service")
        [ -n "$other" ] || other=$(others) || { echo "$none"; exit 0; }
        echo "install.sh: $none; the daemon is $other" >&2
        exit 1
    fi
    retire gpushare-exporter.service
    retire gpushared.service
    needs=
    if [ -e "$bin/gpushare-runtime" ]; then
        needs=$(sh "$here/lib/wrapped.sh" "$prefix" "$root") || needs="it cannot be found out which"
        needs=$(echo "$needs" | head -n 5 | tr '\n' ' ' | sed 's/ *$//')
    fi
    list=$(mktemp)
    {
        [ ! -f "$lib/installed" ] || cat "$lib/installed"
        (cd "$here" && find bin share -type f) | sed "s|^|$prefix/|"
    } | sort -u >"$list"
    while IFS= read -r path; do
        case "$path" in
            "$prefix/bin/gpushare-runtime") [ -n "$needs" ] || rm -f "$root$path" ;;
            "$prefix"/bin/* | "$prefix"/share/*)
                rm -f "$root$path"
                leave "$(dirname "${path#"$prefix"/}")"
                ;;
        esac
    done <"$list"
    rm "$list"
    [ -z "$needs" ] ||
        echo "kept $bin/gpushare-runtime, which engines call: $needs. Name runc in its place (or NVIDIA's runtime, where it calls that) and keep the runtime's name, which containers have stored; restart the engines, let running containers end, then run this again" >&2
    [ ! -e "$lib/versions.sh" ] || "$lib/versions.sh" remove
    rm -rf "$lib/package"
    rm -f "$lib"/*.so "$lib"/*.service "$lib/installed"
    # While programs use versions, for the next removal.
    [ -e "$lib/versions" ] || rm -f "$lib/versions.sh"
    rmdir "$lib" 2>/dev/null || true
    # Of the folders only those that were made for the hook and are empty again.
    for folder in containers/oci/hooks.d containers/oci containers; do
        rmdir "$root$prefix/share/$folder" 2>/dev/null || true
    done
    prune
    leave bin
    leave lib
    case "$prefix" in /usr | /usr/local) ;; *) rmdir "$root$prefix" 2>/dev/null || true ;; esac
    # Where another installation's daemon runs, its units start. Our own is gone by now.
    leans=$(others >/dev/null || sh "$here/lib/wrapped.sh" "$prefix" "$root" units)
    leans=$(echo "$leans" | tr '\n' ' ' | sed 's/ *$//')
    [ -z "$leans" ] ||
        echo "these keep engines from starting without gpushare: $leans. Remove them, then: systemctl daemon-reload" >&2
    hooks=$(sh "$here/lib/wrapped.sh" "$prefix" "$root" hooks | tr '\n' ' ' | sed 's/ *$//')
    [ -z "$hooks" ] ||
        echo "engines pass over these files, whose hook is gone, so that their containers run without limits: $hooks. Remove them" >&2
    if others >/dev/null; then
        echo "removed from $root$prefix; the folders of the daemon are another installation's"
        if [ ! -e "$units/gpushared.service" ] && [ ! -e "$packaged/gpushared.service" ]; then
            echo "no unit starts that one's daemon: run its install.sh again" >&2
        fi
    elif [ "$purge" = yes ]; then
        forget_classes
        rm -f "$root/etc/gpushare/config.toml"
        rmdir "$root/etc/gpushare" 2>/dev/null || true
        rm -rf "$root/run/gpushare" || true
        # By name: a disk may be mounted at the folder of [swap] spill, with more on it than the
        # daemon's files, which have no names.
        state="$root/var/lib/gpushare"
        rm -f "$state"/journal.jsonl "$state"/journal.*.jsonl "$state/lock" "$state/start"
        rmdir "$state/spill" 2>/dev/null || true
        rmdir "$state" 2>/dev/null || [ ! -e "$state" ] ||
            echo "kept $state: it has more than the journal, or a mount" >&2
        echo "removed from $root$prefix, with settings and journal"
    else
        forget_classes
        # Running programs wait there for the next daemon. For new ones the machine has none.
        if [ -d "$root/run/gpushare" ]; then : >"$root/run/gpushare/removed"; fi
        # No daemon decides any more: a wrapper that stays, and a hook that comes back, let containers
        # be that ask for nothing, those of the node's network among them.
        rm -f "$root/run/gpushare/mandatory"
        echo "removed from $root$prefix; settings stay in /etc/gpushare, the journal in /var/lib/gpushare"
    fi
}

# The daemon wrote down where the specification of classes is. No engine starts a container with a
# device that no specification has; this one names folders that are gone.
forget_classes() {
    [ -f "$root/run/gpushare/cdi" ] || return 0
    while IFS= read -r path; do rm -f "$root$path" || true; done <"$root/run/gpushare/cdi"
    rm -f "$root/run/gpushare/cdi"
}

# Whether there is another installation: its daemon keeps its folders. A unit names it. One that has
# none is looked for where the package and this script put the programs by themselves. Prints it.
others() {
    for other in "$(program "$units/gpushared.service")" "$(program "$packaged/gpushared.service")" \
        /usr/bin/gpushared /usr/local/bin/gpushared; do
        if [ -n "$other" ] && [ -x "$root$other" ]; then echo "$other"; return 0; fi
    done
    return 1
}

if [ -z "$root" ] && [ "$(id -u)" != 0 ]; then
    echo "install.sh: run it as root, or set DESTDIR" >&2
    exit 1
fi
"${action}_all"
