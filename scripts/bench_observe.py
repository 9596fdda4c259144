"""The measurements of bench_observe.sh. Argument: the folder of the programs. Times are processor time, of all threads."""

import os
import pathlib
import pty
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

PROGRAMS = pathlib.Path(sys.argv[1])
LOOKS = 20


def used(pid):
    """Processor time of a process until now, in seconds, of threads that have ended too."""
    # clock_getcpuclockid(3): CPUCLOCK_SCHED of all threads of a process.
    return time.clock_gettime(~pid << 3 | 2)


def children():
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def row(what, got, unit, goal):
    good = "" if got <= goal else "   MISSED"
    print(f"  {what:<66} {got:>8.2f} {unit:<14} (goal {goal:g}){good}", flush=True)


def each(pid, look):
    """Processor time of the daemon and of this process's children for each of some looks, in milliseconds."""
    ours, theirs = [], []
    for _ in range(LOOKS):
        before = used(pid), children()
        look()
        ours.append(used(pid) - before[0])
        theirs.append(children() - before[1])
    return statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3


class Node:
    """A daemon with tenants and connected programs."""

    def __init__(self, tenants, clients):
        self.folder = tempfile.mkdtemp()
        daemon = pathlib.Path(self.folder, "gpushare/d/bench")
        os.umask(0o077)
        daemon.mkdir(parents=True)
        self.daemon = daemon
        self.environment = os.environ | {"XDG_RUNTIME_DIR": self.folder, "XDG_STATE_HOME": f"{self.folder}/state"}
        self.holder = subprocess.Popen(
            [PROGRAMS / "examples/load", "--hold", daemon, "--tenants", str(tenants), "--clients", str(clients)],
            env=os.environ | {"GPUTEST_DEVICE_GIB": "1024"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = int(self.holder.stdout.readline())

    def ps(self):
        done = subprocess.run([PROGRAMS / "gpushare", "ps"], env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def idle(self, seconds=10):
        before = used(self.pid)
        time.sleep(seconds)
        return (used(self.pid) - before) / seconds * 100

    def top(self, seconds=10):
        """Part of a core of `top` in a terminal, and of the daemon meanwhile."""
        pid, terminal = pty.fork()
        if pid == 0:
            environment = self.environment | {"TERM": "xterm", "LINES": "40", "COLUMNS": "120"}
            os.execve(PROGRAMS / "gpushare", ["gpushare", "top"], environment)
        os.set_blocking(terminal, False)
        drawn = 0

        def read(seconds):
            nonlocal drawn
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                try:
                    drawn += len(os.read(terminal, 1 << 16))
                except BlockingIOError:
                    time.sleep(0.01)

        read(2)
        before = used(pid), used(self.pid)
        read(seconds)
        spent = used(pid) - before[0], used(self.pid) - before[1]
        assert drawn > 1000, "top has drawn nothing"
        os.write(terminal, b"q")
        os.waitpid(pid, 0)
        return [part / seconds * 100 for part in spent]

    def end(self):
        self.holder.stdin.close()
        self.holder.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; processor time, medians of {LOOKS}")
    node = Node(200, 200)
    try:
        text = node.ps()
        assert text.count("load-") == 200, text
        daemon, command = each(node.pid, node.ps)
        row("ps at 200 tenants: the command", command, "ms", 10)
        row("ps at 200 tenants: the daemon", daemon, "ms", 10)
        shown, daemon = node.top()
        row("top at 200 tenants, every second", shown, "% of a core", 3)
        row("top at 200 tenants, every second: the daemon", daemon, "% of a core", 3)
    finally:
        node.end()

    node = Node(20, 1000)
    exporter = None
    try:
        row("the daemon, 1,000 programs connected, nothing asked", node.idle(), "% of a core", 1)
        exporter = subprocess.Popen([PROGRAMS / "gpushare-exporter", "--listen", "127.0.0.1:0", "--runtime-dir",
                                     node.daemon], stderr=subprocess.PIPE, text=True)
        address = exporter.stderr.readline().split("http://")[1].split("/")[0]

        def scrape():
            with urllib.request.urlopen(f"http://{address}/metrics") as answer:
                assert b"gpushare_tenant_memory_charged_bytes" in answer.read()

        scrape()
        daemon, _ = each(node.pid, scrape)
        served, _ = each(exporter.pid, scrape)
        row("a scrape with 1,000 programs: exporter", served, "ms", 20)
        row("a scrape with 1,000 programs: daemon", daemon, "ms", 20)
        row("the daemon's part of a scrape a second", daemon / 10, "% of a core", 1)
    finally:
        if exporter:
            exporter.kill()
            exporter.wait()
        node.end()

    print(subprocess.run([PROGRAMS / "examples/journal"], check=True, capture_output=True, text=True).stdout.strip())


if __name__ == "__main__":
    main()
