"""verify.sh's rows about compute time: shares, caps, preemption, overhead, marks, the driver's own slices. Figures are facts; a row fails where nothing
was shared at all, not where a goal is missed: the goals are in the text beside the figure."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 5
PRESETS = ("equal", "lengths", "sync", "graphs", "processes", "three", "cap10", "cap30", "cap50", "preempt", "idle", "handoff")
WIDE = 15  # percentage points that would mean that nothing is shared
SHARES = (
    ("two: matmul 70, attention 30", (("matmul", 70), ("attention", 30))),
    ("two: small kernels 50, matmul 50", (("small", 50), ("matmul", 50))),
    ("two: graphs 50, matmul 50", (("graph", 50), ("matmul", 50))),
    ("three: matmul 50, attention 30, small kernels 20", (("matmul", 50), ("attention", 30), ("small", 20))),
)


def bench(machine, *arguments):
    """One run of the benchmark; its experiments."""
    found = machine.work / "bench.json"
    machine.run([machine.gpushare, "bench", "share", "--gpu", machine.gpu, "--seconds", str(1 if machine.soft else SECONDS),
                 "--json", found, *arguments])
    return json.loads(found.read_text())["experiments"]


def preset(machine, name):
    (outcome,) = bench(machine, "--preset", name, "--alone", "1" if name == "sync" else "0")
    said = []
    for tenant in outcome["tenants"]:
        share = f"{tenant['name']} {tenant['share'] * 100:.1f} %"
        if tenant["error_pp"] is not None:
            share += f" ({tenant['error_pp']:+.2f} pp, goal 1)"
        if tenant["cap_error_pp"] is not None:
            share += f", worst second {tenant['cap_error_pp']:.2f} pp from the cap, goal 2"
        if tenant["waited"]:
            share += f", waits p50 {tenant['waited']['p50_ns'] / 1e6:.2f} p99 {tenant['waited']['p99_ns'] / 1e6:.2f} ms"
        said.append(share)
    if outcome["idle"] is not None and len(outcome["tenants"]) > 1:
        said.append(f"idle {outcome['idle'] * 100:.2f} %, goal 1")
    said += [f"{gap['from']} to {gap['to']}: p50 {gap['p50_ns'] / 1e3:.0f} us p99 {gap['p99_ns'] / 1e3:.0f} us" for gap in outcome["handoffs"]]
    worst = max((abs(tenant["error_pp"]) for tenant in outcome["tenants"] if tenant["error_pp"] is not None), default=0)
    assert machine.soft or worst < WIDE, "; ".join(said)
    return "; ".join(said)


def overhead(machine):
    """What gpushare costs alone, and two tenants together."""
    alone = ["--tenant", "name=a,kernel=50us", "--alone", "0"]
    bare, ours = (bench(machine, *alone, *extra)[0]["tenants"][0]["device"] for extra in (["--bare"], []))
    (both,) = bench(machine, "--tenant", "name=a,kernel=50us,share=50", "--tenant", "name=b,kernel=50us,share=50", "--alone", "1")
    return (f"50 us kernels keep the device busy {bare * 100:.2f} % without and {ours * 100:.2f} % with gpushare alone (goal: 1 % less at most); "
            f"shared, {both['overhead'] * 100:.2f} % is lost (goal 3)")


def marks(machine):
    facts = json.loads(machine.run([machine.compile("scripts/gpu/marks.c")]))
    return ", ".join(f"{name} {value} ns" for name, value in facts.items())


def slices(machine, not_available):
    if machine.soft:
        raise not_available("the kernel is this program's own; softgpu's slice is 2 ms")
    program = machine.compile("scripts/gpu/slice.c")
    both = [subprocess.Popen([program], env=machine.bare, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    facts = [json.loads(each.communicate(timeout=60)[0]) for each in both]
    return f"two processes, bare: the device is away for {facts[0]} and {facts[1]}"


@contextlib.contextmanager
def tenants(machine, wanted):
    """Programs in containers of their own, ready."""
    started = []
    try:
        for number, (what, flags) in enumerate(wanted):
            command = [machine.gpushare, "run", "--daemon", "on", "--gpu", machine.gpu, "--name", f"verify-{os.getpid()}-{number}-{what}", *flags, "--",
                       sys.executable, str(HERE / "torch_share.py"), what]
            started.append(subprocess.Popen(command, env=machine.bare, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for each in started:
            assert each.stdout.readline() == "ready\n", "a tenant did not start"
        yield started
    finally:
        for each in started:
            each.stdin.close()
            each.terminate()
            each.wait(20)


def together(machine, wanted):
    with tenants(machine, wanted) as started:
        for each in started:
            each.stdin.write(f"{SECONDS}\n")
            each.stdin.flush()
        return [json.loads(each.stdout.readline()) for each in started]


ALONE = {}


def alone(machine, what):
    if what not in ALONE:
        (ALONE[what],) = together(machine, [(what, [])])
    return ALONE[what]


def torch_share(machine, wanted):
    """What each gets of what it does alone, against its share of what all get."""
    rates = [alone(machine, what)["rate"] for what, _ in wanted]
    found = together(machine, [(what, ["--sm-request", str(share)]) for what, share in wanted])
    parts = [each["rate"] / rate for each, rate in zip(found, rates)]
    got = [part / sum(parts) * 100 for part in parts]
    said = "; ".join(f"{what} {share} %: {part:.1f} % ({part - share:+.2f} pp, goal 1)" for (what, share), part in zip(wanted, got))
    assert max(abs(part - share) for (_, share), part in zip(wanted, got)) < WIDE, said
    return f"{said}; together {sum(parts) * 100:.1f} % of what one has alone"


def torch_cap(machine):
    got = [together(machine, [("matmul", ["--sm-limit", str(cap)])])[0]["rate"] / alone(machine, "matmul")["rate"] * 100 for cap in (10, 30, 50)]
    return "; ".join(f"cap {cap} %: {part:.1f} %" for cap, part in zip((10, 30, 50), got))


def torch_serve(machine):
    """An inference loop alone, beside training of equal rank, and above it."""
    by_itself = alone(machine, "serve")
    said = [f"alone p50 {by_itself['p50_ms']:.2f} p99 {by_itself['p99_ms']:.2f} ms"]
    for name, ranks in (("equal", ((), ())), ("above", (("--priority", "900"), ("--priority", "100")))):
        serve, train = together(machine, [("serve", list(ranks[0])), ("matmul", list(ranks[1]))])
        said.append(f"{name}: p50 {serve['p50_ms']:.2f} p99 {serve['p99_ms']:.2f} ms, training {train['rate'] / alone(machine, 'matmul')['rate'] * 100:.0f} % of alone")
    return "; ".join(said)


def rows(machine, report, not_available, has_torch):
    """All of them; the shortest that say most first."""
    def torch(work):
        if machine.soft or not has_torch:
            raise not_available("the CUDA runtime needs a real driver" if machine.soft else "this python3 has no torch")
        return work()

    for name in PRESETS:
        report.row(f"time: {name}", lambda name=name: preset(machine, name))
    report.row("time: what gpushare costs", lambda: overhead(machine))
    report.row("time: marks by event and by stream write", lambda: marks(machine))
    report.row("time: the driver's own slices", lambda: slices(machine, not_available))
    for name, wanted in SHARES:
        report.row(f"PyTorch time: {name}", lambda wanted=wanted: torch(lambda: torch_share(machine, wanted)))
    report.row("PyTorch time: caps alone", lambda: torch(lambda: torch_cap(machine)))
    report.row("PyTorch time: an inference loop beside training", lambda: torch(lambda: torch_serve(machine)))
