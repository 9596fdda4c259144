#!/usr/bin/env bash
# Unpacks a Debian release's dash, bash and C library into a folder under the target folder, made
# once, and prints it. Nothing is installed. Needs apt-get and dpkg-deb (any Debian or Ubuntu) and
# the network; status 3 without them.
#
#   scripts/debian_root.sh bullseye|bookworm|trixie
source "$(dirname "$0")/common.sh"
suite=${1:-}
[[ "$suite" =~ ^(bullseye|bookworm|trixie)$ ]] || die "which release? bullseye, bookworm or trixie"
have apt-get && have dpkg-deb || { note "apt-get and dpkg-deb are needed to fetch Debian packages"; exit 3; }
root="$CARGO_TARGET_DIR/roots/$suite"
mkdir -p "$CARGO_TARGET_DIR/roots"
exec 9>"$CARGO_TARGET_DIR/roots/.lock"
flock 9
[ -e "$root/.complete" ] && { echo "$root"; exit 0; }

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || { note "$keyring is missing (Debian, Ubuntu: apt install debian-archive-keyring)"; exit 3; }
arch=$(dpkg --print-architecture)
apt="$root.apt"
rm -rf "$root" "$apt"
mkdir -p "$root" "$apt"/{lists/partial,cache/archives/partial,deb}
echo "deb [signed-by=$keyring] http://deb.debian.org/debian $suite main" >"$apt/sources.list"
: >"$apt/status"
options=(-o "Dir::State::status=$apt/status" -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache"
    -o "Dir::Etc::SourceList=$apt/sources.list" -o "Dir::Etc::SourceParts=-" -o "APT::Architecture=$arch"
    -o "APT::Sandbox::User=" -o "Acquire::Languages=none" -o "Acquire::Check-Valid-Until=false" -o "Acquire::Retries=3")
note "fetching Debian $suite's bash, dash and libc6"
apt-get -q=2 "${options[@]}" update >"$apt/log" 2>&1 || { tail -2 "$apt/log" >&2; note "Debian $suite cannot be reached"; exit 3; }
(cd "$apt/deb" && apt-get -q=2 "${options[@]}" download bash dash libc6 libtinfo6 >>"$apt/log" 2>&1) \
    || { tail -2 "$apt/log" >&2; note "Debian $suite cannot be reached"; exit 3; }
for package in "$apt"/deb/*.deb; do dpkg-deb -x "$package" "$root"; done
rm -rf "$apt"
touch "$root/.complete"
echo "$root"
