"""verify.py's rows about compute time by gpushare's own benchmark: shares, caps, preemption, overhead; and what the driver does by itself: marks, slices.
Figures are facts; a row fails where nothing was shared at all, not where a goal is missed: the goals are in the text beside the figure."""

import json
import subprocess

from machine import LAST_WORDS
from rows import Row

SECONDS = 5  # measured, for a row about shares
SHORT = 4  # for one about caps or waiting
PRESETS = (("equal", SECONDS), ("lengths", SECONDS), ("sync", SECONDS), ("graphs", SECONDS), ("three", SECONDS), ("cap10", SHORT), ("cap30", SHORT), ("cap50", SHORT),
           ("processes", SHORT))
# Presets that compare tenants with gaps with and without gpushare.
AGAINST = ("gaps-2", "serving-1", "serving-workers", "gaps-4", "gaps-sync", "serving-first", "curve-5ms", "decode-10ms", "copies-trainer", "mixed")
# One that waits for each short kernel and was promised a part, beside one that waits for each long
# one: on softgpu the first had 27.9 of the 40 (ADR 173).
REQUEST = ("a", "name=a,kernel=50us,mode=sync,share=40"), ("b", "name=b,kernel=3ms,mode=sync")
LEAST = 0.15  # of the device, for the first of these
CAP_WIDE = 5  # percentage points beyond which a hard cap does not hold; an H200 had 0.3
WIDE = 15  # percentage points that would mean that nothing is shared
TICK = 20_000  # ns: a clock of the device that ticks more seldom cannot tell whose the time is


def bench(machine, seconds, *arguments):
    """One run of the benchmark; its experiments."""
    found = machine.folder / "bench.json"
    machine.run([machine.gpushare, "bench", "share", "--gpu", machine.gpu, "--seconds", 1 if machine.soft else seconds, "--json", found, *arguments])
    return json.loads(found.read_text())["experiments"]


def preset(machine, name, seconds):
    (outcome,) = bench(machine, seconds, "--preset", name, "--alone", "1" if name == "sync" else "0")
    said = []
    for tenant in outcome["tenants"]:
        share = f"{tenant['name']} {tenant['share'] * 100:.1f} %"
        if tenant["error_pp"] is not None:
            share += f" ({tenant['error_pp']:+.2f} pp, goal 1)"
        if tenant["cap_error_pp"] is not None:
            share += f", worst second {tenant['cap_error_pp']:+.2f} pp from the cap, goal 2"
        if tenant["waited"]:
            share += f", waits p50 {tenant['waited']['p50_ns'] / 1e6:.2f} p99 {tenant['waited']['p99_ns'] / 1e6:.2f} ms"
        said.append(share)
    if outcome["idle"] is not None and len(outcome["tenants"]) > 1:
        said.append(f"idle {outcome['idle'] * 100:.2f} %, goal 1")
    said += [f"{gap['from']} to {gap['to']}: p50 {gap['p50_ns'] / 1e3:.0f} us p99 {gap['p99_ns'] / 1e3:.0f} us" for gap in outcome["handoffs"]]
    worst = max((abs(tenant["error_pp"]) for tenant in outcome["tenants"] if tenant["error_pp"] is not None), default=0)
    assert machine.soft or worst < (CAP_WIDE if name.startswith("cap") else WIDE), "; ".join(said)
    return "; ".join(said), outcome


def against_bare(machine, *which):
    """The same tenants without and with gpushare, in one run."""
    found = machine.folder / "bench.json"
    machine.run([machine.gpushare, "bench", "share", "--gpu", machine.gpu, "--seconds", 1 if machine.soft else SHORT, "--alone", "0",
                 *which, "--compare-bare", "--json", found])
    (both,) = json.loads(found.read_text())["comparisons"]

    def figure(pair, scale=100.0, unit="%", places=2):
        return f"{pair['bare'] * scale:.{places}f} then {pair['shared'] * scale:.{places}f} {unit}" if pair else "unknown"

    said = [f"useful {figure(both['useful'])}, goal 95 % of bare"]
    for tenant in both["tenants"]:
        part = f"{tenant['name']} {figure(tenant['device'])}"
        if tenant["asked"] is not None:
            part += f" of {tenant['asked'] * 100:.0f} asked"
        if tenant["wait_p99"]:
            part += f", wait p99 {figure(tenant['wait_p99'], 1e-6, 'ms')}"
            part += f" of {figure(tenant['waits'], 1, 'waits', 0)}" if tenant["waits"] else ""
        if tenant["wait_p50"]:
            part += f", p50 {figure(tenant['wait_p50'], 1e-3, 'us')}, {figure(tenant['launching_p50'], 1e-3, 'us')} of it in the calls that launch"
        part += f", {figure(tenant['cores'], 1, 'of a core')}"
        said.append(part)
    starved = [tenant["name"] for tenant in both["tenants"] if tenant["device"] and tenant["device"]["shared"] <= 0]
    assert machine.soft or not starved, f"{', '.join(starved)} got nothing; " + "; ".join(said)
    return "; ".join(said), both


def request(machine):
    """A request is served, if late, beside loops whose kernels are long."""
    said, both = against_bare(machine, *(word for _, tenant in REQUEST for word in ("--tenant", tenant)))
    got = {tenant["name"]: tenant["device"]["shared"] for tenant in both["tenants"]}
    assert machine.soft or got[REQUEST[0][0]] >= LEAST, f"40 % were promised; {said}"
    return said, both


def overhead(machine):
    """The cost of gpushare for one tenant alone and for two together."""
    alone = ["--tenant", "name=a,kernel=50us", "--alone", "0"]
    bare, ours = (bench(machine, SHORT, *alone, *extra)[0]["tenants"][0]["device"] for extra in (["--bare"], []))
    (both,) = bench(machine, SHORT, "--tenant", "name=a,kernel=50us,share=50", "--tenant", "name=b,kernel=50us,share=50", "--alone", "1")
    return (f"50 us kernels keep the device busy {bare * 100:.2f} % without and {ours * 100:.2f} % with gpushare alone (goal: 1 % less at most); "
            f"shared, {both['overhead'] * 100:.2f} % is lost (goal 3)"), {"bare": bare, "alone": ours, "shared": both}


def outside(machine):
    """80 : 20 of what a program without the library leaves: the driver's samples tell of it (ADR 240)."""
    lasts = 2 if machine.soft else 3 * SECONDS
    alone = [machine.gpushare, "bench", "share", "--gpu", machine.gpu, "--alone", "0", "--bare", "--seconds", lasts, "--tenant", "name=outside,kernel=500us"]
    beside = machine.start(alone, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (both,) = bench(machine, 2 * SECONDS, "--tenant", "name=most,kernel=500us,share=80", "--tenant", "name=rest,kernel=500us,share=20", "--alone", "0")
    goes_on = beside.poll() is None
    used = [tenant["device"] for tenant in both["tenants"]]
    part = used[0] / sum(used)
    said = f"{part * 100:.1f} : {100 - part * 100:.1f} of the {sum(used) * 100:.1f} % that a deep queue without the library left; half and half where its work is not known"
    assert machine.soft or goes_on, "the program without the library ended early"
    assert machine.soft or abs(part - 0.8) < WIDE / 100, said
    return said, both


def marks(machine):
    """Marks are events (ADR 20); whether the other kind would be better is this row's question."""
    facts = json.loads(machine.run([machine.compile("scripts/gpu/marks.c")]))
    said = "; ".join(f"{way}: put {fact['put']} ns, asked {fact['asked']} ns, seen {fact['seen']} ns after" for way, fact in facts.items() if fact)
    if not facts["write"]:
        return f"{said}; this device has no 64-bit writes of streams, so: events", facts
    cost = {way: fact["put"] + fact["asked"] for way, fact in facts.items()}
    better = min(cost, key=cost.get)
    return f"{said}; to put one and ask once: event {cost['event']} ns, write {cost['write']} ns: better to keep: {better} (kept now: event, ADR 20)", facts


def pairs(machine):
    """What a pair of events adds to a kernel's time, of which gpushare takes off what two events without a kernel say (ADR 67)."""
    facts = json.loads(machine.run([machine.compile("scripts/gpu/pairs.c")]))
    said = "; ".join(f"{fact['kernel'] / 1e3:.0f} us: {fact['each'] / 1e3:.2f} us each in a full stream, {fact['pair'] / 1e3:.2f} by two events there, "
                     f"{fact['pair_alone'] / 1e3:.2f} in an empty one" for fact in facts)
    behind = min(fact["behind"] for fact in facts)
    over = max(abs(fact["pair"] - behind - fact["each"]) for fact in facts)
    said = f"two events without a kernel are {behind / 1e3:.2f} us apart; {said}; without that a time is {over / 1e3:.2f} us off at most (goal: 1)"
    assert machine.soft or over < 3000, said
    return said, facts


def contended(machine, flags, count):
    """What marks could disturb, without gpushare and in so many tenants at once: under a cap or beside another the gate opens and closes all the time."""
    program = machine.compile("scripts/gpu/contended.c")
    ours = [machine.gpushare, "run", "--daemon", "on", "--gpu", machine.gpu, *flags, "--", program]
    bare, *found = (dict(line.split(None, 1) for line in out.splitlines()) for out in (machine.run([program]), *machine.runs([ours] * count)))
    said = "; ".join(f"{name}: {', '.join(one[name] for one in found)}" + (f" (without gpushare: {bare[name]})" if bare[name] != "ok" else "") for name in bare)
    assert all(one.keys() == bare.keys() and all(word == "ok" or bare[name] != "ok" for name, word in one.items()) for one in found), said
    return said, {"bare": bare, "found": found}


def slices(machine):
    """How long the driver lets each of two processes have the device, without gpushare; one alone must not see it taken."""
    program = machine.compile("scripts/gpu/slice.c")

    def together(count):
        both = [machine.start([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(count)]
        for each in both:
            if each.stdout.readline() != "ready\n":
                raise AssertionError(f"it does not start: {each.stderr.read().strip()[-LAST_WORDS:]}")
        for each in both:
            each.stdin.write("go\n")
            each.stdin.flush()
        said = [each.communicate() for each in both]
        assert all(each.returncode == 0 for each in both), "; ".join(err.strip()[-LAST_WORDS:] for _, err in said)
        return [json.loads(out) for out, _ in said]

    (alone,), both = together(1), together(2)
    figures = {"alone": alone, "two": both}
    if machine.soft:
        return "softgpu does not run this kernel: only that the programs start, launch and end together", figures
    said = f"the device's clock ticks each {alone['tick_ns']} ns; alone: taken {alone['leaps']} times; two processes: " + " and ".join(
        f"taken {fact['leaps']} times, for p10 {fact['away_us'][0]} p50 {fact['away_us'][1]} p90 {fact['away_us'][2]} us, "
        f"kept for p50 {fact['kept_us'][1]} us" if fact["leaps"] else "never taken" for fact in both)
    assert alone["tick_ns"] < TICK, f"{said}: too coarse for the benchmark's kernels, whose figures below mean nothing"
    assert any(fact["leaps"] for fact in both), f"{said}: the two did not share the device by time (MPS?)"
    return said, figures


def rows():
    """The driver's own sharing, the benchmark's experiments, their cost."""
    return ([Row("time: the driver's own slices", slices, expected=4), Row("time: marks by event and by stream write", marks, expected=1),
             Row("time: what two events around a kernel add", pairs, expected=1),
             Row("time: programs that marks could disturb, beside another", lambda machine: contended(machine, (), 2), limit=90, expected=16),
             Row("time: programs that marks could disturb, under a cap", lambda machine: contended(machine, ("--sm-limit", "40"), 1), limit=90, expected=14)],
            [*(Row(f"time, without and with: {name}", lambda machine, name=name: against_bare(machine, "--preset", name), limit=40, expected=13) for name in AGAINST),
             Row("time, without and with: a request beside loops", request, limit=40, expected=13),
             *(Row(f"time: {name}", lambda machine, name=name, seconds=seconds: preset(machine, name, seconds), limit=40, expected=seconds + (6 if name == "sync" else 2)) for name, seconds in PRESETS),
             Row("shares beside a program without the library", outside, limit=60, expected=13),
             Row("time: what gpushare costs", overhead, limit=75, expected=20)])
