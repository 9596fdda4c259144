#!/usr/bin/env python3
"""Fails if a document links to a file or a heading that does not exist, or if a walk of ARCHITECTURE names a source file
that does not exist, or one file twice.

Links into the repository only: addresses on the network are not asked for."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """The anchors of a document's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", without_code(path.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        repeated = [name] + [f"{name}-{number}" for number in range(1, 100)]
        found.add(next(anchor for anchor in repeated if anchor not in found))
    return found


def wrong(path):
    """The links of a document that lead nowhere."""
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text())):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{link}: no such heading"


def strays(text, sources):
    """The files that a part of ARCHITECTURE names and that are not there, or that it names twice: each part that counts
    its steps is a walk."""
    parts = re.split(r"^#{2,3} (.*)$", text, flags=re.MULTILINE)
    for title, part in zip(parts[1::2], parts[2::2]):
        names = re.findall(r"`([\w/.-]+\.rs)`", part)
        for name in sorted(set(names)):
            if not any(f"/{source}".endswith(f"/{name}") for source in sources):
                yield f"{title}: {name}: no such file"
            elif names.count(name) > 1 and re.search(r"^1\. ", part, re.MULTILINE):
                yield f"{title}: {name} is named {names.count(name)} times in one walk"


def listed(pattern):
    """The repository's files of a kind."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", pattern], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return [name for name in names.stdout.splitlines() if (ROOT / name).exists()]


def main():
    paths = [ROOT / name for name in listed("*.md")]
    bad = [f"{path.relative_to(ROOT)}: {what}" for path in paths for what in wrong(path)]
    architecture = "docs/ARCHITECTURE.md"
    bad += [f"{architecture}: {what}" for what in strays((ROOT / architecture).read_text(), listed("*.rs"))]
    for line in bad:
        print(line)
    print(f"{len(paths)} documents, {len(bad)} wrong links or files")
    return 1 if bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
