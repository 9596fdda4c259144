#!/usr/bin/env bash
# Builds the daemon and the library of an earlier commit into a folder under the target folder, made
# once, and prints it. For tests of versions with each other. Status 3 where this repository does
# not have the commit (a shallow clone).
#
#   scripts/previous.sh COMMIT
source "$(dirname "$0")/common.sh"
commit=${1:-}
[[ "$commit" =~ ^[0-9a-f]{7,40}$ ]] || die "which commit? its hash"
need cargo git tar
git cat-file -e "$commit^{commit}" 2>/dev/null || { note "commit $commit is not in this clone (git fetch --unshallow)"; exit 3; }
folder="$CARGO_TARGET_DIR/previous/$commit"
mkdir -p "$CARGO_TARGET_DIR/previous"
exec 9>"$CARGO_TARGET_DIR/previous/.lock"
flock 9
[ -e "$folder/.complete" ] && { echo "$folder"; exit 0; }

source="$folder/source"
rm -rf "$folder"
mkdir -p "$source"
git archive "$commit" | tar -x -C "$source"
note "building the daemon and the library of $commit"
CARGO_TARGET_DIR="$folder/build" cargo build --manifest-path "$source/Cargo.toml" --locked --quiet -p gpushared -p gpushare-interposer >&2
mv "$folder"/build/debug/{gpushared,libgpushare.so} "$folder"
rm -rf "$folder/build" "$source"
touch "$folder/.complete"
echo "$folder"
