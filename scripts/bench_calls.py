#!/usr/bin/env python3
"""Measures the cost of driver calls and processes with the library, above the driver of tests/bench that does
nothing. Bare and hooked runs take turns, so that both see the same machine; printed are the medians
of both and of their differences, and the instructions that callgrind counts in a call.

    bench_calls.py calls LIBRARY FOLDER [WORD]   the calls; WORD: only rows with it in their name
    bench_calls.py loading LIBRARY FOLDER        what a program without CUDA pays, and what it
                                                 pays for a library with nothing in it
    bench_calls.py processes LIBRARY FOLDER      what a process pays; under `gpushare run`, with
                                                 the daemon

FOLDER holds the driver and the program of tests/bench. Nothing is asserted: machines differ.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time

PAIRS = 7
PROCESSES = 51
LOADS = 2000
HOOKED = {"GPUSHARE_TENANT": "bench", "GPUSHARE_MEM_LIMIT": "8GiB"}
# Name, the program's arguments by rounds, rounds by the clock, rounds under callgrind, goal.
CALLS = [
    *(
        (f"cuMemAlloc + cuMemFree, {live} live, {neighbours + 1} processes", "alloc",
         [str(live), str(neighbours)], 2_100_000, 21_000, "100 ns")
        for neighbours in (0, 63)
        for live in (1, 1000, 1_000_000)
    ),
    ("  the same, one of 1000000 at random", "random", ["1000000"], 2_100_000, None, ""),
    ("cuMemAllocAsync + cuMemFreeAsync", "async", [], 210_000, 21_000, "150 ns"),
    ("cuMemGetInfo, 1 process", "info", [], 2_100_000, 105_000, "60 ns, 400"),
    ("cuMemGetInfo, 64 processes", "info", ["1", "63"], 21_000, 105_000, "60 ns, 400"),
    ("cuLaunchKernel", "launch", [], 21_000_000, 420_000, "10 ns"),
    ("cuGraphLaunch, nothing allocated", "graph", [], 21_000_000, 420_000, ""),
    ("cuStreamSynchronize", "wait", [], 21_000_000, 420_000, "1.5 ns"),
]


def environments(library, folder):
    """Bare, hooked: what both have, and what only the hooked one has."""
    ours = ("GPUSHARE_", "LD_PRELOAD", "LD_LIBRARY_PATH", "SOFTGPU", "STUB_")
    bare = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    bare["LD_LIBRARY_PATH"] = folder
    return bare, {**bare, **HOOKED, "LD_PRELOAD": library}


def pairs(count, measure, bare, hooked):
    """Medians of the bare values, the hooked ones, and their differences."""
    both = [(measure(bare), measure(hooked)) for _ in range(count)]
    without, with_it = zip(*both)
    added = statistics.median(after - before for before, after in both)
    return statistics.median(without), statistics.median(with_it), added


def instructions(command, environment):
    """All that callgrind counts in a process."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    run = subprocess.run(valgrind, env=environment, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(command)}: {run.stderr}")
    return int(run.stderr.split("Collected : ")[1].split()[0])


def added_a_call(calls, kind, extra, rounds, bare, hooked):
    """Instructions a call takes above the driver's: what starting takes cancels out."""
    live, neighbours = (extra + ["1", "0"][len(extra):])[:2]

    def each(environment):
        def run(count):
            return instructions([calls, kind, str(count), live], environment)
        # The neighbours' instructions are not counted, so they need not run under callgrind.
        beside = subprocess.Popen([calls, "hold", "0", "1", neighbours], env=environment,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        beside.stdout.readline()
        try:
            return (run(2 * rounds) - run(rounds)) / rounds
        finally:
            beside.stdin.close()
            beside.wait()
    return f"{each(hooked) - each(bare):.0f}"


def print_calls(library, folder, word=""):
    calls = os.path.join(folder, "calls")
    bare, hooked = environments(library, folder)
    counts = shutil.which("valgrind") is not None
    if not counts:
        print("valgrind is not installed: no instructions are counted", file=sys.stderr)
    print(f"{'nanoseconds':<52} {'bare':>8} {'with':>8} {'added':>8} {'instr.':>8}  goal")
    for name, kind, extra, rounds, counted, goal in CALLS:
        if word not in name:
            continue

        def measure(environment):
            command = [calls, kind, str(rounds), *extra]
            return float(subprocess.check_output(command, env=environment))
        without, with_it, added = pairs(PAIRS, measure, bare, hooked)
        count = "-"
        if counts and counted:
            count = added_a_call(calls, kind, extra, counted, bare, hooked)
        print(f"{name:<52} {without:8.1f} {with_it:8.1f} {added:8.1f} {count:>8}  {goal}", flush=True)


def whole(command):
    """Milliseconds from the start of a process to its end."""
    def measure(environment):
        began = time.perf_counter()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        return (time.perf_counter() - began) * 1e3
    return measure


def print_loading(library, folder):
    """By tests/bench/spawn.c: a script's own cost of starting a process would hide the difference."""
    bare, _ = environments(library, folder)
    empty = os.path.join(folder, "libempty.so")
    command = [os.path.join(folder, "spawn"), str(LOADS), empty, library, "--", "/bin/true"]
    # On a busy machine the clock counts the others' time, too: as far as one may, go before them.
    if shutil.which("chrt") and not subprocess.run(["chrt", "-f", "10", "true"], stderr=subprocess.DEVNULL).returncode:
        command = ["chrt", "-f", "10", *command]
    rows = [line.split() for line in subprocess.check_output(command, env=bare, text=True).splitlines()]
    print(f"{'microseconds added to /bin/true':<52} {'clock':>8} {'cpu':>8} {'faults':>8} {'instr.':>8}  goal")
    for (clock, cpu, faults, path), name, goal in zip(rows, ["(bare: all of it)", "an empty library", library], ["", "", "100"]):
        count = "-"
        if shutil.which("valgrind") and path != "-":
            preload = {**bare, "LD_PRELOAD": path}
            count = instructions(["/bin/true"], preload) - instructions(["/bin/true"], bare)
        print(f"{name:<52} {clock:>8} {cpu:>8} {faults:>8} {count:>8}  {goal}", flush=True)


def ending(calls):
    """Milliseconds from the last thing a process does to its end, soon after its start."""
    def measure(environment):
        process = subprocess.Popen([calls, "exit", "0"], env=environment, stdout=subprocess.PIPE)
        said = process.stdout.read()
        process.wait()
        return (time.monotonic_ns() - int(said)) / 1e6
    return measure


def uuid_of_the_device():
    """Of the software GPU that `gpushare run` gives: the daemon must know the driver's device."""
    import ctypes
    driver = ctypes.CDLL("libcuda.so.1")
    uuid = ctypes.create_string_buffer(16)
    answers = [driver.cuInit(0), driver.cuDeviceGetUuid_v2(uuid, 0)]
    if any(answers):
        sys.exit(f"the software GPU answers {answers}")
    return uuid.raw.hex()


def print_processes(library, folder):
    calls = os.path.join(folder, "calls")
    bare, hooked = environments(library, folder)
    rows = [
        ("cuInit and one allocation", whole([calls, "alloc", "21"]), hooked, None, "2 ms"),
        ("exit soon after start", ending(calls), hooked, None, ""),
    ]
    folder_of_socket = os.environ.get("GPUSHARE_SOCKET")
    if folder_of_socket:
        daemon = {**bare, "LD_PRELOAD": library, "GPUSHARE_SOCKET": folder_of_socket,
                  "STUB_UUID": uuid_of_the_device()}
        rows.append(("exit soon after start, under a daemon", ending(calls), daemon, None, "0.5 ms"))
    else:
        print("not under a daemon: GPUSHARE_SOCKET is not set", file=sys.stderr)
    print(f"{'milliseconds a process':<52} {'bare':>8} {'with':>8} {'added':>8} {'instr.':>8}  goal")
    for name, measure, environment, counted, goal in rows:
        without, with_it, added = pairs(PROCESSES, measure, bare, environment)
        count = "-"
        if counted and shutil.which("valgrind"):
            count = instructions(counted, environment) - instructions(counted, bare)
        print(f"{name:<52} {without:8.2f} {with_it:8.2f} {added:8.2f} {count:>8}  {goal}", flush=True)


if __name__ == "__main__":
    if not 4 <= len(sys.argv) <= 5 or sys.argv[1] not in ("calls", "loading", "processes"):
        sys.exit(__doc__)
    {"calls": print_calls, "loading": print_loading, "processes": print_processes}[sys.argv[1]](*sys.argv[2:])
