"""verify.py's rows about what gpushare tells of a node: `doctor`, `metrics` and `why`; and about limits of memory beside NVIDIA's MPS."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from collisions import GIB, MIB, OUT_OF_MEMORY, WAIT, Home
from rows import NotAvailable, Row

CONTROL = "nvidia-cuda-mps-control"
PROMPT = 10  # seconds for an answer of it


def told(machine):
    """`doctor` tries each way past a limit on this driver; metrics have a tenant's memory; `why` tells of a refusal."""
    home = Home(machine)
    first, second = home.guest([]), home.guest(["--on-collision", "fail"])
    assert first.ask(f"alloc {5 * GIB}") == "alloc 0", "the first does not get its part"
    assert second.ask(f"alloc {4 * GIB}") == f"alloc {OUT_OF_MEMORY}", "the second was not refused"
    names = [row["name"] for row in home.ps()]

    def asks(*words):
        return machine.run([machine.gpushare, *words], home.environment, patience=WAIT)
    end, refused = time.monotonic() + PROMPT, []
    while not refused and time.monotonic() < end:
        time.sleep(0.1)  # A program tells its daemon of refusals some at a time.
        why = {name: json.loads(asks("why", name, "--json"))["sentences"] for name in names}
        refused = [sentence for name in names for sentence in why[name] if "refused" in sentence]
    assert refused, f"`why` tells of no refusal: {why}"
    charged = [line for line in asks("metrics").splitlines() if line.startswith("gpushare_tenant_memory_charged_bytes{")]
    assert any(line.endswith(f" {5 * GIB}") for line in charged), f"no tenant has 5 GiB by the metrics: {charged}"
    assert first.ask("free 1") == "free 0", "the first cannot free"
    # Its status is not 0 where a check fails; the row says which.
    doctor = machine.start([machine.gpushare, "doctor", "--json", "--gpu", machine.gpu], home.environment, stdout=subprocess.PIPE, text=True)
    report = json.loads(doctor.communicate(timeout=WAIT)[0])
    checks = {check["check"]: check for check in report["checks"]}
    holds = checks["limit-holds"]
    said = "; ".join(f"{name} {check['verdict']}: {check['found']}" for name, check in checks.items() if check["verdict"] != "ok")
    said = f"doctor: {len(checks)} checks, {holds['found']}; {said or 'all are well'}; why: {refused[0]}"
    statuses = first.end(), second.end()
    assert statuses == (0, 0), f"they end with {statuses}"
    assert holds["verdict"] == "ok" and not any(check["verdict"] == "fail" for check in checks.values()), said
    return said, {"doctor": report, "why": why, "metrics": charged}


@contextlib.contextmanager
def mps(machine):
    """A control daemon of MPS in a folder of this row. It changes no setting of the card; its server ends with it."""
    if not shutil.which(CONTROL):
        raise NotAvailable(f"no {CONTROL} here")
    folder = machine.folder / "mps"
    folder.mkdir()
    environment = machine.bare | {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    control = machine.start([CONTROL, "-f"], environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + PROMPT
    while not (folder / "control").exists():
        if control.poll() is not None or time.monotonic() > end:
            raise NotAvailable("no control daemon of MPS starts here")
        time.sleep(0.05)
    try:
        yield environment
    finally:
        quits = machine.start([CONTROL], environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            quits.communicate(b"quit\n", timeout=PROMPT)
            control.wait(PROMPT)
        for pid in of_folder(folder):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def of_folder(folder):
    """Processes of MPS that were started for this folder."""
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and "nvidia-cuda-mps" in (entry / "cmdline").read_text() and str(folder).encode() in (entry / "environ").read_bytes():
                yield int(entry.name)


def beside_mps(machine):
    """Two clients of MPS, each under a limit of its own."""
    client, seen = machine.compile("tests/clients/quota.c"), []
    with mps(machine) as environment:
        script = f"init\nfill {32 * MIB}\ncheck\nkept\n"
        for limit, said in zip((512, 1024), machine.runs([machine.under(f"{limit}MiB", client) for limit in (512, 1024)], environment, script, WAIT)):
            lines, fits = said.split("\n"), limit // 32
            assert lines[:4] == ["init 0", f"fill {fits} 2", f"check {fits}", f"kept {fits}"], f"{limit} MiB: {lines}"
            seen.append(f"{limit} MiB: {fits} x 32 MiB, then CUDA_ERROR_OUT_OF_MEMORY")
        served = [pid for pid in of_folder(machine.folder / "mps")]
    return f"{'; '.join(seen)}; {len(served)} processes of MPS", None


def rows():
    return [Row("doctor, metrics and why", told, limit=45, expected=4), Row("limits of memory beside MPS", beside_mps, limit=60, expected=8)]
