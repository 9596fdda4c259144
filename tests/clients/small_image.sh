#!/usr/bin/env bash
# Writes an archive with one image, as `docker save` does: this machine's shell and a few of its
# programs, with the libraries that they and the given files need.
#
#   small_image.sh ARCHIVE NAME:TAG FILE...
set -euo pipefail
archive=$1 name=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{root,image}
cd "$work/root"
mkdir -p bin etc proc sys dev tmp run usr/lib mnt var
programs=()
for program in sh cat env sleep ls; do programs+=("$(command -v "$program")"); done
for program in "${programs[@]}"; do cp -L "$program" bin/; done
for library in $(ldd "${programs[@]}" "$@" 2>/dev/null | grep -o '/[^ :]*\.so[^ :]*' | sort -u); do
    case " $* " in *" $library "*) continue ;; esac
    mkdir -p ".$(dirname "$library")"
    cp -L "$library" ".$library"
done
cd "$work/image"
tar -C ../root --owner=0 --group=0 --numeric-owner -cf layer.tar .
layer=$(sha256sum layer.tar | cut -d' ' -f1)
cat >config.json <<CONFIG
{"architecture": "$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')", "os": "linux", "created": "2026-01-01T00:00:00Z",
 "config": {"Cmd": ["/bin/sleep", "infinity"], "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]}}
CONFIG
config=$(sha256sum config.json | cut -d' ' -f1)
mv config.json "$config.json"
echo "[{\"Config\": \"$config.json\", \"RepoTags\": [\"$name\"], \"Layers\": [\"layer.tar\"]}]" >manifest.json
tar -cf "$archive" manifest.json "$config.json" layer.tar
