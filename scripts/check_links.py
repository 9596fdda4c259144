#!/usr/bin/env python3
"""Fails if a document links to a file or a heading that does not exist, if a walk of ARCHITECTURE names a source file that
does not exist, one file twice, or one of several of that name, or if a decision changes another one whose status does not
name it.

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
    """The files that a part of ARCHITECTURE names and that are not there, that it names twice (each part that counts its
    steps is a walk), or that may be several: one of them has to be in the folder of a file that the part named before."""
    parts = re.split(r"^#{2,3} (.*)$", text, flags=re.MULTILINE)
    for title, part in zip(parts[1::2], parts[2::2]):
        names = re.findall(r"`([\w/.-]+\.rs)`", part)
        for name in sorted(set(names)):
            if not any(f"/{source}".endswith(f"/{name}") for source in sources):
                yield f"{title}: {name}: no such file"
            elif names.count(name) > 1 and re.search(r"^1\. ", part, re.MULTILINE):
                yield f"{title}: {name} is named {names.count(name)} times in one walk"
        folders = set()
        for name in names:
            found = {str(pathlib.PurePath(source).parent) for source in sources if f"/{source}".endswith(f"/{name}")}
            near = found if len(found) == 1 else found & folders
            if found and len(near) != 1:
                yield f"{title}: {name} may be one of {len(found)} files"
            folders |= near


CHANGES = re.compile(r"\b(?:amends|changes|ends|extends|narrows|refines|replaces|supersedes)\b([^.;:]*)", re.IGNORECASE)


def status(text):
    """The status of a decision, on one line, with the numbers that it names as [N]."""
    found = re.search(r"^\*\*Status\.\*\*(.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", " ".join(found.group(1).split())) if found else ""


def one_sided(pages, index):
    """The decisions that another one changes, by its status, and whose own status, or whose row of the index, does not name
    that one. `pages` are texts by number."""
    states = {number: status(text) for number, text in pages.items()}
    rows = {int(number): row for number, row in re.findall(r"^\| \[(\d+)\]\([^)]*\) \|.*\| ([^|]*) \|$", index, re.MULTILINE)}
    for number, state in sorted(states.items()):
        if number not in rows:
            yield f"README.md: no row for {number}"
        if not state:
            yield f"{number}: no status"
        named = {int(target) for clause in CHANGES.findall(state) for target in re.findall(r"\[(\d+)\]", clause)}
        for target in sorted(named):
            if f"[{number}]" not in states.get(target, ""):
                yield f"{target}: its status does not name {number}, which changes it"
            if not re.search(rf"\b{number}\b", rows.get(target, "")):
                yield f"README.md: the row of {target} does not name {number}, which changes it"


def listed(pattern):
    """The repository's files of a kind."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", pattern], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return [name for name in names.stdout.splitlines() if (ROOT / name).exists()]


def main():
    paths = [ROOT / name for name in listed("*.md")]
    bad = [f"{path.relative_to(ROOT)}: {what}" for path in paths for what in wrong(path)]
    architecture = "docs/ARCHITECTURE.md"
    bad += [f"{architecture}: {what}" for what in strays((ROOT / architecture).read_text(), listed("*.rs"))]
    decisions = {int(path.name[:4]): path.read_text() for path in paths if re.match(r"docs/adr/\d{4}-", str(path.relative_to(ROOT)))}
    bad += [f"docs/adr: {what}" for what in one_sided(decisions, (ROOT / "docs/adr/README.md").read_text())]
    for line in bad:
        print(line)
    print(f"{len(paths)} documents, {len(bad)} wrong links, files or statuses")
    return 1 if bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
