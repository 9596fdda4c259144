#!/usr/bin/env bash
# Unpacks Debian's Prometheus without installing it, and prints the folder with `prometheus` and
# `promtool`. Status 3 where it cannot be had. For the long tier.
source "$(dirname "$0")/common.sh"
folder="$CARGO_TARGET_DIR/tools/prometheus"
if have prometheus && have promtool; then
    dirname "$(command -v prometheus)"
    exit 0
fi
if [ ! -x "$folder/usr/bin/promtool" ]; then
    have apt-get && have dpkg || { echo "there is no apt-get to download prometheus with" >&2; exit 3; }
    fresh=$(mktemp -d)
    trap 'rm -rf "$fresh"' EXIT
    # A list of packages that was never fetched knows none.
    (cd "$fresh" && { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; }) >&2 \
        || { echo "apt-get cannot download prometheus" >&2; exit 3; }
    mkdir -p "$(dirname "$folder")"
    dpkg -x "$fresh"/prometheus_*.deb "$fresh/root" >&2
    rm -rf "$folder"
    mv "$fresh/root" "$folder"
fi
echo "$folder/usr/bin"
