"""The two programs of quickstart.sh, driven line by line: what each was told and what it saw, as a table at the end.

Arguments: the gpushare executable, the GPU, the C program, then the other program and its arguments.
Exits 1 if anything is not as it should be.
"""

import os
import subprocess
import sys

MIB = 1 << 20
PIECE = 64 * MIB
SMALL, LARGE = 512 * MIB, 1024 * MIB
OUT_OF_MEMORY = 2


class Program:
    """One program under `gpushare run`, spoken to in lines."""

    def __init__(self, gpushare, gpu, title, limit, command):
        self.title, self.limit, self.rows = title, limit, []
        self.name = f"quickstart-{title[0].lower()}-{os.getpid()}"
        run = [gpushare, "run", "--gpu", gpu, "--name", self.name, "--mem-limit", f"{limit // MIB}MiB", "--", *command]
        print("  $", " ".join(["gpushare", *run[1:]]), flush=True)
        self.process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            sys.exit(f"{self.title} ended: status {self.process.wait()}")
        return [int(number) for number in answer[1:]]

    def step(self, what, seen, good):
        print(f"  {'ok ' if good else 'BAD'}  {self.title}: {what}: {seen}", flush=True)
        self.rows.append((what, seen, good))


def mib(size):
    return f"{size // MIB} MiB"


def fill(program, room):
    """Allocates until the first refusal; `room` bytes must have fitted."""
    count, error = program.ask(f"fill {PIECE}")
    seen = f"{mib(count * PIECE)}, then " + ("CUDA_ERROR_OUT_OF_MEMORY" if error == OUT_OF_MEMORY else f"error {error}")
    program.step("allocates until refused", seen, count * PIECE == room and error == OUT_OF_MEMORY)


def check(program, count, what):
    good = program.ask("check")[0]
    program.step(what, f"{good} of {count} allocations intact", good == count)


def main():
    gpushare, gpu, c_program, *other = sys.argv[1:]
    small = Program(gpushare, gpu, "A (C)", SMALL, [c_program])
    large = Program(gpushare, gpu, "B (Python)" if len(other) > 1 else "B (C)", LARGE, other)
    for program in (small, large):
        error = program.ask("init")[0]
        _, total, _ = program.ask("info") if not error else (0, 0, error)
        program.step("sees a GPU of", mib(total), error == 0 and total == program.limit)
    half = LARGE // 2 // PIECE
    errors = [large.ask(f"alloc {PIECE}")[0] for _ in range(half)]
    large.step("allocates", mib(half * PIECE), not any(errors))
    fill(small, SMALL)
    check(large, half, "after its neighbour's refusal")
    fill(large, LARGE - half * PIECE)
    check(small, SMALL // PIECE, "after its neighbour's refusal")
    error = small.ask("free 2")[0]
    small.step("frees", mib(2 * PIECE), error == 0)
    fill(small, 2 * PIECE)

    # While both still run.
    shown = told(gpushare, ["top", "--once"], small.name) and told(gpushare, ["ps"], large.name)

    print(f"\n  {'program':<12}{'limit':<10}{'step':<32}{'what it saw'}")
    good = True
    for program in (small, large):
        program.process.stdin.close()
        status = program.process.wait()
        program.rows.append(("ends with", f"status {status}", status == 0))
        for what, seen, fine in program.rows:
            print(f"  {program.title:<12}{mib(program.limit):<10}{what:<32}{seen}{'' if fine else '   <- NOT AS IT SHOULD BE'}")
            good = good and fine
    print("\n  Each stopped at its own limit, and neither felt the other." if good else "\n  Something is wrong; see above.")
    good = shown and good
    good = told(gpushare, ["why", small.name], "limit") and good
    good = told(gpushare, ["doctor", "--gpu", gpu], "ok    limit-holds") and good
    return 0 if good else 1


def told(gpushare, arguments, words):
    """Runs a command that tells of what was run, and shows it. Whether it says these words."""
    print("\n  $", " ".join(["gpushare", *arguments]), flush=True)
    text = subprocess.run([gpushare, *arguments], stdout=subprocess.PIPE, text=True).stdout
    print("".join(f"  {line}\n" for line in text.splitlines()), end="", flush=True)
    return words in text


if __name__ == "__main__":
    sys.exit(main())
