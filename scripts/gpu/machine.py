"""Programs on the GPU, with the library or without, each in a session of its own, so that all of them can be ended; and what this machine is."""

import ctypes
import errno
import fcntl
import glob
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

from rows import NotAvailable

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20
DAEMON_WORDS = 4000  # characters of a daemon's log beside a failed row
OURS = "libgpushare"  # the name of the library, whatever folder it is in
SERVED = pathlib.Path("/run/gpushare")  # the machine's daemon has its sockets here; in a container, its tenant's
SYSTEMD = pathlib.Path("/run/systemd/system")
PRELOADED = pathlib.Path("/etc/ld.so.preload")
LAST_WORDS = 400  # characters of a failed program's standard error that the table shows; the log has all


class Machine:
    """Where programs run. All that is started belongs to the row that is under way and does not outlive it."""

    def __init__(self, gpushare, soft, work, tenant=None, holder=None):
        """`tenant`: a program in place of torch_share.py, `holder` of torch_hold.py."""
        self.gpushare, self.soft, self.work, self.tenant, self.holder = gpushare, soft, work, tenant, holder
        self.gpu = f"soft:name=verify-{os.getpid()},mem=16GiB" if soft else "auto"
        self.base, self.started, self.rows, self.made, self.note = without_ours(os.environ), [], 0, 0, lambda _: None
        self.limit = float("inf")  # seconds that the row under way may take
        # An open device file keeps the driver from shutting the device down between two programs;
        # it is no setting.
        self.kept = [] if soft else [file for file in map(opened, sorted(glob.glob("/dev/nvidia[0-9]*"))) if file is not None]
        if soft:
            links = work / "links"
            links.mkdir()
            for name, library in (("libcuda.so.1", "cuda"), ("libcuda.so", "cuda"), ("libnvidia-ml.so.1", "nvml")):
                (links / name).symlink_to(pathlib.Path(gpushare).resolve().parent / f"libsoftgpu_{library}.so")
            self.base |= {"LD_LIBRARY_PATH": str(links), "SOFTGPU": self.gpu.removeprefix("soft:")}
        self.begin()

    def begin(self):
        """A new row: its tenants and its daemon know nothing of those before."""
        self.rows, self.folders = self.rows + 1, []
        self.folder = self.runtime()
        self.bare = self.base | {"XDG_RUNTIME_DIR": str(self.folder), "XDG_STATE_HOME": str(self.folder)}

    def runtime(self):
        """A new runtime folder: its users share a daemon of their own. Short, because sockets' names are."""
        self.made += 1
        folder = self.work / f"r{self.made}"
        folder.mkdir(mode=0o700)
        self.folders.append(folder)
        return folder

    def daemon_logs(self):
        """What the daemons of this row wrote last."""
        logs = [log for folder in self.folders for log in folder.glob("gpushare/d/*/log")]
        return "\n".join(f"-- {log}\n{log.read_text(errors='replace')[-DAEMON_WORDS:].rstrip()}" for log in logs)

    def start(self, command, environment=None, **how):
        process = subprocess.Popen([str(word) for word in command], env=environment or self.bare, start_new_session=True, **how)
        self.started.append(process)
        return process

    def clear(self, hard):
        """Ends the processes that are left of this row: programs, with their children, and daemons."""
        left, self.started = self.started, []
        for process in left:
            if hard or process.poll() is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
        for process in left:
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                self.note(f"process {process.pid} does not end")
            for pipe in (process.stdin, process.stdout, process.stderr):
                try:
                    if pipe:
                        pipe.close()
                except OSError:
                    pass
        self.end_daemons(hard)

    def end_daemons(self, hard=False):
        """Ends the daemons that are left, and waits for that: while one has a GPU, the next one is refused it."""
        end = time.monotonic() + 5
        told = signal.SIGKILL if hard else signal.SIGTERM
        while left := self.daemons():
            for pid in left:
                try:
                    os.kill(pid, told)
                except ProcessLookupError:
                    pass
            if time.monotonic() > end:
                if told == signal.SIGKILL:
                    return self.note(f"daemons do not end: {left}")
                told, end = signal.SIGKILL, time.monotonic() + 2
            time.sleep(0.02)

    def daemons(self, folder=None):
        """The daemons that this run has started, or the one that keeps `folder`."""
        wanted, found = f"{folder or self.work}/", []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", "/")
                except OSError:
                    continue
                if "gpushared" in words and wanted in words:
                    found.append(int(entry.name))
        return found

    def under(self, limit, *command, name=None):
        named = ["--name", name] if name else []
        return [self.gpushare, "run", "--gpu", self.gpu, "--mem-limit", limit, *named, "--", *command]

    def run(self, command, environment=None, stdin=None, patience=None):
        """Its output; a failure if its status is not 0."""
        return self.runs([command], environment, stdin, patience)[0]

    def runs(self, commands, environment=None, stdin=None, patience=None):
        """Several at once, told the same."""
        script = self.folder / "stdin"
        script.write_text(stdin or "")
        all_of_them = []
        for command in commands:
            with open(script) as told:
                all_of_them.append(self.start(command, environment, stdin=told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        said = [process.communicate(timeout=patience) for process in all_of_them]
        for command, process, (out, err) in zip(commands, all_of_them, said):
            if process.returncode:
                self.note(f"== status {process.returncode}: {' '.join(map(str, command))}\n{out}\n{err}")
            assert process.returncode == 0, f"status {process.returncode}: {err.strip()[-LAST_WORDS:]}"
        return [out for out, _ in said]

    def compile(self, source, *flags):
        compiler = c_compiler()
        program = self.work / pathlib.Path(source).stem
        if not program.exists():
            fresh = program.with_suffix(".new")
            self.run([compiler, "-O2", "-Wall", "-Wextra", "-o", fresh, ROOT / source, "-ldl", "-lpthread", *flags])
            fresh.rename(program)
        return program


def without_ours(environment):
    """The environment without gpushare's library and settings: a caller may be under gpushare, and rows compare with the bare driver."""
    kept = {name: value for name, value in environment.items() if not name.startswith("GPUSHARE_")}
    preloaded = [path for path in re.split(r"[ :]+", kept.pop("LD_PRELOAD", "")) if path and OURS not in pathlib.Path(path).name]
    return kept | ({"LD_PRELOAD": ":".join(preloaded)} if preloaded else {})


def starts_with_the_machine():
    """Whether systemd starts the machine's daemon: gpushare waits for one that is enabled and not there yet."""
    if not SYSTEMD.is_dir() or not shutil.which("systemctl"):
        return False
    asked = ["systemctl", "is-enabled", "--quiet", "gpushared"]
    return subprocess.run(asked, stderr=subprocess.DEVNULL).returncode == 0


def unfit(soft, served=SERVED, preloaded=PRELOADED, is_enabled=starts_with_the_machine):
    """Why rows on this machine would show another daemon's work or nothing bare; None where they do not. The machine's daemon keeps its folder
    when it stops, and programs wait for it there; a removal leaves a folder with a file `removed`, which is none."""
    there = served.exists() and not (served / "removed").exists()
    if not soft and (there or is_enabled()):
        why = f"{served} exists" if there else "gpushared is enabled"
        return (f"{why}: the machine's own daemon would serve the rows' programs in place of theirs. To take it away: "
                f"systemctl disable --now gpushared && rm -rf {served}; afterwards: systemctl enable --now gpushared. Or run this elsewhere")
    if preloaded.exists() and OURS in preloaded.read_text(errors="replace"):
        return f"{preloaded} names gpushare's library: no program here is without it"
    return None


def c_compiler():
    found = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if not found:
        raise NotAvailable("no C compiler")
    return found


def opened(path):
    try:
        return os.open(path, os.O_RDWR)
    except OSError:
        return None


def system(number):
    """The result of a system call, as yes or the error's name."""
    def ask(*arguments):
        answer = ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
        return "yes" if answer >= 0 else errno.errorcode.get(ctypes.get_errno(), "no")
    return ask


def locks(work):
    """Locks of an open file description, which tenants' files are kept by."""
    with open(work / "lock", "w") as file:
        fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0))  # F_OFD_SETLK
    return "yes"


def facts(machine):
    """Facts of this machine as (name, value), none of them judged."""
    def try_to(name, ask):
        try:
            return [(name, ask())]
        except Exception as why:
            return [(name, f"not asked: {type(why).__name__}: {why}")]

    def version():
        folder = pathlib.Path(machine.gpushare).resolve().parent
        library = next(path for path in (folder / "libgpushare.so", folder / "lib/libgpushare.so") if path.exists())
        built = time.strftime("%Y-%m-%d %H:%M", time.gmtime(library.stat().st_mtime))
        return f"{machine.run([machine.gpushare, '--version'], patience=20).strip()}, library of {built} UTC, sha256 {hashlib.sha256(library.read_bytes()).hexdigest()[:16]}"

    yield from try_to("gpushare", version)
    yield from (("kernel", os.uname().release), ("machine", os.uname().machine), ("cores", os.cpu_count()), ("python", sys.version.split()[0]))
    yield from try_to("host memory", lambda: ", ".join(" ".join(line.split()) for line in open("/proc/meminfo").read().splitlines()[:3]))
    yield from try_to("load average", lambda: "%.1f %.1f %.1f" % os.getloadavg())
    # x86-64 and aarch64 number the first two differently; pidfd_open is the same everywhere.
    membarrier, memfd = {"x86_64": (324, 319)}.get(os.uname().machine, (283, 279))
    yield from try_to("locks of open file descriptions", lambda: locks(machine.work))
    yield from try_to("membarrier (private expedited)", lambda: system(membarrier)(16, 0, 0))
    yield from try_to("memfd with seals", lambda: system(memfd)(b"verify", 3))
    yield from try_to("pidfd_open", lambda: system(434)(os.getpid(), 0))
    yield from try_to("cgroup v2 alone", lambda: "yes" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "no")
    if shutil.which("nvidia-smi") and not machine.soft:
        query = "index,driver_version,name,memory.total,memory.used,compute_mode,mig.mode.current,persistence_mode,clocks.sm,clocks.max.sm,power.limit"
        yield from try_to(f"nvidia-smi: {query}", lambda: machine.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], patience=30))
        yield from try_to("processes on the GPU before", lambda: machine.run(
            ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"], patience=30).strip() or "none")


def driver_facts(machine):
    """The driver's own answers, by name; empty where there is no driver or no device."""
    try:
        said = machine.run([machine.compile("scripts/gpu/capabilities.c")], patience=60)
        return dict(line.split(None, 1) for line in said.splitlines())
    except Exception as why:
        return {"error": f"{type(why).__name__}: {why}"}


def devices(machine):
    try:
        return json.loads(machine.run([machine.gpushare, "devices", "--json"], patience=60))
    except Exception as why:
        machine.note(f"gpushare devices: {why}")
        return []


class Torch:
    """PyTorch's version, or why there is none to use. It is asked beside the first rows, since its first start reads gigabytes."""

    ASK = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"
    PATIENCE = 100  # seconds

    def __init__(self, machine):
        self.machine, self.version, self.why_not, self.asked = machine, None, None, None

    def begin(self):
        # Not a process of a row: it goes on through the first ones.
        self.asked = subprocess.Popen([sys.executable, "-c", self.ASK], env=self.machine.base, start_new_session=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def need(self, left=PATIENCE):
        """Its version. Not available where there is none, or not within the seconds that are left. What rows need; their own time begins after it."""
        patience = min(left, self.PATIENCE)
        if not (self.version or self.why_not):
            try:
                self.judge(*self.asked.communicate(timeout=patience))
            except subprocess.TimeoutExpired:
                self.end()
                self.why_not = f"torch does not start within {patience:.0f} s"
        if self.why_not:
            raise NotAvailable(self.why_not)
        return self.version

    def judge(self, out, err):
        if self.asked.returncode:
            self.machine.note(f"torch: {err}")
            self.why_not = f"this python3 ({sys.executable}) has no torch" if "No module named" in err else f"torch does not start: {err[-LAST_WORDS:]}"
            return
        version, cuda, usable = out.split()
        if cuda == "None":
            self.why_not = f"this torch ({version}) is built without CUDA"
        elif self.machine.soft:
            self.why_not = "the CUDA runtime needs a real driver"
        elif usable != "True":
            self.why_not = f"torch {version} finds no GPU"
        else:
            self.version = f"{version}, CUDA {cuda}"

    def end(self):
        if self.asked and self.asked.poll() is None:
            self.asked.kill()
            self.asked.communicate()
