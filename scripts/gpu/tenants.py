"""verify.py's rows about compute time with PyTorch: what each kind of work does alone and bare, and what it gets of that when two or three share, under
caps, and when an inference loop runs beside training."""

import collections
import json
import subprocess
import sys
import threading
import time

from compute import CAP_WIDE, SECONDS, WIDE
from machine import LAST_WORDS, ROOT
from rows import Row

PROGRAM = ROOT / "scripts/gpu/torch_share.py"
ALONE = 3  # seconds, for one without competition
KINDS = ("matmul", "attention", "small", "graph", "serve")
# The processor paces it: it leaves the device idle by itself, and its rate says nothing of its part
# of the device's time.
PACED = "small"
SHARES = (
    ("two: matmul 70, attention 30", (("matmul", 70), ("attention", 30))),
    ("two: small kernels 50, matmul 50", (("small", 50), ("matmul", 50))),
    ("two: graphs 50, matmul 50", (("graph", 50), ("matmul", 50))),
    ("three: matmul 50, attention 30, small kernels 20", (("matmul", 50), ("attention", 30), ("small", 20))),
    ("three: graphs 40, matmul 40, attention 20", (("graph", 40), ("matmul", 40), ("attention", 20))),
)
PAIRS = (("serve", "copies"), ("serve", "memsets"), ("matmul", "copies"), ("matmul", "decode"), ("small", "small"))
CAPS = (("matmul", 10), ("matmul", 30), ("matmul", 50), ("graph", 30))
GANG = (("matmul", True), ("graph", True), ("attention", False))
BESIDE = (("without gpushare", None, None), ("equal", (), ()), ("above", ("--priority", "900"), ("--priority", "100")))


class Tenant:
    """One program, ready to work. `flags` are `gpushare run`'s; None: without gpushare. Programs with the same `folder` have the same daemon."""

    def __init__(self, machine, what, flags, folder):
        machine.made += 1
        run = [] if flags is None else [machine.gpushare, "run", "--daemon", "on", "--gpu", machine.gpu, "--name", f"verify-{machine.made}-{what}", *flags, "--"]
        self.what, self.folder, self.errors = what, folder, folder / f"{machine.made}.err"
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


class Watch:
    """Looks meanwhile at how the daemon of a folder has its tenants share: when, the device's mode, and each tenant's state and part."""

    PAUSE = 0.1  # seconds

    def __init__(self, machine, tenant):
        self.ask = [machine.gpushare, "ps", "--json"]
        self.environment = machine.bare | {"XDG_RUNTIME_DIR": str(tenant.folder)}
        self.seen, self.over, self.began = [], threading.Event(), time.monotonic()
        self.failed, self.thread = None, threading.Thread(target=self.looks)

    def looks(self):
        try:
            self.look()
        except Exception as why:
            self.failed = why

    def look(self):
        while not self.over.wait(self.PAUSE):
            at = time.monotonic() - self.began
            asked = subprocess.run(self.ask, env=self.environment, capture_output=True, text=True, timeout=10)
            rows = json.loads(asked.stdout) if asked.returncode == 0 else []
            parts = {row["name"]: (row["time"]["state"], row["time"]["held"]) for row in rows if row["time"]}
            self.seen += [(at, row["sharing"], parts) for row in rows[:1]]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.over.set()
        self.thread.join()
        if self.failed and kind is None:
            raise self.failed

    def modes(self):
        """How often each mode was seen."""
        counts = collections.Counter((sharing or {"now": "turns"})["now"] for _, sharing, _ in self.seen)
        return ", ".join(f"{mode} {count}" for mode, count in counts.most_common()) or "none"


def latency(fact):
    return f"p50 {fact['p50_ms']:.2f} p99 {fact['p99_ms']:.2f} ms of {fact['requests']}"


def waits(fact):
    return f" ({latency(fact)})" if "p50_ms" in fact else ""


class Rows:
    """The rows, and what some of them measure for others."""

    def __init__(self):
        self.bare = {}

    def alone(self, machine, kinds):
        """What each of these does alone without gpushare. Measured once."""
        missing = [what for what in dict.fromkeys(kinds) if what not in self.bare]
        for (tenant,) in prepare(machine, *([(what, None)] for what in missing)):
            (self.bare[tenant.what],) = work([tenant], ALONE)
        assert all(self.bare[what]["rate"] > 0 for what in kinds), self.bare
        return self.bare

    def baseline(self, machine):
        """Each alone without gpushare: the baseline of the other rows."""
        bare = self.alone(machine, KINDS)
        return ", ".join(f"{what} {fact['rate']:.0f}/s" + waits(fact) for what, fact in bare.items()), bare

    def cost(self, machine):
        """Each alone without gpushare, under it, and without it again."""
        said, figures = {}, {}
        for what in KINDS:
            three = prepare(machine, [(what, None)], [(what, ())], [(what, None)])
            before, ours, after = figures[what] = [work(group, ALONE)[0] for group in three]
            machine.end_daemons()
            bare = (before["rate"] + after["rate"]) / 2
            said[what] = f"{what} {(ours['rate'] / bare - 1) * 100:+.2f} % (without it again: {(after['rate'] / before['rate'] - 1) * 100:+.2f} %)"
        before, ours, after = figures["serve"]
        said["serve"] = f"serve: {latency(before)} -> {latency(ours)} -> {latency(after)}"
        goal = ", ".join(said[what] for what in KINDS if what not in (PACED, "serve"))
        return f"{goal} of the rate without gpushare (goal: 1 % less at most); {said[PACED]}; {said['serve']}", figures

    def parts(self, machine, tenants):
        """What each of a group gets of what it does alone, and of the device's time, in percent."""
        bare = self.alone(machine, [tenant.what for tenant in tenants])
        facts = work(tenants, SECONDS)
        parts = [fact["rate"] / bare[tenant.what]["rate"] * 100 for tenant, fact in zip(tenants, facts)]
        times = [fact["rate"] * fact["step_ms"] / 10 if fact.get("step_ms") else part for fact, part in zip(facts, parts)]
        assert min(parts) > 0, f"a tenant did no work: {parts}"
        return parts, times

    def share(self, machine, wanted):
        """Each tenant's part of the time of all, against its share; and its throughput relative to running alone. A device whose power is limited runs slower
        the more it has to do, so the second does not say the first."""
        self.alone(machine, [what for what, _ in wanted])
        (tenants,) = prepare(machine, [(what, ("--sm-request", share)) for what, share in wanted])
        parts, times = self.parts(machine, tenants)
        figures = {"wanted": wanted, "percent_of_alone": parts, "percent_of_time": times}
        if any(what == PACED for what, _ in wanted):
            said = ", ".join(f"{what} {share} %: {part:.1f} % of alone" for (what, share), part in zip(wanted, parts))
            return f"{said}; {PACED} is paced by the processor, so these do not add up to the device's time", figures
        got = [time / sum(times) * 100 for time in times]
        said = "; ".join(f"{what} {share} %: {time:.1f} % of their time ({time - share:+.2f} pp, goal 1), {part:.1f} % of alone"
                         for (what, share), time, part in zip(wanted, got, parts))
        said += f"; together {sum(times):.1f} % of the device's time (goal: 97), {sum(parts):.1f} % of what one does alone"
        assert max(abs(time - share) for (_, share), time in zip(wanted, got)) < WIDE, said
        assert sum(times) < 115, f"{said}: they did not share one device"
        return said, figures

    def gang(self, machine):
        """Two tenants of one gang beside a third tenant, and the same three without a gang."""
        self.alone(machine, [what for what, _ in GANG])
        said, figures = [], {}
        for name, flags in (("a gang of two", ("--gang", "verify")), ("no gang", ())):
            (tenants,) = prepare(machine, [(what, flags if member else ()) for what, member in GANG])
            figures[name] = parts, times = self.parts(machine, tenants)
            machine.end_daemons()
            said.append(f"{name}: {', '.join(f'{what} {time:.1f} % ({part:.1f})' for (what, _), part, time in zip(GANG, parts, times))}")
        return f"{'; '.join(said)} of the device's time (of alone); the gang is {' and '.join(what for what, member in GANG if member)}", figures

    def cap(self, machine):
        """Alone under a hard cap."""
        self.alone(machine, [what for what, _ in CAPS])
        groups = one_after_the_other(machine, *([(what, ("--sm-limit", cap))] for what, cap in CAPS))
        got = [(part, time) for (part,), (time,) in (self.parts(machine, group) for group in groups)]
        said = "; ".join(f"{what}, cap {cap} %: {time:.1f} % of the time (goal 2 pp), {part:.1f} % of alone" for (what, cap), (part, time) in zip(CAPS, got))
        assert max(abs(time - cap) for (_, cap), (_, time) in zip(CAPS, got)) < CAP_WIDE, said
        return said, {f"{what} {cap}": {"percent_of_alone": part, "percent_of_time": time} for (what, cap), (part, time) in zip(CAPS, got)}

    def beside(self, machine):
        """An inference loop beside training without gpushare, of equal rank, and above it."""
        bare = self.alone(machine, ("serve", "matmul"))
        said, figures = [f"alone {latency(bare['serve'])}"], {}
        groups = one_after_the_other(machine, *([("serve", serve), ("matmul", train)] for _, serve, train in BESIDE))
        for (name, _, _), group in zip(BESIDE, groups):
            serve, train = figures[name] = work(group, SECONDS)
            said.append(f"{name}: {latency(serve)}, training {train['rate'] / bare['matmul']['rate'] * 100:.0f} % of alone")
        said.append(f"preempting costs p99 {figures['above'][0]['p99_ms'] - bare['serve']['p99_ms']:.2f} ms (goal 3)")
        return "; ".join(said), figures

    def pair(self, machine, kinds):
        """Two together without gpushare, with it, and without it again: what differs by itself is seen, too."""
        groups = prepare(machine, *([(what, flags) for what in kinds] for flags in (None, (), None)))
        before = work(groups[0], SECONDS)
        with Watch(machine, groups[1][0]) as watch:
            ours = work(groups[1], SECONDS)
        after = work(groups[2], SECONDS)
        figures = before, ours, after
        said = "; ".join(f"{what} " + " -> ".join(f"{fact['rate']:.1f} a second{waits(fact)}" for fact in three) for what, *three in zip(kinds, *figures))
        assert all(fact["rate"] > 0 for fact in ours), said
        return f"{said}; modes seen: {watch.modes()}", {"bare": before, "shared": ours, "bare_again": after, "seen": watch.seen}


def rows(torch):
    """Name, work, limit, expected seconds."""
    found = Rows()
    named = [("alone, without gpushare", found.baseline, 75, 25), ("an inference loop beside training", found.beside, 120, 33)]
    named += [(name, lambda machine, wanted=wanted: found.share(machine, wanted), 75, 25) for name, wanted in SHARES]
    named += [(f"{' beside '.join(kinds)}, without and with", lambda machine, kinds=kinds: found.pair(machine, kinds), 75, 24) for kinds in PAIRS]
    named += [("caps alone", found.cap, 150, 50), ("a gang of two beside a third", found.gang, 100, 23), ("what gpushare costs alone", found.cost, 240, 72)]

    def needs(left):
        return torch.machine.tenant or torch.need(left)

    return [Row(f"PyTorch time: {name}", ask, limit, expected, needs) for name, ask, limit, expected in named]
