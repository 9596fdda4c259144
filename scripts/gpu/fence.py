"""Tests the driver's own limits for cgroups (r615 and later): the daemon's fence was written without these facts.

Prints `key=value` words. Ends with status 3 and a reason where this machine has no such limits. Makes a cgroup of its own, limits only that, and
removes it. `fence.py PROGRAM`: PROGRAM is tests/clients/quota.c, built; it runs in that cgroup, without the library.
"""

import ctypes
import os
import pathlib
import signal
import subprocess
import sys

MIB = 1 << 20
HARD = 2048 * MIB
NO_LIMIT = (1 << 64) - 1
MOUNT = pathlib.Path("/sys/fs/cgroup")
PATIENCE = 30  # seconds after which it takes its limit and its cgroup away and fails


class Limits(ctypes.Structure):
    """`nvmlGetMemoryLimits_v1_t`, whose beginning is `nvmlSetMemoryLimits_v1_t`."""

    _fields_ = [("name", ctypes.c_char_p), ("soft", ctypes.c_uint64), ("hard", ctypes.c_uint64), ("used", ctypes.c_uint64)]


def lacks(why):
    print(why)
    sys.exit(3)


class Driver:
    """NVML's two functions on the first device. Each answers NVML's number."""

    def __init__(self):
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self.set_limits, self.get_limits = self.nvml.nvmlDeviceSetMemoryLimits_v1, self.nvml.nvmlDeviceGetMemoryLimits_v1
        except (OSError, AttributeError) as why:
            lacks(f"no limits in NVML: {why}")
        self.device = ctypes.c_void_p()
        if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)):
            lacks("NVML does not start")

    def set(self, group, hard):
        return self.set_limits(self.device, ctypes.byref(Limits(str(group).encode(), 0, hard)))

    def get(self, group):
        limits = Limits(str(group).encode(), 0, 0, 0)
        answer = self.get_limits(self.device, ctypes.byref(limits))
        return answer, limits.soft, limits.hard, limits.used


def held(group, program):
    """MiB that a program in the cgroup gets in pieces of 64 MiB until it is refused, and NVML's count of them."""

    def enter():
        (group / "cgroup.procs").write_text(str(os.getpid()))

    guest = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, preexec_fn=enter)

    def ask(line):
        guest.stdin.write(line + "\n")
        guest.stdin.flush()
        return guest.stdout.readline().split()

    try:
        assert ask("init") == ["init", "0"], "CUDA does not start in the cgroup"
        _, count, result = ask(f"fill {64 * MIB}")
        used = Driver().get(group)[3]
        below = Driver().set(group, used // 2)
        return int(count) * 64, int(result), used // MIB, below, Driver().get(group)[2] // MIB
    finally:
        guest.kill()
        guest.wait()


def main():
    if os.geteuid() or not (MOUNT / "cgroup.controllers").is_file():
        lacks("needs root and cgroup v2 as the only hierarchy")
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"no end within {PATIENCE} s"))
    signal.alarm(PATIENCE)
    driver, group = Driver(), MOUNT / f"gpushare-verify-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as why:
        lacks(f"no cgroup can be made: {why}")
    try:
        words = {"dmem": (group / "dmem.max").exists(), "virgin": driver.get(group)[0]}
        words["set"] = driver.set(group, HARD)
        if words["set"] == 3:
            lacks(f"the driver says not supported; dmem={words['dmem']}")
        words["readback"] = driver.get(group)[2] == HARD
        words["above_device"] = driver.set(group, 1 << 50)
        words["no_such_group"] = driver.set(MOUNT / "no such group", HARD)
        driver.set(group, HARD)
        words["got_mib"], words["refused_with"], words["used_mib"], words["below_use"], words["then_mib"] = held(group, sys.argv[1])
        words["clear"] = driver.set(group, NO_LIMIT)
        words["cleared"] = driver.get(group)[:3]
        print(" ".join(f"{key}={value}".replace(" ", "") for key, value in words.items()))
        assert words["set"] == 0 and words["readback"], "a limit does not read back as it was set"
        assert words["refused_with"] == 2 and 0 < words["got_mib"] <= HARD // MIB, "the limit does not hold"
        assert words["clear"] == 0, "a limit cannot be taken away"
    finally:
        driver.set(group, NO_LIMIT)
        group.rmdir()


main()
