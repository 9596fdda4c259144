#!/usr/bin/env python3
"""Fails if a document links to a file or a heading that does not exist.

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


def main():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    paths = [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    bad = [f"{path.relative_to(ROOT)}: {what}" for path in paths for what in wrong(path)]
    for line in bad:
        print(line)
    print(f"{len(paths)} documents, {len(bad)} wrong links")
    return 1 if bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
