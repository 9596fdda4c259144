"""verify.py's rows about memory: the driver's facts, quotas by every way of allocating, PyTorch under a quota, what calls cost, the driver's own limits."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import machine as machines
from machine import MIB, ROOT, c_compiler
from rows import NotAvailable, Row

HERE = pathlib.Path(__file__).resolve().parent
BINDINGS = ("dlsym", "v1", "v2", "twins", "v2-per-thread")
PATHS = ("linear", "pitch", "managed", "async", "pool", "vmm", "array", "mipmap", "graph")
# Pieces of 8 MiB under 256 MiB, at least and at most, as an H200 gave them: pools take steps of 32 MiB, and so does each graph.
PIECES = {"async": (29, 32), "pool": (29, 32), "graph": (8, 8)}
ALL = (32, 32)
MOST = 64  # pieces of 8 MiB a program takes even if no limit holds: half a GiB, managed memory too
# The programs that answer PyTorch's rows: the modes of torch_quota.py, and the allocator's
# settings.
TORCH = {"plain": ("info smi limit graphs", None), "expandable": ("limit", "expandable_segments:True"), "cudamallocasync": ("limit", "backend:cudaMallocAsync")}
PAIR = (512, 1024)  # MiB
# Of the seconds of the row about the driver's facts so many are kept to compare and record what was answered before one that
# does not end; a family of facts has so many; and a call that asks no driver.
KEPT, FAMILY, PROMPT = 15, 20, 5


def conformance(machine, out, asked=()):
    """The committed transcript against this driver, and this driver's own answers for the record: also those before one that does not end.
    `asked`: which facts, as run.sh takes them."""
    # Softgpu is asked as the newest driver: some facts are of drivers from 13.1 on, some of two devices, and some of handles that are given again.
    environment = machine.bare | {"CC": c_compiler(), "FACTS_PATIENCE": str(FAMILY)} | ({"SOFTGPU": "driver=13050,count=2,reuse=lifo"} if machine.soft else {})
    copy = machine.work / "conformance"
    if not copy.exists():
        shutil.copytree(ROOT / "softgpu/conformance", copy)
    answers = machine.folder / "answers"  # Asked once: each family of facts is a process that starts CUDA.
    run = [copy / "run.sh", "--answers", answers, *asked]  # Without --beyond, which asks for more managed memory than the device has.
    late = []
    patience = max(machine.limit - KEPT, PROMPT)
    compared, said = compare(machine, run, environment, patience)
    if compared is None:
        late = [f"no end within {patience:.0f} s"]
        if answers.exists():
            _, said = compare(machine, run, environment, PROMPT)
    said = late + (said.strip().splitlines() or ["it says nothing"])
    machine.note("== conformance transcript\n" + "\n".join(said))
    if not machine.soft and answers.exists() and answers.stat().st_size:
        machine.run([*run, "--record", driver_named(machine)])
        shutil.copy(copy / "transcript.tsv", out)
    assert compared == 0, f"{said[-1]}: {'; '.join(said[:8])}"
    return said[-1]


def driver_named(machine):
    """The driver's version and the GPU's name."""
    try:
        named = machine.run(["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"], patience=PROMPT)
        return " ".join(named.split("\n")[0].replace(",", "").split())
    except (AssertionError, OSError, subprocess.TimeoutExpired):
        return "this driver"  # It may not answer, behind a call that did not.


def compare(machine, run, environment, patience):
    """The status of run.sh and its words; None for one that has not ended in time, and is ended."""
    words = machine.folder / "compared"
    with open(words, "w") as to:
        process = machine.start(run, environment, stdout=to, stderr=subprocess.STDOUT)
    try:
        status = process.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        status = None
    return status, words.read_text()


def pair(machine):
    """Two C programs, different quotas: each stops at its own, neither feels the other."""
    client, seen = machine.compile("tests/clients/quota.c"), []
    script = f"init\ninfo\nfill {32 * MIB}\ncheck\nfree 4\nfill {32 * MIB}\ncheck\n"
    for limit, said in zip(PAIR, machine.runs([machine.under(f"{limit}MiB", client) for limit in PAIR], stdin=script)):
        lines, fits = said.split("\n"), limit // 32
        assert lines[0] == "init 0", lines
        assert lines[1].split()[2] == str(limit * MIB), lines[1]
        assert lines[2:7] == [f"fill {fits} 2", f"check {fits}", "free 0", "fill 4 2", f"check {fits}"], lines
        seen.append(f"{limit} MiB: {fits} x 32 MiB, then CUDA_ERROR_OUT_OF_MEMORY")
    return "; ".join(seen)


def visible(machine):
    """The quota of a device whichever way the environment names it."""
    client = machine.compile("tests/clients/quota.c")
    named = next((device["uuid"] for device in machines.devices(machine)), None)
    assert named, "gpushare finds no device"
    seen = []
    for name in ("0", named, named[:12]):
        said = machine.run(machine.under("256MiB", client), machine.bare | {"CUDA_VISIBLE_DEVICES": name}, stdin="init\ntotal\n").split("\n")
        assert said[0] == "init 0" and said[1].split()[:2] == ["total", str(256 * MIB)], f"{name}: {said}"
        seen.append(name)
    return f"256 MiB by CUDA_VISIBLE_DEVICES={', '.join(seen)}"


def path(machine, name):
    """One way of allocating by every binding, side by side: to the limit, freed, to the limit again."""
    client, seen = machine.compile("tests/clients/matrix.c"), []
    commands = [machine.under("256MiB", client, binding, name, MOST) for binding in BINDINGS]
    for binding, said in zip(BINDINGS, machine.runs(commands, stdin="take\ngive\ntake\ngive\n")):
        lines = said.split("\n")
        first, again = lines[0].split(), lines[2].split()
        assert first[0] == "take" and first[2] == "2", f"{binding}: {lines}"
        assert lines[1] == lines[3] == "give 0" and again == first, f"{binding}: {lines}"
        seen.append(int(first[1]))
    least, most = PIECES.get(name, ALL)
    assert len(set(seen)) == 1 and least <= seen[0] <= most, f"{least} to {most} pieces by each binding: {dict(zip(BINDINGS, seen))}"
    return f"8 MiB pieces until refused under 256 MiB: {dict(zip(BINDINGS, seen))}, the same after freeing"


def calls(machine):
    """Nanoseconds a call on the real driver, without and with the library."""
    program = machine.compile("scripts/gpu/overhead.c")
    # One after the other, so that a machine that becomes slower is not taken for the library.
    facts = [[json.loads(machine.run(command)) for command in ([program], machine.under("2GiB", program))] for _ in range(5)]
    without, ours = ([pair[at] for pair in facts] for at in (0, 1))
    best = [{key: min(fact[key] for fact in all_of_them) for key in all_of_them[0]} for all_of_them in (without, ours)]
    said = ", ".join(f"{key}: {best[0][key]:.0f} -> {best[1][key]:.0f}" for key in best[0])
    return f"{said} (goals: a launch 10 more, alloc and free 100 more)", {"without": without, "with": ours}


def costs(machine):
    """The driver's own memory, in a program without the library."""
    facts = json.loads(machine.run([machine.compile("scripts/gpu/costs.c")]))
    return ", ".join(f"{name} {value / MIB:.1f} MiB" for name, value in facts.items()), facts


def words(machine):
    """What the driver answers to stream memory operations on managed memory, which is what --oversubscribe uvm gives a program for
    its own (docs/EVIDENCE.md). No answer is wrong, but plain memory is taken."""
    facts = json.loads(machine.run([machine.compile("scripts/gpu/words.c")]))
    refused = {name: answer for name, answer in facts.items() if "plain" in name and answer}
    assert not refused, f"refused: {refused}"
    return ", ".join(f"{name}: {answer}" for name, answer in facts.items()), facts


def fence(machine):
    """The driver's own limits for cgroups, which the daemon's fence stands on."""
    if machine.soft:
        raise NotAvailable("softgpu has no limits for cgroups")
    asked = machine.start([sys.executable, HERE / "fence.py", machine.compile("tests/clients/quota.c")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = asked.communicate()
    if asked.returncode == 3:
        raise NotAvailable(out.strip())
    assert asked.returncode == 0, f"{out.strip()} {err.strip()[-200:]}"
    return out.strip()


class Quota:
    """PyTorch as it is under 2 GiB, by the default allocator and two others: three programs at once, whose answers the rows share."""

    def __init__(self):
        self.answers, self.errors = None, {}

    def ask(self, machine):
        self.answers = {}  # Asked once: should they hang, only the first row does.
        programs = {}
        for name, (modes, setting) in TORCH.items():
            environment = machine.bare | ({"PYTORCH_CUDA_ALLOC_CONF": setting, "PYTORCH_ALLOC_CONF": setting} if setting else {})
            out, err = machine.work / f"torch-{name}", machine.work / f"torch-{name}.err"
            with open(out, "w") as stdout, open(err, "w") as stderr:
                command = machine.under("2GiB", sys.executable, HERE / "torch_quota.py", *modes.split())
                programs[name] = (machine.start(command, environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr), out, err)
        try:
            for process, _, _ in programs.values():
                process.wait()
        finally:
            for name, (_, out, err) in programs.items():
                self.errors[name] = err.read_text().strip()
                machine.note(f"== PyTorch, {name}\n{out.read_text()}{self.errors[name]}")
                for line in out.read_text().splitlines():
                    if line.startswith("{"):
                        answer = json.loads(line)
                        self.answers[answer["mode"] if name == "plain" else name] = answer

    def row(self, machine, mode):
        if self.answers is None:
            self.ask(machine)
        answer = self.answers.get(mode)
        assert answer, f"no answer: {self.errors.get(mode, self.errors.get('plain', 'it hung'))[-300:]}"
        assert answer["ok"], answer["said"]
        return answer["said"]

    def two(self, machine):
        """Two processes of one tenant: what one holds the other cannot have."""
        name, script = f"verify-two-{os.getpid()}", HERE / "torch_quota.py"
        command = machine.under("2GiB", sys.executable, script, "hold", name=name)
        holder = machine.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert holder.stdout.readline() == "holding\n", "the first process did not get its part"
        answer = json.loads(machine.run(machine.under("2GiB", sys.executable, script, "rest", name=name)).splitlines()[-1])
        holder.stdin.close()
        assert answer["ok"], answer["said"]
        return answer["said"]


def rows(transcript, torch):
    """Those of every machine first."""
    quota = Quota()
    found = [Row("conformance transcript", lambda machine: conformance(machine, transcript), limit=90, expected=26),
             Row("quota: two C programs", pair, limit=40, expected=1), Row("quota: by the names of devices", visible, expected=2)]
    full = ("--full", "--only", "full")
    found += [Row("conformance, a full device", lambda machine: conformance(machine, transcript, full), limit=90, expected=10)]
    found += [Row(f"quota: {name}", lambda machine, name=name: path(machine, name), expected=2) for name in PATHS]
    found += [Row("ns a call, without and with the library", calls, limit=60, expected=9), Row("memory that the driver takes by itself", costs, expected=1),
              Row("words in managed memory", words, expected=1),
              Row("the driver's limits for cgroups", fence, limit=40, expected=1)]
    first = [Row("PyTorch: starts", lambda _: torch.need(), expected=5, needs=torch.need)]
    first += [Row(f"PyTorch: {mode}", lambda machine, mode=mode: quota.row(machine, mode), 60, 16 if mode == "limit" else 0, torch.need)
              for mode in ("limit", "info", "smi", "graphs", "expandable", "cudamallocasync")]
    return found, [*first, Row("PyTorch: two", quota.two, 45, 8, torch.need)]
