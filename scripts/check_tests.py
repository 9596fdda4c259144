#!/usr/bin/env python3
"""Fails if a file of tests or a unit test is compiled by nothing, or a test may be run again without a reason.

Most crates build their integration tests as one binary, `tests/main.rs`, with `autotests = false`. Cargo then says nothing of a
file that `main.rs` does not name, and its tests would never run.

A library or program without unit tests says `test = false`, and a unit test in it would never run. The same holds for one
without examples in its documentation: `doctest = false`.

Tests of real time are run again when they fail (docs/adr/0122). `.config/nextest.toml` names their files: exactly those that
assert a figure of real time (`assert_measured!`)."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


MANIFESTS = sorted(ROOT.glob("*/Cargo.toml")) + sorted(ROOT.glob("*/*/Cargo.toml"))


def compiled(root, folder):
    """The files that `root` compiles: itself and what its `mod` lines name. Modules of `root` live in `folder`."""
    seen = {root}
    text = root.read_text()
    pattern = r'(?:^#\[path = "([^"]+)"\]\n(?:^#\[[^\]]*\]\n)*)?^(?:pub(?:\([a-z]+\))? )?mod ([a-z0-9_]+);'
    for path, name in re.findall(pattern, text, re.MULTILINE):
        if path:
            inner = (root.parent / path).resolve()
        else:
            inner = next((f for f in (folder / f"{name}.rs", folder / name / "mod.rs") if f.exists()), None)
        if inner and inner not in seen:
            seen |= compiled(inner, inner.parent if inner.name == "mod.rs" else inner.parent / inner.stem)
    return seen


def untested():
    """Files with unit tests that belong to a target with `test = false`, by the manifests."""
    found = []
    for manifest in MANIFESTS:
        parts = re.split(r"^\[", manifest.read_text(), flags=re.MULTILINE)
        for part in parts:
            kind = re.match(r"\[?(lib|bin)\]", part)
            if not kind or not re.search(r"^test = false$", part, re.MULTILINE):
                continue
            path = re.search(r'^path = "([^"]+)"', part, re.MULTILINE)
            root = (manifest.parent / (path.group(1) if path else "src/lib.rs")).resolve()
            for file in compiled(root, root.parent):
                if re.search(r"^\s*#\[(test|cfg\(test\))\]", file.read_text(), re.MULTILINE):
                    found.append(file)
    return found


def examples_untested():
    """Files with an example that rustdoc would compile, of a library with `doctest = false`."""
    found = []
    for manifest in MANIFESTS:
        part = next((p for p in re.split(r"^\[", manifest.read_text(), flags=re.MULTILINE) if p.startswith("lib]")), "")
        if not re.search(r"^doctest = false$", part, re.MULTILINE):
            continue
        path = re.search(r'^path = "([^"]+)"', part, re.MULTILINE)
        root = (manifest.parent / (path.group(1) if path else "src/lib.rs")).resolve()
        fences = ((file, re.findall(r"^\s*//[/!] ?```(.*)$", file.read_text(), re.MULTILINE)) for file in compiled(root, root.parent))
        # Each second fence ends a block.
        found += [file for file, marks in fences if any(mark.strip() in ("", "rust", "no_run", "should_panic") for mark in marks[::2])]
    return found


def run_again():
    """The files of tests whose failures are run again, by .config/nextest.toml."""
    text = (ROOT / ".config/nextest.toml").read_text()
    overrides = [part for part in text.split("[[profile.default.overrides]]") if re.search(r"^retries = ", part, re.MULTILINE)]
    named = [re.search(r"package\(gpushare-tests\) & test\(/\^\(([a-z_|]+)\)::/\)", part) for part in overrides]
    return {name for match in named for name in (match.group(1).split("|") if match else ["(a filter of another form)"])}


def measured():
    """The files of end-to-end tests that assert a figure of real time."""
    return {file.stem for file in (ROOT / "tests/tests").glob("*.rs") if "assert_measured!(" in file.read_text()}


def main():
    lost = []
    for manifest in MANIFESTS:
        text = manifest.read_text()
        folder = manifest.parent / "tests"
        if "autotests = false" not in text:
            continue
        roots = [manifest.parent / path for path in re.findall(r'^path = "(tests/[^"]+)"', text, re.MULTILINE)]
        seen = set().union(*(compiled(root.resolve(), root.parent.resolve()) for root in roots))
        lost += [file for file in sorted(folder.rglob("*.rs")) if file.resolve() not in seen]
    for file in lost:
        print(f"{file.relative_to(ROOT)}: no test binary compiles it: name it in main.rs")
    unseen = untested()
    for file in unseen:
        print(f"{file.relative_to(ROOT)}: has unit tests, and its target says `test = false`")
    unheard = examples_untested()
    for file in unheard:
        print(f"{file.relative_to(ROOT)}: has an example, and its library says `doctest = false`")
    again, may = run_again(), measured()
    for name in sorted(again - may):
        print(f".config/nextest.toml runs {name} again, which asserts no figure of real time")
    for name in sorted(may - again):
        print(f"tests/tests/{name}.rs asserts a figure of real time: name it in .config/nextest.toml, where tests are run again")
    return 1 if lost or unseen or unheard or again != may else 0


sys.exit(main())
