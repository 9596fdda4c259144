"""verify.sh's rows about memory that moves: on a device made small, so that no managed memory and no sum of tenants comes near what the card has. Guests
are tests/clients/quota.c; it compares both ends of every allocation, and `gpushare bench swap` every page."""

import json
import time

from collisions import GIB, MADE, MIB, WAIT, Guest
from rows import Row

WORK = 10  # seconds that the benchmark's pair works
SAMPLES = 30  # moves of an idle tenant
ROUNDS = 3


class Card:
    """Sizes on this machine: contexts of a real driver take some hundred MiB, and softgpu's memory is the host's own."""

    def __init__(self, soft):
        self.capacity, self.each, self.host = (GIB, 400 * MIB, 3 * GIB) if soft else (8 * GIB, 4 * GIB, 24 * GIB)
        self.first_context = 64 * MIB if soft else 512 * MIB


class Moving:
    """A user with a daemon of their own, whose device is small and whose tenants may move."""

    def __init__(self, machine):
        self.machine, self.card = machine, Card(machine.soft)
        config = machine.folder / "config.toml"
        config.write_text(
            f'capacity = "{self.card.capacity // MIB}MiB"\nfirst_context = "{self.card.first_context // MIB}MiB"\n'
            f'[swap]\nhost = "{self.card.host // MIB}MiB"\n')
        self.environment = machine.bare | {"GPUSHARE_DAEMON_CONFIG": str(config)}

    def guest(self, flags, bytes_):
        name = f"verify-{next(MADE)}"
        guest = Guest(self, name, flags, [self.machine.compile("tests/clients/quota.c")], self.card.capacity)
        answer = guest.ask("init")
        assert answer == "init 0", f"the guest does not start: {answer}: {guest.said()}"
        # In pieces, as programs allocate.
        for _ in range(4):
            guest.send(f"alloc {bytes_ // 4}")
            assert guest.line(WAIT * 2) == "alloc 0", f"{name} does not get its memory: {guest.said()}"
        return name, guest

    def order(self, *words):
        began = time.monotonic()
        self.machine.run([self.machine.gpushare, *words], self.environment, patience=WAIT * 2)
        return time.monotonic() - began

    def events(self, name):
        said = self.machine.run([self.machine.gpushare, "events", "--json", "--since", "1h", "--tenant", name], self.environment)
        return [json.loads(line)["kind"] for line in said.splitlines()]

    def place(self, name):
        rows = json.loads(self.machine.run([self.machine.gpushare, "ps", "--json"], self.environment))
        return next(row for row in rows if row["name"] == name)


def whole(guest, count=4):
    guest.send("check")
    answer = guest.line(WAIT * 2)
    assert answer == f"check {count}", f"{answer}, not check {count}: {guest.said()}"


def rotation(machine):
    """Three tenants of half the device, all at work in turns: each keeps its bytes, none is refused."""
    home = Moving(machine)
    began = time.monotonic()
    guests = [home.guest(["--on-collision", "swap", "--idle-after", "200ms"], home.card.each) for _ in range(3)]
    for _ in range(ROUNDS):
        for _, guest in guests:
            whole(guest)
    took = time.monotonic() - began
    refused = sum(home.events(name).count("refused") for name, _ in guests)
    moved = sum(home.events(name).count("left") for name, _ in guests)
    statuses = [guest.end() for _, guest in guests]
    assert refused == 0 and statuses == [0, 0, 0], f"{refused} refused, statuses {statuses}"
    assert moved > 0, "no tenant left the device"
    sizes = f"3 x {home.card.each // MIB} MiB on {home.card.capacity // MIB}"
    return f"{sizes}: {ROUNDS} rounds in {took:.1f} s, {moved} times one left, no byte lost, none refused"


def suspended(machine):
    """A tenant that a command moves out and back; and by its next call."""
    home = Moving(machine)
    name, guest = home.guest(["--oversubscribe", "swap"], home.card.each)
    out = home.order("suspend", name)
    held = home.place(name)
    back = home.order("resume", name)
    whole(guest)
    home.order("suspend", name)
    began = time.monotonic()
    whole(guest)
    woken = time.monotonic() - began
    assert guest.end() == 0, guest.said()
    rate = home.card.each / GIB
    return (f"{home.card.each // MIB} MiB out in {out:.2f} s ({rate / out:.1f} GiB/s), back in {back:.2f} s ({rate / back:.1f} GiB/s), "
            f"woken by a call in {woken:.2f} s"), {"out": out, "back": back, "woken": woken, "held": held}


def managed(machine):
    """A tenant larger than the device that the daemon has. What it takes of managed memory is far below what the card has free."""
    home = Moving(machine)
    larger = home.card.capacity + home.card.each // 2
    began = time.monotonic()
    name = f"verify-{next(MADE)}"
    guest = Guest(home, name, ["--oversubscribe", "uvm"], [machine.compile("tests/clients/quota.c")], larger + home.card.each)
    assert guest.ask("init") == "init 0", guest.said()
    for _ in range(4):
        assert guest.ask(f"alloc {larger // 4}") == "alloc 0", guest.said()
    whole(guest)
    took = time.monotonic() - began
    assert guest.end() == 0, guest.said()
    return f"{larger // MIB} MiB on {home.card.capacity // MIB}: every end as written, {took:.1f} s"


def bench(machine):
    """`gpushare bench swap` on the small device."""
    home = Moving(machine)
    report = machine.folder / "swap.json"
    command = [machine.gpushare, "bench", "swap", "--gpu", machine.gpu, "--seconds", WORK, "--samples", SAMPLES, "--json", report]
    machine.run(command, home.environment, patience=120)
    found = json.loads(report.read_text())
    idle, link, pair = found["idle"], found["link"], found["pair"]
    useful = sum(pair["worked_ns"]) / (pair["seconds"] * 1e9)
    said = (f"out {idle['out'] / link['out'] * 100:.0f} % of {link['out'] / 1e9:.1f} GB/s, back {idle['back'] / link['back'] * 100:.0f} % of "
            f"{link['back'] / 1e9:.1f} (goal 85); seal p50 {idle['seal_p50_ns'] / 1e6:.1f} ms p99 {idle['seal_p99_ns'] / 1e6:.1f} (goal 50); "
            f"the pair worked {useful * 100:.0f} % of the time (goal 90)")
    return said, found


def rows():
    named = (("three tenants on one and a half", rotation, 90), ("suspend, resume, woken by a call", suspended, 60),
             ("a tenant above the device, managed", managed, 60), ("bench swap", bench, 120))
    return [Row(f"swap: {name}", work, limit, 20) for name, work, limit in named]
