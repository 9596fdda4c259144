"""verify.py's rows about compute time with PyTorch: what each kind of work does alone and bare, and what it gets of that when two or three share, under
caps, and when an inference loop runs beside training."""

import json
import subprocess
import sys
import time

from compute import SECONDS, WIDE
from machine import LAST_WORDS, ROOT
from rows import NotAvailable, Row

PROGRAM = ROOT / "scripts/gpu/torch_share.py"
ALONE = 3  # seconds, for one without competition
KINDS = ("matmul", "attention", "small", "graph", "serve")
SHARES = (
    ("two: matmul 70, attention 30", (("matmul", 70), ("attention", 30))),
    ("two: small kernels 50, matmul 50", (("small", 50), ("matmul", 50))),
    ("two: graphs 50, matmul 50", (("graph", 50), ("matmul", 50))),
    ("three: matmul 50, attention 30, small kernels 20", (("matmul", 50), ("attention", 30), ("small", 20))),
    ("three: graphs 40, matmul 40, attention 20", (("graph", 40), ("matmul", 40), ("attention", 20))),
)
PAIRS = (("small", "small"), ("serve", "copies"), ("serve", "memsets"))
CAPS = (10, 30, 50)
BESIDE = (("without gpushare", None, None), ("equal", (), ()), ("above", ("--priority", "900"), ("--priority", "100")))


class Tenant:
    """One program, ready to work. `flags` are `gpushare run`'s; None: without gpushare. Programs with the same `folder` have the same daemon."""

    def __init__(self, machine, what, flags, folder):
        machine.made += 1
        run = [] if flags is None else [machine.gpushare, "run", "--daemon", "on", "--gpu", machine.gpu, "--name", f"verify-{machine.made}-{what}", *flags, "--"]
        self.what, self.errors = what, folder / f"{machine.made}.err"
        with open(self.errors, "w") as stderr:
            self.process = machine.start([*run, sys.executable, machine.tenant or PROGRAM, what], machine.bare | {"XDG_RUNTIME_DIR": str(folder)},
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def line(self):
        said = self.process.stdout.readline()
        assert said, f"{self.what} ended: {self.errors.read_text().strip()[-LAST_WORDS:]}"
        return said

    def ready(self):
        assert self.line() == "ready\n", f"{self.what} is not ready"


def prepare(machine, *groups):
    """Groups of tenants, (what, flags) each. All start at once and are ready when this returns. Only one group may be under gpushare: each has a
    daemon of its own, and a GPU has one daemon at a time."""
    assert sum(any(flags is not None for _, flags in group) for group in groups) <= 1, "two daemons for one GPU"
    made = [[Tenant(machine, what, flags, folder) for what, flags in group] for group, folder in ((group, machine.runtime()) for group in groups)]
    for group in made:
        for tenant in group:
            tenant.ready()
    return made


def one_after_the_other(machine, *groups):
    """The same, for several groups under gpushare: a group starts when the one before has ended, and its daemon with it."""
    for group in groups:
        (tenants,) = prepare(machine, group)
        yield tenants
        machine.end_daemons()


def work(tenants, seconds):
    """They work at the same time; what each did. They have ended then."""
    begin = time.monotonic() + 0.2
    for tenant in tenants:
        tenant.process.stdin.write(f"{begin} {seconds}\n")
        tenant.process.stdin.flush()
    found = [json.loads(tenant.line()) for tenant in tenants]
    for tenant in tenants:
        status = tenant.process.wait()
        assert status == 0, f"{tenant.what} ended with status {status}: {tenant.errors.read_text().strip()[-LAST_WORDS:]}"
    return found


def latency(fact):
    return f"p50 {fact['p50_ms']:.2f} p99 {fact['p99_ms']:.2f} ms of {fact['requests']}"


class Rows:
    """Results of one row that other rows use."""

    def __init__(self):
        self.bare = None

    def alone(self):
        if self.bare is None:
            raise NotAvailable("it is not known what each does alone")
        return self.bare

    def baseline(self, machine):
        """Each alone without gpushare: the baseline of the other rows."""
        bare = {tenant.what: work([tenant], ALONE)[0] for (tenant,) in prepare(machine, *([(what, None)] for what in KINDS))}
        assert all(fact["rate"] > 0 for fact in bare.values()), bare
        self.bare = bare
        return ", ".join(f"{what} {fact['rate']:.0f}/s" + (f" ({latency(fact)})" if what == "serve" else "") for what, fact in bare.items()), bare

    def cost(self, machine):
        """Each alone under gpushare, against alone without."""
        bare = self.alone()
        found = {tenant.what: work([tenant], ALONE)[0] for (tenant,) in one_after_the_other(machine, *([(what, ())] for what in KINDS))}
        said = [f"{what} {(found[what]['rate'] / bare[what]['rate'] - 1) * 100:+.2f} %" for what in KINDS if what != "serve"]
        return f"{', '.join(said)} of the rate without gpushare (goal: 1 % less at most); serve: {latency(bare['serve'])} -> {latency(found['serve'])}", found

    def share(self, machine, wanted):
        """Each tenant's throughput relative to running alone, against its share of the total."""
        bare = self.alone()
        (tenants,) = prepare(machine, [(what, ("--sm-request", share)) for what, share in wanted])
        parts = [fact["rate"] / bare[tenant.what]["rate"] for tenant, fact in zip(tenants, work(tenants, SECONDS))]
        assert sum(parts) > 0, "no tenant did any work"
        got = [part / sum(parts) * 100 for part in parts]
        said = "; ".join(f"{what} {share} %: {part:.1f} % ({part - share:+.2f} pp, goal 1)" for (what, share), part in zip(wanted, got))
        said += f"; together {sum(parts) * 100:.1f} % of what one has alone (goal: 97)"
        assert max(abs(part - share) for (_, share), part in zip(wanted, got)) < WIDE, said
        # A tenant that launches small kernels leaves the device idle by itself, and other tenants
        # may use that time.
        assert sum(parts) < 1.15 or any(what == "small" for what, _ in wanted), f"{said}: they did not share one device"
        return said, {"wanted": wanted, "parts_of_alone": parts}

    def cap(self, machine):
        """Alone under a hard cap."""
        bare = self.alone()
        groups = one_after_the_other(machine, *([("matmul", ("--sm-limit", cap))] for cap in CAPS))
        got = [work(group, SECONDS)[0]["rate"] / bare["matmul"]["rate"] * 100 for group in groups]
        said = "; ".join(f"cap {cap} %: {part:.1f} % (goal 2 pp)" for cap, part in zip(CAPS, got))
        assert max(abs(part - cap) for cap, part in zip(CAPS, got)) < WIDE, said
        return said, dict(zip(CAPS, got))

    def beside(self, machine):
        """An inference loop beside training without gpushare, of equal rank, and above it."""
        bare = self.alone()
        said, figures = [f"alone {latency(bare['serve'])}"], {}
        groups = one_after_the_other(machine, *([("serve", serve), ("matmul", train)] for _, serve, train in BESIDE))
        for (name, _, _), group in zip(BESIDE, groups):
            serve, train = figures[name] = work(group, SECONDS)
            said.append(f"{name}: {latency(serve)}, training {train['rate'] / bare['matmul']['rate'] * 100:.0f} % of alone")
        said.append(f"preempting costs p99 {figures['above'][0]['p99_ms'] - bare['serve']['p99_ms']:.2f} ms (goal 3)")
        return "; ".join(said), figures

    def pair(self, machine, kinds):
        """Two together, without and with gpushare: the driver's own sharing is the lower bound for each tenant."""
        groups = prepare(machine, *([(what, flags) for what in kinds] for flags in (None, ())))
        bare, ours = (work(group, SECONDS) for group in groups)
        said = []
        for what, before, after in zip(kinds, bare, ours):
            waits = f" ({latency(before)} -> {latency(after)})" if what == "serve" else ""
            said.append(f"{what} {before['rate']:.1f} -> {after['rate']:.1f} a second{waits}")
        assert all(fact["rate"] > 0 for fact in ours), "; ".join(said)
        return "; ".join(said), {"bare": bare, "shared": ours}


def rows(torch):
    """The row that other rows use comes first."""
    found = Rows()
    named = [("alone, without gpushare", found.baseline, 75, 30), ("an inference loop beside training", found.beside, 90, 40)]
    named += [(name, lambda machine, wanted=wanted: found.share(machine, wanted), 45, 15) for name, wanted in SHARES]
    named += [(f"{' beside '.join(kinds)}, without and with", lambda machine, kinds=kinds: found.pair(machine, kinds), 60, 20) for kinds in PAIRS]
    named += [("caps alone", found.cap, 90, 40), ("what gpushare costs alone", found.cost, 120, 50)]

    def needing(ask):
        def work(machine):
            if not machine.tenant:
                torch.need()
            return ask(machine)
        return work

    return [Row(f"PyTorch time: {name}", needing(ask), limit=limit, least=least) for name, ask, limit, least in named]
