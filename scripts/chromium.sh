#!/usr/bin/env bash
# Prints the path of a headless Chromium: the installed one, else Debian's package, unpacked with the
# libraries that are missing here and not installed. Status 3 where it cannot be had. For the long
# tier.
source "$(dirname "$0")/common.sh"
if have chromium; then
    command -v chromium
    exit 0
fi
folder="$CARGO_TARGET_DIR/tools/chromium"
mkdir -p "$CARGO_TARGET_DIR/tools"
exec 9>"$CARGO_TARGET_DIR/tools/.chromium.lock"
flock 9
if [ ! -x "$folder/run" ]; then
    have apt-get && have dpkg || { echo "there is no apt-get to download chromium with" >&2; exit 3; }
    fresh=$(mktemp -d -p "$CARGO_TARGET_DIR/tools")
    trap 'rm -rf "$fresh"' EXIT
    # The packages that an installation would bring: its libraries too, and a font. Nothing is
    # installed.
    missing() {
        apt-get install --simulate --no-install-recommends chromium fonts-dejavu-core 2>/dev/null |
            awk '/^Inst/ { print $2 }'
    }
    fetch() {
        local names
        names=$(missing) && [ -n "$names" ] || return 1
        # shellcheck disable=SC2086  # a word is a package
        (cd "$fresh" && apt-get download -q=2 $names) >&2
    }
    # A list of packages that was never fetched, or is old, names what is no longer there.
    fetch || { apt-get update -q=2 >&2 && fetch; } || { echo "apt-get cannot download chromium" >&2; exit 3; }
    for package in "$fresh"/*.deb; do dpkg -x "$package" "$fresh/root"; done
    rm -f "$fresh"/*.deb
    [ -x "$fresh/root/usr/lib/chromium/chromium" ] || { echo "the package has no chromium" >&2; exit 3; }
    cat >"$fresh/run" <<'RUN'
#!/bin/sh
root="$(dirname "$(readlink -f "$0")")/root"
lib="$root/usr/lib/$(uname -m)-linux-gnu"
LD_LIBRARY_PATH="$lib:$lib/pulseaudio:$root/usr/lib/chromium" \
    XDG_DATA_DIRS="$root/usr/share:/usr/local/share:/usr/share" \
    exec "$root/usr/lib/chromium/chromium" "$@"
RUN
    chmod 755 "$fresh/run" "$fresh"
    rm -rf "$folder"
    mv "$fresh" "$folder"
    trap - EXIT
fi
echo "$folder/run"
