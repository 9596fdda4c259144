#!/usr/bin/env python3
"""Fails on names of tests beyond 70 characters, and on more lines of prose beyond 100 columns than are allowed.

Prose is what people read: comments, and Markdown outside its code blocks. Tables, links and single long words are excepted.

    scripts/check_words.py              checks
    scripts/check_words.py --list       prints each long line
    scripts/check_words.py --wrap FILE  refills the paragraphs of comments of Rust files that have a long line
"""
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME, COLUMNS = 70, 100
# Long lines of prose that are still there, by kind of file. Lower a number when there are fewer; None is not checked yet.
ALLOWED = {".rs": 0, ".md": 0}

COMMENT = re.compile(r"^(\s*)(//[/!]?)( |$)(.*)$")
# Lines that are no running text of a paragraph: lists, headings, tables, quotes, code.
APART = re.compile(r"^(\s{4,}|[-*+] |\d+\. |#|\||>|```|\[[^]]+\]: |$)")


def files(kind):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", f"*{kind}"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return [ROOT / name for name in listed.stdout.split("\n") if name and (ROOT / name).exists()]


def long_names(path):
    """Identifiers of a Rust file that are too long: test functions, also those that a macro makes."""
    code = re.sub(r'//[^\n]*|b?r#+".*?"#+|"(?:\\.|[^"\\])*"', "", path.read_text(), flags=re.DOTALL)
    return sorted({name for name in re.findall(r"\b[a-z_][a-z0-9_]*\b", code) if len(name) > NAME})


def is_excepted(text):
    text = text.strip()
    return text.startswith("|") or "://" in text or " " not in text.lstrip("-*+> ")


def long_lines(path):
    """Number and text of each line of prose that is too long."""
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line
        if path.suffix == ".rs":
            comment = COMMENT.match(line)
            if not comment:
                fenced = False
                continue
            text = comment.group(4)
        if text.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and len(line) > COLUMNS and not is_excepted(text):
            yield number, line


def wrapped(path):
    """The file with the paragraphs of its comments refilled where a line is too long."""
    out, lines, at, fenced = [], path.read_text().split("\n"), 0, False
    while at < len(lines):
        first = COMMENT.match(lines[at])
        if not first:
            fenced = False
            out.append(lines[at])
            at += 1
            continue
        indent, mark, _, text = first.groups()
        if text.lstrip().startswith("```"):
            fenced = not fenced
        item = re.match(r"^(\s{0,3}(?:[-*+]|\d+\.) )", text)
        if fenced or (APART.match(text) and not item):
            out.append(lines[at])
            at += 1
            continue
        paragraph = [lines[at]]
        while at + len(paragraph) < len(lines):
            more = COMMENT.match(lines[at + len(paragraph)])
            hangs = more and item and re.match(r"^\s{2,}\S", more.group(4)) and not re.match(r"^\s*([-*+]|\d+\.) ", more.group(4))
            if not more or (more.group(1), more.group(2)) != (indent, mark) or (APART.match(more.group(4)) and not hangs):
                break
            paragraph.append(lines[at + len(paragraph)])
        at += len(paragraph)
        texts = [COMMENT.match(line).group(4) for line in paragraph]
        if not any(len(line) > COLUMNS and not is_excepted(text) for line, text in zip(paragraph, texts)):
            out += paragraph
            continue
        hang = " " * len(item.group(1)) if item else ""
        words = (item.group(1) if item else "") + " ".join(" ".join(texts)[len(item.group(1)) if item else 0:].split())
        fill = textwrap.TextWrapper(COLUMNS, initial_indent=f"{indent}{mark} ", subsequent_indent=f"{indent}{mark} {hang}", break_long_words=False, break_on_hyphens=False)
        out += fill.wrap(words)
    return "\n".join(out)


def main(arguments):
    if arguments[:1] == ["--wrap"]:
        for name in arguments[1:]:
            path = pathlib.Path(name)
            path.write_text(wrapped(path))
        return 0
    failed = False
    for path in files(".rs"):
        for name in long_names(path):
            print(f"{path.relative_to(ROOT)}: {name}: {len(name)} characters, {NAME} allowed")
            failed = True
    for kind, allowed in ALLOWED.items():
        found = [(path, *line) for path in files(kind) for line in long_lines(path)]
        if "--list" in arguments:
            for path, number, line in found:
                print(f"{path.relative_to(ROOT)}:{number}: {len(line)} columns")
        if allowed is None:
            continue
        print(f"{kind}: {len(found)} lines of prose beyond {COLUMNS} columns, {allowed} allowed")
        if len(found) > allowed:
            print(f"   see {pathlib.Path(__file__).name} --list; --wrap refills comments")
            failed = True
    return 1 if failed else 0


sys.exit(main(sys.argv[1:]))
