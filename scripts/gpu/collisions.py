"""verify.sh's rows about the daemon: two containers meet on a device made small (4 GiB), under each resolver; what the daemon books beside NVML's own
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

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30
MIB = 1 << 20
WAIT = 60  # seconds for what must come
STILL = 2  # seconds in which what must not come would have come
OUT_OF_MEMORY = "2"
CLIENTS = 4  # each context may take half a GiB of the four
MADE = iter(range(1, 1000))  # names are never used twice in a run


class Guest:
    """A program under `gpushare run --daemon on` that is talked to line by line."""

    def __init__(self, home, name, flags, program):
        run = [home.gpushare, "run", "--daemon", "on", "--gpu", home.gpu, "--name", name, "--mem-limit", "4GiB", "--mem-request", "1", *flags, "--"]
        self.process = subprocess.Popen([*run, *map(str, program)], env=home.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, bufsize=0)
        self.rest = b""

    def send(self, line):
        self.process.stdin.write(f"{line}\n".encode())

    def line(self, patience=WAIT):
        """The next line, `None` if it does not come."""
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], patience)[0]:
                return None
            got = os.read(self.process.stdout.fileno(), 4096)
            assert got, f"it ended: {self.process.stderr.read().decode()[-300:]}"
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def ask(self, line):
        self.send(line)
        return self.line()

    def end(self):
        self.process.stdin.close()
        return self.process.wait(WAIT)


class Home:
    """A user with a daemon of their own, whose device has 4 GiB."""

    def __init__(self, machine):
        self.gpushare, self.gpu, self.machine = machine.gpushare, machine.gpu, machine
        folder = machine.work / "home"
        folder.mkdir(mode=0o700, exist_ok=True)
        config = folder / "config.toml"
        config.write_text('capacity = "4GiB"\nterm_grace = "2s"\n')
        self.environment = machine.bare | {"XDG_RUNTIME_DIR": str(folder), "GPUSHARE_DAEMON_CONFIG": str(config)}
        self.guests = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for guest in self.guests:
            try:
                guest.end()
            except subprocess.TimeoutExpired:
                guest.process.kill()

    def guest(self, flags, torch=False):
        program = [sys.executable, HERE / "torch_hold.py"] if torch else [self.machine.compile("tests/clients/quota.c")]
        guest = Guest(self, f"verify-{next(MADE)}", flags, program)
        self.guests.append(guest)
        assert guest.ask("init") == "init 0", "the guest does not start"
        return guest

    def ps(self):
        done = subprocess.run([self.gpushare, "ps", "--json"], env=self.environment, capture_output=True, text=True, timeout=WAIT)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def daemon(self):
        """The pid of the daemon that keeps this home."""
        wanted = str(self.environment["XDG_RUNTIME_DIR"])
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace")
                except OSError:
                    continue
                if "gpushared" in words and wanted in words:
                    return int(entry.name)
        raise AssertionError("no daemon is running")


def collision(machine, resolver, torch):
    """The second container wants 2 GiB of 4 while the first holds 2.5."""
    with Home(machine) as home:
        first = home.guest(["--preemptible", "kill", "--priority", "100"], torch)
        assert first.ask(f"alloc {5 * GIB // 2}") == "alloc 0", "the first does not get its part"
        second = home.guest(["--on-collision", resolver, "--wait-timeout", "50s"], torch)
        second.send(f"alloc {2 * GIB}")
        if resolver == "fail":
            assert second.line() == f"alloc {OUT_OF_MEMORY}", "it was not refused at once"
            assert first.ask("check") == "check 1", "the first was touched"
            return "out-of-memory at once, the first untouched"
        if resolver == "wait":
            early = second.line(STILL)
            assert early is None, f"it did not wait: {early}"
            assert first.ask("free 1") == "free 0", "the first cannot free"
            assert second.line() == "alloc 0", "it was not served"
            return "waited while the first held, served when it freed"
        assert second.line() == "alloc 0", "it was not served"
        status = first.process.wait(WAIT)
        said = first.process.stderr.read().decode().strip()
        assert status != 0 and said, f"status {status}: {said}"
        return f"the lower one ended ({said.splitlines()[-1][:160]}), the second served"


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
for process in found[:count.value]:
    print(process.pid, process.used)
"""


def books(machine):
    """What the daemon says a process takes, beside what NVML says."""
    with Home(machine) as home:
        guest = home.guest([])
        assert guest.ask(f"alloc {GIB}") == "alloc 0", "the guest does not get its part"
        if guest.line(3) is not None:  # The daemon looks once a second.
            raise AssertionError("an answer nobody asked for")
        (row,) = [row for row in home.ps() if row["charged"]]
        ours = row["charged"] + row["overhead"]
        pids = {process["pid"] for process in row["processes"]}
        listed = machine.run([sys.executable, "-c", NVML, str(HERE)])
        theirs = sum(int(used) for pid, used in map(str.split, listed.splitlines()) if int(pid) in pids)
        off = abs(ours - theirs) / max(theirs, 1)
        said = f"charged {row['charged'] // MIB} + overhead {row['overhead'] // MIB} MiB, NVML {theirs // MIB} MiB: {off * 100:.2f} % off (goal 5)"
        assert off <= 0.05, said
        return said


def restart(machine):
    """Programs at work while their daemon is killed: all go on, none above its limit, and the next daemon knows them."""
    with Home(machine) as home:
        guests = [home.guest(["--wait-timeout", "2s"]) for _ in range(CLIENTS)]
        piece = 48 * MIB
        for guest in guests:
            assert guest.ask(f"alloc {piece}") == "alloc 0", "a guest does not get its part"
        os.kill(home.daemon(), signal.SIGKILL)
        for _ in range(50):
            for guest in guests:
                # Grants come in steps of 64 MiB, so this is granted already.
                assert guest.ask(f"alloc {8 * MIB}") == "alloc 0", "what was granted is gone"
                assert guest.ask("free 1") == "free 0", "a guest cannot free"
                assert guest.ask("check") == "check 1", "a guest lost what it holds"
        after = home.guest([])
        assert after.ask(f"alloc {piece}") == "alloc 0", "nothing is granted after the restart"
        end, known = time.monotonic() + WAIT, []
        while len(known) < CLIENTS + 1 and time.monotonic() < end:
            time.sleep(0.1)  # They come back by themselves; nothing tells us when.
            known = [row for row in home.ps() if row["charged"] > 0]
        assert len(known) == CLIENTS + 1, f"the next daemon knows {len(known)} of {CLIENTS + 1}"
        assert all(guest.end() == 0 for guest in [*guests, after]), "a guest failed"
        return f"{CLIENTS} programs went on without their daemon; the next one knows all, and serves"


def rows(machine, report, not_available, torch):
    def with_torch(resolver):
        if machine.soft:
            raise not_available("the CUDA runtime needs a real driver")
        if not torch:
            raise not_available("this python3 has no torch")
        return collision(machine, resolver, True)

    for resolver in ("fail", "wait", "priority"):
        report.row(f"collision: {resolver}", lambda resolver=resolver: collision(machine, resolver, False))
        report.row(f"collision: {resolver}, PyTorch", lambda resolver=resolver: with_torch(resolver))
    report.row("the daemon's books beside NVML's", lambda: books(machine))
    report.row("daemon killed under programs at work", lambda: restart(machine))
