"""The rows of verify.sh. Each is PASS, FAIL, or not available with its reason; FAIL anywhere makes the status 1."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import collisions
import compute

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MIB = 1 << 20
BINDINGS = ("dlsym", "v1", "v2", "twins", "v2-per-thread")
PATHS = ("linear", "pitch", "managed", "async", "pool", "vmm", "array", "mipmap", "graph")
TORCH = ("limit", "info", "smi", "expandable", "cudamallocasync", "graphs", "two")
BUDGET = 440  # seconds for all rows; what would begin later is not available
ROW = 90  # seconds for one


class NotAvailable(Exception):
    """This machine lacks what the row needs."""


class Report:
    """Markdown, one line a row, flushed line by line."""

    def __init__(self, folder, title):
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.failed, self.counts = folder / f"{title}.md", False, {}
        self.file, self.began = open(self.path, "w"), time.monotonic()

    def line(self, text=""):
        print(text, flush=True)
        self.file.write(text + "\n")
        self.file.flush()

    def row(self, name, work):
        began = time.monotonic()
        try:
            if began - self.began > BUDGET:
                raise NotAvailable(f"the {BUDGET} s of this run are used up")
            verdict, detail = "PASS", work()
        except NotAvailable as why:
            verdict, detail = "not available", str(why)
        except AssertionError as why:
            verdict, detail = "FAIL", str(why)
        except subprocess.TimeoutExpired:
            verdict, detail = "FAIL", f"no end within {ROW} s"
        except (OSError, ValueError, LookupError) as why:
            verdict, detail = "FAIL", f"{type(why).__name__}: {why}"
        self.failed |= verdict == "FAIL"
        self.counts[verdict] = self.counts.get(verdict, 0) + 1
        cell = " ".join(str(detail).split()).replace("|", "\\|")
        self.line(f"| {name} | **{verdict}** | {cell} | {time.monotonic() - began:.1f} s |")


class Machine:
    """Programs on the GPU, with the library or without."""

    def __init__(self, gpushare, soft, work):
        self.gpushare, self.soft, self.work = gpushare, soft, work
        self.gpu = f"soft:name=verify-{os.getpid()},mem=16GiB" if soft else "auto"
        self.bare = dict(os.environ)
        if soft:
            links = work / "links"
            links.mkdir()
            for name, library in (("libcuda.so.1", "cuda"), ("libcuda.so", "cuda"), ("libnvidia-ml.so.1", "nvml")):
                (links / name).symlink_to(pathlib.Path(gpushare).resolve().parent / f"libsoftgpu_{library}.so")
            self.bare |= {"LD_LIBRARY_PATH": str(links), "SOFTGPU": self.gpu.removeprefix("soft:")}

    def under(self, limit, *command, name=None):
        named = ["--name", name] if name else []
        return [self.gpushare, "run", "--gpu", self.gpu, "--mem-limit", limit, *named, "--", *map(str, command)]

    def run(self, command, environment=None, stdin=None):
        done = subprocess.run(command, env=environment or self.bare, input=stdin, capture_output=True, text=True, timeout=ROW)
        assert done.returncode == 0, f"status {done.returncode}: {done.stderr.strip()[-400:]}"
        return done.stdout

    def compile(self, source, *flags):
        if not shutil.which("cc"):
            raise NotAvailable("no C compiler")
        program = self.work / pathlib.Path(source).stem
        if not program.exists():
            subprocess.run(["cc", "-O2", "-o", program, ROOT / source, "-ldl", "-lpthread", *flags], check=True, timeout=ROW)
        return program


def capabilities(machine, report):
    """What this machine is. Facts, no verdicts."""
    report.line("| what | value |\n|---|---|")
    facts = {"kernel": os.uname().release, "machine": os.uname().machine, "cores": os.cpu_count(), "python": sys.version.split()[0]}
    try:
        for device in json.loads(machine.run([machine.gpushare, "devices", "--json"])):
            facts[f"GPU {device['ordinal']}"] = f"{device['name']}, {device['memory'] // MIB} MiB"
    except (AssertionError, OSError, ValueError) as why:
        facts["GPU"] = f"none: {why}"
    if shutil.which("nvidia-smi") and not machine.soft:
        query = "driver_version,name,memory.used,compute_mode,mig.mode.current,persistence_mode"
        facts["nvidia-smi"] = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    try:
        facts |= {f"driver: {line.split()[0]}": line.split()[1] for line in
                  machine.run([machine.compile("scripts/gpu/capabilities.c")]).splitlines()}
    except (AssertionError, NotAvailable, subprocess.SubprocessError) as why:
        facts["driver"] = f"not asked: {why}"
    facts["torch"] = torch_version() or "none"
    for name, value in facts.items():
        report.line(f"| {name} | {value} |")


def torch_version():
    asked = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__, torch.version.cuda)"],
                           capture_output=True, text=True)
    return asked.stdout.strip() if asked.returncode == 0 else None


def conformance(machine, out):
    """The committed transcript against this driver, and this driver's own answers for the record."""
    if not shutil.which("cc"):
        raise NotAvailable("no C compiler")
    copy = machine.work / "conformance"
    shutil.copytree(ROOT / "softgpu/conformance", copy)
    compared = subprocess.run([copy / "run.sh"], env=machine.bare, capture_output=True, text=True, timeout=ROW)
    said = compared.stdout.strip().splitlines() or [compared.stderr.strip()[-300:]]
    if not machine.soft:
        subprocess.run([copy / "run.sh", "--record", "this driver"], env=machine.bare, capture_output=True, timeout=ROW)
        shutil.copy(copy / "transcript.tsv", out / "transcript.tsv")
    assert compared.returncode == 0, "; ".join(said[-12:])
    return said[-1]


def pair(machine):
    """Two C programs, different quotas: each stops at its own, neither feels the other."""
    client, seen = machine.compile("tests/clients/quota.c"), []
    script = f"init\ninfo\nfill {32 * MIB}\ncheck\nfree 4\nfill {32 * MIB}\ncheck\n"
    processes = [subprocess.Popen(machine.under(f"{limit}MiB", client), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                 for limit in (512, 1024)]
    for limit, process in zip((512, 1024), processes):
        lines = process.communicate(script, timeout=ROW)[0].split("\n")
        fits = limit // 32
        assert lines[0] == "init 0", lines
        assert lines[1].split()[2] == str(limit * MIB), lines[1]
        assert lines[2:7] == [f"fill {fits} 2", f"check {fits}", "free 0", "fill 4 2", f"check {fits}"], lines
        seen.append(f"{limit} MiB: {fits} x 32 MiB, then CUDA_ERROR_OUT_OF_MEMORY")
    return "; ".join(seen)


def path(machine, name):
    """One way of allocating by every binding: to the limit, freed, to the limit again."""
    client, seen = machine.compile("tests/clients/matrix.c"), []
    for binding in BINDINGS:
        lines = machine.run(machine.under("256MiB", client, binding, name), stdin="take\ngive\ntake\ngive\n").split("\n")
        first, again = lines[0].split(), lines[2].split()
        assert first[0] == "take" and first[2] == "2" and 1 <= int(first[1]) <= 32, f"{binding}: {lines}"
        assert lines[1] == lines[3] == "give 0" and again == first, f"{binding}: {lines}"
        seen.append(int(first[1]))
    return f"8 MiB pieces until refused under 256 MiB: {dict(zip(BINDINGS, seen))}, the same after freeing"


def overhead(machine):
    """Nanoseconds a call on the real driver, without and with the library."""
    program = machine.compile("scripts/gpu/overhead.c")
    facts = [json.loads(machine.run(command)) for command in ([str(program)], machine.under("2GiB", program)) for _ in range(3)]
    best = [{key: min(fact[key] for fact in three) for key in three[0]} for three in (facts[:3], facts[3:])]
    return ", ".join(f"{key}: {best[0][key]:.0f} -> {best[1][key]:.0f}" for key in best[0])


def costs(machine):
    """What the driver takes by itself, in a program without the library."""
    facts = json.loads(machine.run([str(machine.compile("scripts/gpu/costs.c"))]))
    return ", ".join(f"{name} {value / MIB:.1f} MiB" for name, value in facts.items())


def fence(machine):
    """The driver's own limits for cgroups, which the daemon's fence stands on."""
    if machine.soft:
        raise NotAvailable("softgpu has no limits for cgroups")
    program = machine.compile("tests/clients/quota.c")
    done = subprocess.run([sys.executable, HERE / "fence.py", program], env=machine.bare, capture_output=True, text=True, timeout=ROW)
    if done.returncode == 3:
        raise NotAvailable(done.stdout.strip())
    assert done.returncode == 0, f"{done.stdout.strip()} {done.stderr.strip()[-200:]}"
    return done.stdout.strip()


def torch(machine, mode):
    """PyTorch as it is, under 2 GiB."""
    if not torch_version():
        raise NotAvailable("this python3 has no torch")
    if machine.soft:
        raise NotAvailable("the CUDA runtime needs a real driver")
    script = HERE / "torch_quota.py"
    if mode == "two":
        name = f"verify-two-{os.getpid()}"
        command = machine.under("2GiB", sys.executable, script, "hold", name=name)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            try:
                assert holder.stdout.readline() == "holding\n", "the first process did not get its part"
                said = machine.run(machine.under("2GiB", sys.executable, script, "rest", name=name))
            finally:
                holder.stdin.close()
        return said
    environment = dict(machine.bare)
    backend = {"expandable": "expandable_segments:True", "cudamallocasync": "backend:cudaMallocAsync"}
    if mode in backend:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = environment["PYTORCH_ALLOC_CONF"] = backend[mode]
    return machine.run(machine.under("2GiB", sys.executable, script, mode), environment)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpushare", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--soft", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        machine = Machine(arguments.gpushare, arguments.soft, pathlib.Path(work))
        title = f"verify-{'soft-' if arguments.soft else ''}{time.strftime('%Y-%m-%d-%H%M%S')}"
        report = Report(arguments.out, title)
        report.line(f"# {'A rehearsal on softgpu' if arguments.soft else 'What a real GPU showed'}, {time.strftime('%Y-%m-%d')}\n")
        capabilities(machine, report)
        report.line("\n| row | verdict | what was seen | time |\n|---|---|---|---|")
        report.row("conformance transcript", lambda: conformance(machine, arguments.out))
        report.row("quota: two C programs", lambda: pair(machine))
        for name in PATHS:
            report.row(f"quota: {name}", lambda name=name: path(machine, name))
        for mode in TORCH:
            report.row(f"PyTorch: {mode}", lambda mode=mode: torch(machine, mode))
        report.row("ns a call, without and with the library", lambda: overhead(machine))
        report.row("what the driver takes by itself", lambda: costs(machine))
        report.row("the driver's limits for cgroups", lambda: fence(machine))
        collisions.rows(machine, report, NotAvailable, torch_version())
        compute.rows(machine, report, NotAvailable, torch_version())
        total = ", ".join(f"{count} {verdict}" for verdict, count in sorted(report.counts.items()))
        report.line(f"\n{total}; {time.monotonic() - report.began:.0f} s")
        print(f"report: {report.path}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
