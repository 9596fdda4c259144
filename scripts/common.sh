# Sourced by the other scripts: paths and output functions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"

say() { printf '\n== %s\n' "$*" >&2; }
note() { printf '   %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# LD_PRELOAD, LD_LIBRARY_PATH and RUSTFLAGS are split there.
for folder in "$PWD" "$CARGO_TARGET_DIR"; do
    [[ "$folder" != *[[:space:]:]* ]] || die "'$folder': builds and programs need a path without blanks and colons; move the checkout"
done
unset folder

need() {
    for tool in "$@"; do
        have "$tool" || die "$tool is not installed; this needs Rust (https://rustup.rs), gcc and Python 3"
    done
}

# venv NAME REQUIREMENT...: a Python environment of exactly these packages, made once. Prints its
# folder. Fails with status 3 if the packages cannot be had, after saying why.
venv() {
    local name=$1 folder="$CARGO_TARGET_DIR/venv/$1" wanted log
    shift
    wanted=$(printf '%s\n' "$(python3 --version)" "$@")
    if [ "$(cat "$folder/.made-of" 2>/dev/null)" != "$wanted" ]; then
        note "installing from PyPI into $folder: $*"
        rm -rf "$folder"
        mkdir -p "$CARGO_TARGET_DIR/venv"
        python3 -m venv "$folder" >&2 || { note "python3 cannot make virtual environments (Debian: apt install python3-venv)"; return 3; }
        log="$folder/pip.log"
        # Python compiles a module when it is first imported: compiling all of them takes longer than installing.
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-compile "$@" >"$log" 2>&1 \
            || { tail -5 "$log" >&2; note "PyPI did not give: $*"; return 3; }
        printf '%s\n' "$wanted" >"$folder/.made-of"
    fi
    printf '%s\n' "$folder"
}
