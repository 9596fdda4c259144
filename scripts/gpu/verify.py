"""The report of verify.sh: what this machine is, then one row a fact. The status is 0 only if rows passed and none failed."""

import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import calls
import collisions
import compute
import containers
import machine as machines
import memory
import swap
import tenants
import told
from rows import Cut, Hang, Limit, Report, cell, passed

RESULTS = machines.ROOT / "docs/results"
# Rows whose questions are open, in the order of their weight: those that no GPU has answered, and
# those whose code has changed since they passed. Remove a row when a report has the answer.
OPEN = (
    "conformance transcript",  # The facts of ADR 268 that are `unverified`: first of all those of mappings in captures.
    "time, without and with: gaps-sync",
    "time, without and with: a request beside loops",
    "time, without and with: serving-workers",  # ADR 274
    "words in managed memory",
    "the driver's limits for cgroups",
    "a second context beside a request",
    "collision: fail",
    "collision: wait",
    "collision: priority",
    "the daemon's books beside NVML's",
    "daemon killed under programs at work",
    "quota: async",
    "quota: pool",
    "quota: graph",
    "quota: room in a pool at the limit",
    "copies in batches",
    "doctor, metrics and why",
    "a container by hook",
    "a container by wrapper",
    "a container by CDI",
    "swap: three managed tenants on one and a half",
    "swap: three tenants on one and a half",
    "swap: suspend, resume, woken by a call",
    "swap: suspend, resume, managed",
    "PyTorch: limit",
    "PyTorch: info",
    "PyTorch: smi",
    "PyTorch: graphs",
    "PyTorch: expandable",
    "PyTorch: cudamallocasync",
    "time, without and with: serving-1",
    "time, without and with: mixed",
    "time: sync",
    "time: cap10",
    "collision: wait, PyTorch",
    "time: what gpushare costs",
    "swap: three of PyTorch, expandable_segments:True",
    "swap: three of PyTorch, backend:cudaMallocAsync",
    "PyTorch time: an inference loop beside training",
    "swap: stored in a file",
    "conformance, a full device",
    "limits of memory beside MPS",
)
FIRST = 60  # seconds at most to find the GPU
FACTS = 60  # seconds at most to say what the machine is


def called(devices, soft):
    """The GPU's name as a part of a file's."""
    if soft:
        return "softgpu"
    return re.sub(r"[^A-Za-z0-9]+", "-", devices[0]["name"]).strip("-") if devices else "no-gpu"


def within(seconds, machine, ask, otherwise):
    """The answer of `ask`, or `otherwise` if there is none within the time."""
    try:
        with Limit(seconds, machine):
            return ask()
    except Hang:
        machine.note(f"no answer within {seconds:.0f} s: {ask.__name__}")
        return otherwise


def capabilities(machine, report, devices):
    """Prints facts of this machine, no verdicts. Returns whether there is a GPU."""
    def line(name, value):
        report.line(f"| {cell(name)} | {cell(value)} |")

    def facts():
        for name, value in machines.facts(machine):
            line(name, value)

    def driver():
        return machines.driver_facts(machine)

    report.line("| what | value |\n|---|---|")
    left = min(FACTS, report.seconds / 3)
    within(left / 2, machine, facts, None)
    for device in devices:
        line(f"GPU {device['ordinal']}", f"{device['name']}, {device['memory'] // machines.MIB} MiB")
    answers = within(left / 2, machine, driver, {"error": "no answer"})
    for name, value in answers.items():
        line(f"driver: {name}", value)
    if answers.get("compute_mode", "0") != "0":
        report.line("\nThe device's compute mode is not the default: programs may not be able to share it, and this script does not change that.")
    return bool(devices) or "error" not in answers


def plan(transcript, torch, reports=RESULTS):
    """All rows. The time may end: those with open questions come first, and those last that passed when they last ran on a GPU, by the reports of this folder.
    Of these the short ones come first, so that many are run again."""
    ground, torch_memory = memory.rows(transcript, torch)
    collide, torch_collide = collisions.rows(torch)
    driver, bench = compute.rows()
    found = [*ground, *driver, *collide, *swap.rows(torch), *torch_memory, *containers.rows(), *calls.rows(), *told.rows(), *tenants.rows(torch), *bench, *torch_collide]
    known = passed(report for report in reports.glob("*-verify-*.md") if "softgpu" not in report.name)
    missing = set(OPEN) - {row.name for row in found}
    assert not missing, f"no rows: {missing}"

    def rank(row):
        if row.name in OPEN:
            return OPEN.index(row.name), 0
        return len(OPEN) + (row.name in known), row.expected * (row.name in known)
    return sorted(found, key=rank)


def listed(reports):
    """The plan, with the second at which each row is expected to end."""
    end = 0
    for row in plan(None, machines.Torch(None), reports):
        end += row.expected
        print(f"{end:4} s  {row.name}{' (open)' if row.name in OPEN else ''}")
    return 0


def commit(gpushare):
    """The checked commit: the one that package.sh wrote beside the programs, or what git says."""
    try:
        packaged = pathlib.Path(gpushare).resolve().parent / "COMMIT"
        if packaged.is_file():
            return packaged.read_text().strip()
        asked = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=machines.ROOT, capture_output=True, text=True, timeout=10)
        return asked.stdout.strip() or "unknown"
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def verify(arguments, work):
    began = time.monotonic()
    machine = machines.Machine(arguments.gpushare, arguments.soft, work, arguments.tenant, arguments.holder)

    def devices():
        return machines.devices(machine)

    notes = []
    machine.note = notes.append
    torch = machines.Torch(machine)
    torch.begin()
    found = within(min(FIRST, arguments.seconds), machine, devices, [])
    report = Report(arguments.out, f"{time.strftime('%Y-%m-%d')}-verify-{called(found, arguments.soft)}", arguments.seconds - (time.monotonic() - began))
    machine.note = report.note
    for note in notes:
        report.note(note)
    cut = False
    try:
        report.line(f"# {'A rehearsal on softgpu' if arguments.soft else 'What a real GPU showed'}, {time.strftime('%Y-%m-%d %H:%M')} UTC, at {commit(arguments.gpushare)}\n")
        if not capabilities(machine, report, found):
            report.line("\nThere is no GPU here: neither gpushare nor a plain program finds one.")
        else:
            before = passed([arguments.resume]) if arguments.resume else ()
            if before:
                report.line(f"\nRows left out because they passed in {arguments.resume.name}: {len(before)}.")
            report.line("\n| row | verdict | what was seen | time |\n|---|---|---|---|")
            for row in plan(report.path.with_suffix(".transcript.tsv"), torch, arguments.reports):
                if re.search(arguments.only, row.name) and row.name not in before:
                    report.row(row._replace(limit=min(row.limit, arguments.row)), machine)
    except Cut:
        cut = True
    torch.end()
    machine.clear(True)
    return report.end(cut)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="only say which rows there are, in their order, and when each is expected to end")
    parser.add_argument("--reports", type=pathlib.Path, default=RESULTS, help="the folder of the reports that say which rows passed earlier")
    parser.add_argument("--gpushare", type=lambda path: os.path.realpath(path))
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=460)
    parser.add_argument("--row", type=float, default=1000, help="seconds that no row may pass")
    parser.add_argument("--only", default="", help="a regular expression that a row's name matches")
    parser.add_argument("--resume", type=pathlib.Path, help="an earlier report: rows that passed there are left out")
    parser.add_argument("--soft", action="store_true")
    parser.add_argument("--tenant", type=lambda path: os.path.realpath(path), help="a Python program in place of torch_share.py, to rehearse the rows about it")
    parser.add_argument("--holder", type=lambda path: os.path.realpath(path), help="the same in place of torch_hold.py")
    arguments = parser.parse_args()
    if arguments.list:
        return listed(arguments.reports)
    if not (arguments.gpushare and arguments.out):
        parser.error("--gpushare and --out are needed")
    if arguments.resume and not arguments.resume.is_file():
        parser.error(f"no report {arguments.resume}")

    if why := machines.unfit(arguments.soft):
        parser.error(why)

    def told(*_):
        raise Cut
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, told)
    with tempfile.TemporaryDirectory(prefix="verify-", ignore_cleanup_errors=True) as work:
        return verify(arguments, pathlib.Path(work))


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    sys.exit(main())
