"""verify.sh's rows about memory that moves: on a device made small, so that no managed memory and no sum of tenants comes near what the card has. Guests
are tests/clients/quota.c, which writes words into every 2 MiB of its memory, looks for them after a move and then writes others; torch_hold.py, which looks at
both ends of every tensor; and `gpushare bench swap`, which compares every page. All managed memory is looked at by quota.c alone."""

import json
import sys
import time

import machine as machines
import ways
from collisions import GIB, HERE, MADE, MIB, WAIT, Guest, listed
from rows import NotAvailable, Row

LARGE = 16 * GIB  # a model of 8 billion parameters
WORK = 10  # seconds that the benchmark's pair works
SAMPLES = 30  # moves of an idle tenant
ROUNDS = 3
PINNED = 1.2 * GIB  # bytes a second at least, at which host memory is pinned in the background
MUCH = 64 * MIB  # a daemon is told of changes of so much, and of an eighth
TOLD = 5  # seconds for that
MOST = 0.9  # of a tenant's memory: no smaller part counts as a move of all
AWAY = (0, 1)  # seconds on the host before it is told to come back


class Card:
    """Sizes on this machine: contexts of a real driver take some hundred MiB, and softgpu's memory is the host's own."""

    def __init__(self, soft, each=None):
        self.capacity, self.each, self.host = (GIB, 400 * MIB, 3 * GIB) if soft else (8 * GIB, 4 * GIB, 24 * GIB)
        self.first_context = 64 * MIB if soft else 512 * MIB
        if each:
            self.capacity, self.each = each + 4 * GIB, each


class Moving:
    """A user with a daemon of their own, whose device is small and whose tenants may move."""

    def __init__(self, machine, each=None, way="swap"):
        self.machine, self.card = machine, Card(machine.soft, each)
        # Managed memory takes nothing of it, and needs none to be there.
        host = 0 if way == "uvm" else self.card.host
        config = machine.folder / "config.toml"
        config.write_text(
            f'capacity = "{self.card.capacity // MIB}MiB"\nfirst_context = "{self.card.first_context // MIB}MiB"\n'
            f'[swap]\nhost = "{host}"\n')
        self.environment = machine.bare | {"GPUSHARE_DAEMON_CONFIG": str(config)}

    def guest(self, flags, bytes_, torch=False):
        name = f"verify-{next(MADE)}"
        program = [sys.executable, self.machine.holder or HERE / "torch_hold.py"] if torch else [self.machine.compile("tests/clients/quota.c")]
        guest = Guest(self, name, flags, program, self.card.capacity)
        answer = guest.ask("init")
        assert answer == "init 0", f"the guest does not start: {answer}: {guest.said()}"
        # In pieces, as programs allocate.
        for _ in range(4):
            guest.send(f"alloc {bytes_ // 4}")
            assert guest.line(WAIT * 2) == "alloc 0", f"{name} does not get its memory: {guest.said()}"
        written(guest)
        return name, guest

    def order(self, *words):
        began = time.monotonic()
        self.machine.run([self.machine.gpushare, *words], self.environment, patience=WAIT * 2)
        return time.monotonic() - began

    def events(self, name):
        said = self.machine.run([self.machine.gpushare, "events", "--json", "--since", "1h", "--tenant", name], self.environment)
        return [json.loads(line)["kind"] for line in said.splitlines()]

    def provided(self, bytes_):
        """Waits until the host memory of what may move is pinned: beside it, calls of the driver are slow. No command tells when."""
        time.sleep(0 if self.machine.soft else bytes_ / PINNED)

    def place(self, name):
        rows = json.loads(self.machine.run([self.machine.gpushare, "ps", "--json"], self.environment))
        return next(row for row in rows if row["name"] == name)

    def movable(self, name, wanted):
        """How much of its memory may move, once that is as much as wanted: its daemon is told of it later. The last figure, if it never is."""
        end = time.monotonic() + TOLD
        while True:
            residency = self.place(name)["residency"]
            found = residency["movable"] if residency else 0
            if found >= wanted or time.monotonic() > end:
                return found
            time.sleep(0.05)


def answers(guest, word, count):
    guest.send(word)
    answer = guest.line(WAIT * 2)
    assert answer == f"{word} {count}", f"{answer}, not {word} {count}: {guest.said()}"


def written(guest, count=4):
    """Writes new words into its memory, where the guest is quota.c."""
    answers(guest, "check", count)


def whole(guest, count=4):
    """Whether all has the words that were written last: looks before anything is written. Then it writes others, so that what was away earlier is
    not taken for what is away next."""
    answers(guest, "kept", count)
    written(guest, count)


def rotation(machine, torch=False, way="swap", allocator=None):
    """Three tenants of half the device, all at work in turns: each keeps its words. With PyTorch a graph of each goes on, too; without it none is refused."""
    home = Moving(machine, way=way)
    # Its name moved in PyTorch 2.9.
    home.environment |= {name: allocator for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF") if allocator}
    began = time.monotonic()
    asked = ["--oversubscribe", way] if way != "swap" else ["--on-collision", "swap"]
    guests = [home.guest([*asked, "--idle-after", "200ms"], home.card.each, torch) for _ in range(3)]
    if torch:
        assert [ask(guest, "graph") for _, guest in guests] == [0, 0, 0]
    for number in range(1, ROUNDS + 1):
        for _, guest in guests:
            whole(guest)
            assert not torch or ask(guest, "replay") == number, "a graph computed something else"
    took = time.monotonic() - began
    held = [home.place(name)["residency"] for name, _ in guests]
    refused = sum(home.events(name).count("refused") for name, _ in guests)
    moved = sum(home.events(name).count("left") for name, _ in guests)
    statuses = [guest.end() for _, guest in guests]
    # PyTorch hides a refusal by asking again; what it gets is looked at above.
    assert (torch or refused == 0) and statuses == [0, 0, 0], f"{refused} refused, statuses {statuses}"
    assert moved > 0, "no tenant left the device"
    sizes = f"3 x {home.card.each // MIB} MiB on {home.card.capacity // MIB}"
    stays = max(residue(one) for one in held)
    said = f"{sizes}: {ROUNDS} rounds in {took:.1f} s, {moved} times one left, no word lost, {refused} refused; {stays * 100:.1f} % cannot move (goal 5)"
    return said, {"residency": held}


def residue(residency):
    """The part of a tenant's memory that cannot move."""
    stays = sum(residency["residue"].values())
    return stays / max(stays + residency["movable"], 1)


def ask(guest, line):
    """The number that a guest answers."""
    guest.send(line)
    answer = guest.line(WAIT * 2)
    assert answer and answer.startswith(f"{line} "), f"{answer}: {guest.said()}"
    return int(answer.split()[1])


def speed(machine):
    """PyTorch's kernels on memory that may move, between two runs of the same on plain memory."""
    found = {}
    for name, flags in (("plain", []), ("movable", ["--oversubscribe", "swap"]), ("plain again", [])):
        home = Moving(machine)
        size = home.card.each // 2
        tenant, guest = home.guest(flags, size, torch=True)
        home.provided(size)
        least = size * 7 // 8 - MUCH if flags else 0
        moves = home.movable(tenant, least)
        assert moves >= least and (flags or not moves), f"{name}: {moves // MIB} of {size // MIB} MiB may move"
        found[name] = {word: ask(guest, word) for word in ("product", "copy")}
        assert guest.end() == 0, guest.said()
        machine.end_daemons()
    plain, movable, again = found.values()
    return "; ".join(f"{word}: {plain[word]} us, on memory that may move {movable[word]}, on plain memory again {again[word]}" for word in plain), found


def large(machine):
    """16 GiB out and back, where the card and the host have room for that."""
    card = max((device["memory"] for device in machines.devices(machine)), default=0)
    available = int(next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemAvailable"))) * 1024
    if machine.soft or card < LARGE + 6 * GIB or available < 2 * LARGE:
        raise NotAvailable(f"{card // GIB} GiB of device memory and {available // GIB} of host memory are too few")
    return suspended(machine, LARGE)


def is_away(row, each):
    """An order that answers without a move is no move."""
    residency = row["residency"]
    place, away = residency["place"], residency["away"]
    assert place == "out" and away >= MOST * each, f"suspended, and it is {place}: {away // MIB} of {each // MIB} MiB are away"


def suspended(machine, each=None, way="swap"):
    """A tenant that a command moves out and back, at once and after it has been away for a while; and by its next call."""
    home = Moving(machine, each, way)
    name, guest = home.guest(["--oversubscribe", way], home.card.each)
    rate, cycles, held = home.card.each / GIB, [], None
    home.provided(home.card.each)
    for away in AWAY:
        out = home.order("suspend", name)
        held = home.place(name)
        is_away(held, home.card.each)
        time.sleep(away)
        back = home.order("resume", name)
        place = home.place(name)["residency"]["place"]
        assert place == "in", f"resumed, and it is {place}"
        whole(guest)
        cycles.append({"out": out, "away": away, "back": back})
    home.order("suspend", name)
    is_away(home.place(name), home.card.each)
    began = time.monotonic()
    answers(guest, "first", 1)
    woken = time.monotonic() - began
    answers(guest, "kept", 4)
    assert guest.end() == 0, guest.said()
    said = "; ".join(f"out in {one['out']:.2f} s ({rate / one['out']:.1f} GiB/s), {one['away']} s later back in {one['back']:.2f} s "
                     f"({rate / one['back']:.1f} GiB/s)" for one in cycles)
    return f"{home.card.each // MIB} MiB {said}; woken by a call in {woken:.2f} s", {"cycles": cycles, "woken": woken, "held": held}


def stored(machine):
    """A tenant whose memory a command stores in a file, and brings back from there."""
    home = Moving(machine)
    size = home.card.each // 2
    name, guest = home.guest(["--oversubscribe", "swap"], size)
    home.provided(size)
    with ways.storable(machine, size) as (folder, kind):
        out = home.order("suspend", name, "--to", folder)
        row = home.place(name)
        is_away(row, size)
        files, host = row["residency"]["in_files"], row["residency"]["host"]
        assert files >= MOST * size and host <= size - MOST * size, f"{files // MIB} of {size // MIB} MiB are in files, {host // MIB} on the host"
        back = home.order("resume", name)
        whole(guest)
    assert guest.end() == 0, guest.said()
    rate = size / GIB
    return (f"{size // MIB} MiB into a file on {kind} in {out:.2f} s ({rate / out:.1f} GiB/s), back in {back:.2f} s ({rate / back:.1f} GiB/s)",
            {"out": out, "back": back, "held": row})


def managed(machine):
    """A tenant larger than the device that the daemon has. What it takes of managed memory is far below what the card has free."""
    home = Moving(machine, way="uvm")
    larger = home.card.capacity + home.card.each // 2
    card = max((device["memory"] for device in machines.devices(machine)), default=0)
    if not machine.soft and card < 2 * larger:
        raise NotAvailable(f"{larger // MIB} MiB of managed memory may be more than the card has free")
    began = time.monotonic()
    name = f"verify-{next(MADE)}"
    guest = Guest(home, name, ["--oversubscribe", "uvm"], [machine.compile("tests/clients/quota.c")], larger + home.card.each)
    assert guest.ask("init") == "init 0", guest.said()
    for _ in range(4):
        assert guest.ask(f"alloc {larger // 4}") == "alloc 0", guest.said()
    written(guest)
    whole(guest)
    took = time.monotonic() - began
    row = home.place(name)
    processes, used = listed(machine)
    mine = [processes[process["pid"]] // MIB for process in row["processes"] if process["pid"] in processes]
    assert guest.end() == 0, guest.said()
    return (f"{larger // MIB} MiB on {home.card.capacity // MIB}: every word as written, {took:.1f} s; charged {row['charged'] // MIB} MiB; NVML lists "
            f"{mine or 'no process of it'} MiB, and {used // MIB} MiB used in all")


def starved(pair):
    """Why the two of a pair did not take turns, or None: a sum of their work does not tell, because one may have had all of the time."""
    if not pair["left"]:
        return "none of the pair left"
    half = pair["counted_ns"] / len(pair["worked_ns"])
    if min(pair["worked_ns"]) < half / 4:
        return f"one of the pair had less than a quarter of its half: {pair['worked_ns']} of {half:.0f} ns"
    return None


def bench(machine):
    """`gpushare bench swap` on the small device."""
    home = Moving(machine)
    report = machine.folder / "swap.json"
    command = [machine.gpushare, "bench", "swap", "--gpu", machine.gpu, "--seconds", WORK, "--samples", SAMPLES, "--json", report]
    machine.run(command, home.environment, patience=120)
    found = json.loads(report.read_text())
    idle, link, pair = found["idle"], found["link"], found["pair"]
    useful = sum(pair["worked_ns"]) / max(pair["counted_ns"], 1)
    rotations = f"{pair['cycles'] or 'no'} whole rotation{'' if pair['cycles'] == 1 else 's'}"
    said = (f"out {idle['out'] / link['out'] * 100:.0f} % of {link['out'] / 1e9:.1f} GB/s, back {idle['back'] / link['back'] * 100:.0f} % of "
            f"{link['back'] / 1e9:.1f} (goal 85); seal p50 {idle['seal_p50_ns'] / 1e6:.1f} ms, the longest of {SAMPLES} "
            f"{idle['seal_p99_ns'] / 1e6:.1f} (goal 50); a small allocation and its free {found['small']['bare_ns']} then {found['small']['movable_ns']} ns; "
            f"the pair worked {useful * 100:.0f} % of {pair['counted_ns'] / 1e9:.1f} s (goal 90) in {rotations}, {pair['left']} times one left")
    assert machine.soft or not starved(pair), f"{starved(pair)}; {said}"
    return said, found


def rows(torch):
    """Name, work, limit, expected seconds. The first move of a tenant waits for its host memory, which is most of what these take."""
    named = (("the driver's mapping calls", ways.driver, 60, 3), ("host memory, by kind", ways.pinned, 60, 4),
             ("three tenants on one and a half", rotation, 90, 12), ("suspend, resume, woken by a call", suspended, 60, 6),
             ("a tenant above the device, managed", managed, 60, 1),
             ("suspend, resume, managed", lambda machine: suspended(machine, way="uvm"), 60, 7),
             ("three managed tenants on one and a half", lambda machine: rotation(machine, way="uvm"), 90, 20), ("bench swap", bench, 120, 37),
             ("stored in a file", stored, 60, 12), ("16 GiB out and back", large, 90, 19))
    with_torch = (("three of PyTorch on one and a half", lambda machine: rotation(machine, True), 75, 22), ("PyTorch's kernels", speed, 75, 25),
                  *((f"three of PyTorch, {setting}", lambda machine, setting=setting: rotation(machine, True, allocator=setting), 75, 22)
                    for setting in ("expandable_segments:True", "backend:cudaMallocAsync")))

    def needs(left):
        return torch.machine.holder or torch.need(left)

    return [*(Row(f"swap: {name}", *how) for name, *how in named), *(Row(f"swap: {name}", *how, needs) for name, *how in with_torch)]
