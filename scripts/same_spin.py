"""same_spin.py A.ptx B.ptx: whether `spin` of both looks at the device's timer equally often before it ends, whatever the timer does. Runs them, one thread,
in the little of PTX that they use."""

import itertools
import random
import re
import sys

MASK = (1 << 64) - 1
LOOKS = 2000  # what has not ended by then is not let run on
COMPARE = {"ge": int.__ge__, "gt": int.__gt__, "lt": int.__lt__, "le": int.__le__, "eq": int.__eq__, "ne": int.__ne__}
ARITHMETIC = {"add": int.__add__, "sub": int.__sub__, "shl": int.__lshift__}
# Steps of the timer (ns): alone; with other programs; the bound between the two; a timer too coarse
# for it; a timer that stands still.
CLOCKS = ((32, 1000), (1000, 3000000), (0, 99999, 100000, 100001), (1048576,), (0,))
LENGTHS = (0, 1, 1000, 50000, 300000)


def load(path):
    """The instructions of `spin`, and where its labels are."""
    text = re.sub(r"//[^\n]*", "", open(path).read())
    body = re.search(r"\.entry\s+spin\s*\([^)]*\)\s*\{(.*?)\}", text, re.S)[1]
    code, labels = [], {}
    for line in re.sub(r"([$\w]+):", r"\1:;", body).split(";"):
        words = line.replace(",", " ").split()
        if words and words[0].endswith(":"):
            labels[words[0][:-1]] = len(code)
        elif words and words[0] != ".reg":
            code.append(words)
    return code, labels


def looks(program, ns, timer):
    """How often it reads the timer before it returns, or LOOKS."""
    (code, labels), at, seen, registers = program, 0, 0, {}

    def value(word):
        return registers[word] if word.startswith("%") else int(word) & MASK

    while seen < LOOKS:
        words, at = code[at], at + 1
        if words[0].startswith("@"):
            if registers[words[0].lstrip("@!")] == words[0].startswith("@!"):
                continue
            words = words[1:]
        name, into, rest = words[0].split("."), words[1] if len(words) > 1 else None, words[2:]
        if name[0] == "ret":
            return seen
        if name[0] == "bra":
            at = labels[into]
        elif name[0] == "ld":
            registers[into] = ns
        elif name[0] == "mov" and rest == ["%globaltimer"]:
            registers[into], seen = next(timer), seen + 1
        elif name[0] == "mov":
            registers[into] = value(rest[0])
        elif name[0] == "setp":
            registers[into] = COMPARE[name[1]](value(rest[0]), value(rest[1]))
        elif name[0] == "selp":
            registers[into] = value(rest[0]) if registers[rest[2]] else value(rest[1])
        elif name[0] == "and":
            registers[into] = registers[rest[0]] & registers[rest[1]]
        elif name[0] == "or":
            registers[into] = registers[rest[0]] | registers[rest[1]]
        else:
            a, b = map(value, rest)
            registers[into] = ARITHMETIC[name[0]](a, b) & MASK
    return seen


def main():
    programs, ends, endless = [load(path) for path in sys.argv[1:]], 0, 0
    for steps, ns, seed in itertools.product(CLOCKS, LENGTHS, range(4)):
        def timer():
            choose = random.Random(seed)
            return itertools.accumulate((choose.choice(steps) for _ in itertools.count()), initial=1 << 40)
        counts = [looks(program, ns, timer()) for program in programs]
        assert counts[0] == counts[1], f"steps of {steps} ns, {ns} ns wanted: {counts[0]} looks and {counts[1]}"
        ends, endless = ends + (counts[0] < LOOKS), endless + (counts[0] == LOOKS)
        assert counts[0] < LOOKS or 0 in steps or 32 in steps, f"steps of {steps} ns, {ns} ns wanted: it does not end"
    print(f"   spin: {ends + endless} runs of both the same, {ends} to their end", file=sys.stderr)


main()
