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
all="$CARGO_TARGET_DIR/previous"
folder="$all/$commit"
mkdir -p "$all"
exec 9>"$all/.lock"
flock 9
[ -e "$folder/.complete" ] && { echo "$folder"; exit 0; }

source="$folder/source"
rm -rf "$folder"
mkdir -p "$source"
git archive "$commit" | tar -x -C "$source"
note "building the daemon and the library of $commit"
# What commits have in common, the crates from elsewhere, is built once. Cargo takes a crate of ours
# for that of another commit, so nothing of those is kept.
export CARGO_TARGET_DIR="$all/build" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
forget() { rm -rf "$all"/build/debug/{deps,build,.fingerprint}/{,lib}gpushare*; }
forget
cargo build --manifest-path "$source/Cargo.toml" --locked --quiet -p gpushared -p gpushare-interposer >&2
mv "$all"/build/debug/{gpushared,libgpushare.so} "$folder"
forget
rm -rf "$source"
touch "$folder/.complete"
echo "$folder"
