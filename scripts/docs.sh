#!/usr/bin/env bash
# Puts README, CHANGELOG, the pages of docs/ that they and each other name, and the schemas into a
# folder, in the places that they have here: the links between them lead on.
#
#   scripts/docs.sh FOLDER    archives.sh calls it
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) sed -n '2,5p' "$0" | sed 's/^# \?//'; exit 0 ;; esac
folder=${1:?which folder?}
[[ "$folder" == /* ]] || die "FOLDER is an absolute path, not '$folder'"
find README.md CHANGELOG.md docs -name '*.md' -o -path 'docs/schema/*.json' -o -path 'docs/pictures/*.png' \
    | while read -r page; do install -D -m 644 "$page" "$folder/$page"; done
