#!/usr/bin/env python3
"""Fails if unsafe code spreads in the interposer, or stands where none may.

Counted are files of the interposer and of the crates split from it in which the word `unsafe` stands outside of comments and
strings, tests included. Types of C function pointers count, because whoever may write one may call one."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A crate split from the interposer counts too.
FOLDERS = sorted(path.relative_to(ROOT) for path in [ROOT / "interposer/src", *ROOT.glob("interposer/*/src")])
MOST = 29
# The hooks' bodies are safe: their unsafe is the door's (docs/adr/0080).
NONE = ["interposer/src/hooks"]

# Comments, then strings, then characters; what starts first wins.
NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|[bc]?r(#*)".*?"\1|[bc]?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'',
    re.DOTALL,
)


def is_unsafe(file):
    return re.search(r"\bunsafe\b", NO_CODE.sub(" ", file.read_text())) is not None


def main():
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.rs"))]
    found = [str(file.relative_to(ROOT)) for file in files if is_unsafe(file)]
    wrong = [file for file in found if any(file.startswith(folder + "/") for folder in NONE)]
    for file in wrong:
        print(f"{file}: unsafe code in a folder that has none")
    if len(found) > MOST:
        print(f"unsafe code in {len(found)} files, {MOST} at most:", *found, sep="\n  ")
    if not wrong and len(found) <= MOST:
        print(f"unsafe code in {len(found)} of {len(files)} files, {MOST} at most")
    return 1 if wrong or len(found) > MOST else 0


sys.exit(main())
