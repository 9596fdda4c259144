"""What to type after quickstart.sh: each command is tried before it is printed.

Arguments: the gpushare executable and the GPU. Exits 1 if one of them does not do what is said of it.
"""

import os
import subprocess
import sys

NAME = f"held-{os.getpid()}"


def main():
    gpushare, gpu = sys.argv[1:]
    run = ["run", "--gpu", gpu, "--name", NAME, "--mem-limit", "1GiB", "--"]
    # It says when it has been admitted, and lives until its input ends.
    held = subprocess.Popen([gpushare, *run, "sh", "-c", "echo; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    held.stdout.readline()
    advice = [
        (["top"], ["--once"], "who has what, as it changes; suspends, changes and ends tenants"),
        (["ps"], [], "who has what"),
        (["why", NAME], [], "why a tenant waits, was refused, is slowed down or was ended"),
        (["events", "--since", "1h"], [], "what happened"),
        (["doctor", "--gpu", gpu], [], "whether limits hold, and what to do where they do not"),
    ]
    lines, bad = [(" ".join(["gpushare", *run, "sleep", "600", "&"]), "a tenant: without any there is no daemon to ask")], []
    for command, more, what in advice:
        done = subprocess.run([gpushare, *command, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        line = " ".join(["gpushare", *command])
        lines.append((line, what))
        if done.returncode:
            bad.append(f"{line}: status {done.returncode}\n{done.stdout}")
    held.stdin.close()
    if held.wait():
        bad.append(f"{lines[0][0]}: status {held.returncode}")
    for line, what in lines:
        print(f"  {line}\n      {what}")
    print("\n".join(bad), end="", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
