"""verify.sh's rows about the daemon: two tenants meet on a device made small (8 GiB), under each resolver; what the daemon books beside NVML's own
count; a daemon killed under programs at work. Guests are tests/clients/quota.c, and PyTorch where there is one."""

import ctypes
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

from machine import LAST_WORDS
from rows import NotAvailable, Row

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30
MIB = 1 << 20
WAIT = 40  # seconds for what must come
STILL = 2  # seconds in which what must not come would have come
OUT_OF_MEMORY = "2"
CAPACITY = "8GiB"  # what the daemon is told the device has, and each tenant's limit; contexts of some hundred MiB have room in it
CLIENTS = 4
MADE = iter(range(1, 1000))  # names are never used twice in a run


class Guest:
    """A program under `gpushare run --daemon on` that is talked to line by line."""

    def __init__(self, home, name, flags, program, limit=CAPACITY, request=1):
        machine = home.machine
        run = [machine.gpushare, "run", "--daemon", "on", "--gpu", machine.gpu, "--name", name, "--mem-limit", limit, "--mem-request", request, *flags, "--"]
        self.errors = machine.folder / f"{name}.err"
        with open(self.errors, "w") as stderr:
            self.process = machine.start([*run, *program], home.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, bufsize=0)
        self.rest = b""

    def send(self, line):
        self.process.stdin.write(f"{line}\n".encode())

    def line(self, patience=WAIT):
        """The next line, `None` if it does not come."""
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], patience)[0]:
                return None
            got = os.read(self.process.stdout.fileno(), 4096)
            assert got, f"it ended: {self.said()}"
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def said(self):
        return self.errors.read_text().strip()[-LAST_WORDS:]

    def ask(self, line):
        self.send(line)
        return self.line()

    def end(self):
        self.process.stdin.close()
        return self.process.wait(WAIT)


class Home:
    """A user with a daemon of their own, whose device has `CAPACITY`."""

    def __init__(self, machine):
        self.machine = machine
        config = machine.folder / "config.toml"
        config.write_text(f'capacity = "{CAPACITY}"\nterm_grace = "2s"\n')
        self.environment = machine.bare | {"GPUSHARE_DAEMON_CONFIG": str(config)}

    def guest(self, flags, torch=False):
        program = [sys.executable, self.machine.holder or HERE / "torch_hold.py"] if torch else [self.machine.compile("tests/clients/quota.c")]
        guest = Guest(self, f"verify-{next(MADE)}", flags, program)
        answer = guest.ask("init")
        assert answer == "init 0", f"the guest does not start: {answer}: {guest.said()}"
        return guest

    def ps(self):
        return json.loads(self.machine.run([self.machine.gpushare, "ps", "--json"], self.environment))

    def daemon(self):
        """The pid of the daemon that keeps this home."""
        found = self.machine.daemons(self.machine.folder)
        assert len(found) == 1, f"daemons: {found}"
        return found[0]


def collision(machine, resolver, torch):
    """The second tenant wants 4 GiB of 8 while the first holds 5."""
    home = Home(machine)
    first = home.guest(["--preemptible", "kill", "--priority", "100"], torch)
    assert first.ask(f"alloc {5 * GIB}") == "alloc 0", "the first does not get its part"
    assert first.ask("check") == "check 1", "the first cannot write"
    second = home.guest(["--on-collision", resolver, "--wait-timeout", "50s"], torch)
    second.send(f"alloc {4 * GIB}")
    if resolver == "fail":
        answer = second.line()
        assert answer == f"alloc {OUT_OF_MEMORY}", f"it was not refused at once: {answer}"
        assert first.ask("kept") == "kept 1", "the first was touched"
        said = "out-of-memory at once, the first untouched"
    elif resolver == "wait":
        early = second.line(STILL)
        assert early is None, f"it did not wait: {early}"
        assert first.ask("kept") == "kept 1", "the first was touched"
        assert first.ask("free 1") == "free 0", "the first cannot free"
        answer = second.line()
        assert answer == "alloc 0", f"it was not served: {answer}"
        said = "waited while the first held, served when it freed"
    else:
        answer = second.line()
        assert answer == "alloc 0", f"it was not served: {answer}"
        status = first.process.wait(WAIT)
        assert status != 0 and first.said(), f"status {status}: {first.said()}"
        return f"the lower one ended ({first.said().splitlines()[-1][:160]}), the second served; it ends with status {second.end()}"
    statuses = first.end(), second.end()
    assert statuses == (0, 0), f"they end with {statuses}: {first.said()} {second.said()}"
    return said


def further(machine):
    """A second context of a process takes nothing that a neighbour has requested."""
    home = Home(machine)
    program = [machine.compile("tests/clients/contexts.c")]
    first = Guest(home, f"verify-{next(MADE)}", [], program, request="6GiB")
    other = Guest(home, f"verify-{next(MADE)}", ["--wait-timeout", "1s"], program)
    for guest in (first, other):
        assert guest.ask("init") == "init 0", f"the guest does not start: {guest.said()}"
    assert first.ask(f"alloc {5 * GIB}") == "alloc 0", "the first does not get its part"
    pieces = 0
    while other.ask(f"alloc {64 * MIB}") == "alloc 0":
        pieces += 1
    answer = other.ask("create")
    assert answer == f"create {OUT_OF_MEMORY}", f"the second context had room that is requested: {answer}"
    assert first.ask(f"alloc {GIB}") == "alloc 0", "the first does not get what it requested"
    assert first.end() == 0, f"the first ends wrongly: {first.said()}"
    answer = other.ask("create")
    assert answer == "create 0", f"no second context on a device with room: {answer}"
    assert other.end() == 0, f"the second ends wrongly: {other.said()}"
    return f"refused beside a request and {pieces} pieces of 64 MiB, made once there was room"


class Process(ctypes.Structure):
    """`nvmlProcessInfo_t`."""

    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


NVML = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from collisions import Process
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, found, count = ctypes.c_void_p(), (Process * 64)(), ctypes.c_uint(64)
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), found) == 0
memory = (ctypes.c_ulonglong * 3)()
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
print("used", memory[2])
for process in found[:count.value]:
    if process.used != (1 << 64) - 1:  # NVML_VALUE_NOT_AVAILABLE
        print(process.pid, process.used)
"""


def listed(machine):
    """Bytes that NVML lists for each process of the device, by pid, and the bytes of the device that are used."""
    said = machine.run([sys.executable, "-c", NVML, HERE])
    found = dict(line.split() for line in said.splitlines())
    used = int(found.pop("used"))
    return {int(pid): int(bytes_) for pid, bytes_ in found.items()}, used


def books(machine):
    """The daemon's figure of a process's memory, beside NVML's."""
    home = Home(machine)
    guest = home.guest([])
    assert guest.ask(f"alloc {GIB}") == "alloc 0", "the guest does not get its part"
    assert guest.line(3) is None, "an unexpected answer"  # The daemon looks once a second.
    (row,) = [row for row in home.ps() if row["charged"]]
    ours = row["charged"] + row["overhead"]
    pids = {process["pid"] for process in row["processes"]}
    processes, _ = listed(machine)
    theirs = sum(used for pid, used in processes.items() if pid in pids)
    if not processes:
        raise NotAvailable("NVML lists no process here: it has other pids than this machine's programs, or is not allowed to tell")
    assert theirs, f"NVML does not list {sorted(pids)}: {processes}"
    off = abs(ours - theirs) / theirs
    said = f"charged {row['charged'] // MIB} + overhead {row['overhead'] // MIB} MiB, NVML {theirs // MIB} MiB: {off * 100:.2f} % off (goal 5)"
    assert off <= 0.05, said
    return said


def restart(machine):
    """Programs at work while their daemon is killed: all go on, none above its limit, and the next daemon knows them."""
    home = Home(machine)
    guests = [home.guest(["--wait-timeout", "2s"]) for _ in range(CLIENTS)]
    piece = 48 * MIB
    for guest in guests:
        assert guest.ask(f"alloc {piece}") == "alloc 0", "a guest does not get its part"
        assert guest.ask("check") == "check 1", "a guest cannot write"
    os.kill(home.daemon(), signal.SIGKILL)
    for _ in range(50):
        for guest in guests:
            # Grants come in steps of 64 MiB, so this is granted already.
            assert guest.ask(f"alloc {8 * MIB}") == "alloc 0", "the granted memory is gone"
            assert guest.ask("free 1") == "free 0", "a guest cannot free"
            assert guest.ask("kept") == "kept 1", "a guest lost its memory"
    after = home.guest([])
    assert after.ask(f"alloc {piece}") == "alloc 0", "nothing is granted after the restart"
    end, known = time.monotonic() + WAIT, []
    while len(known) < CLIENTS + 1 and time.monotonic() < end:
        time.sleep(0.1)  # They come back by themselves; nothing tells us when.
        known = [row for row in home.ps() if row["charged"] > 0]
    assert len(known) == CLIENTS + 1, f"the next daemon knows {len(known)} of {CLIENTS + 1}"
    statuses = [guest.end() for guest in [*guests, after]]
    assert not any(statuses), f"they end with {statuses}"
    return f"{CLIENTS} programs went on without their daemon; the next one knows all, and serves"


def rows(torch):
    """Those of every machine, and those with PyTorch."""
    resolvers = ("fail", "wait", "priority")
    plain = [Row(f"collision: {resolver}", lambda machine, resolver=resolver: collision(machine, resolver, False), limit=45, expected=3 if resolver == "wait" else 1) for resolver in resolvers]
    plain += [Row("a second context beside a request", further, limit=45, expected=4), Row("the daemon's books beside NVML's", books, expected=4), Row("daemon killed under programs at work", restart, limit=45, expected=4)]

    def needs(left):
        return torch.machine.holder or torch.need(left)

    return plain, [Row(f"collision: {resolver}, PyTorch", lambda machine, resolver=resolver: collision(machine, resolver, True), 50, 9, needs) for resolver in resolvers]
