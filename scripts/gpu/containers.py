"""verify.py's rows about containers: one by each door, made by bare runc, with a daemon of its own in a mount namespace of its own.

As a program (`containers.py DOOR JSON`, inside that namespace) it prints what was seen; status 3 and a reason where no container can be made here.
The container's root is this machine's own file system under an overlay, so that it has the driver's libraries; its devices are this machine's.
"""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

MIB = 1 << 20
LIMIT = 512 * MIB
PIECE = 64 * MIB
OUT_OF_MEMORY = 2
DOORS = ("hook", "wrapper", "CDI")
HERE = pathlib.Path(__file__).resolve()
LAB = pathlib.Path("/run/lab")
NAME = "f" * 63  # With the door's number, an id like those of engines.
PATIENCE = 20


def runc(binaries):
    """The one that was carried here (scripts/gpu/carry_runc.sh), or the installed one."""
    carried = HERE.parent.parent.parent / "dist/carried/runc"
    return str(carried) if carried.is_file() else shutil.which("runc", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def row(machine, door):
    """The row of one door: started by verify.py."""
    from machine import ROOT
    from rows import NotAvailable

    if os.geteuid():
        raise NotAvailable("containers: only root can make them")
    if not runc(machine.gpushare):
        raise NotAvailable("containers: no runc here; carry one with scripts/gpu/carry_runc.sh")
    binaries = pathlib.Path(machine.gpushare).resolve().parent
    for program in ("gpushare-oci-hook", *(["gpushare-runtime"] if door == "wrapper" else [])):
        if not (binaries / program).is_file():
            raise NotAvailable(f"containers: no {program} in {binaries}")
    asked = {"binaries": str(binaries), "soft": machine.soft, "environment": {key: machine.base[key] for key in ("SOFTGPU", "LD_LIBRARY_PATH") if machine.soft},
             "quota": str(machine.compile(ROOT / "tests/clients/quota.c")), "work": str(machine.work)}
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, HERE, door, json.dumps(asked)]
    child = machine.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = child.communicate()
    if child.returncode:
        machine.note(f"== container by {door}\n{out}\n{err}")
    if child.returncode == 3:
        raise NotAvailable(out.strip())
    assert child.returncode == 0, (err.strip() or out.strip())[-400:]
    return out.strip()


def rows():
    from rows import Row

    return [Row(f"a container by {door}", lambda machine, door=door: row(machine, door), limit=45, expected=1) for door in DOORS]


def lacks(why):
    print(f"containers: {why}")
    sys.exit(3)


class Guest:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        assert answer, f"the container ended: {self.process.communicate()[1].strip()[-300:]}"
        return [int(number) for number in answer[1:]]

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)


class Place:
    """The daemon, and containers beside it."""

    def __init__(self, asked):
        self.asked, self.binaries = asked, pathlib.Path(asked["binaries"])
        self.runc = runc(self.binaries)
        for folder in ("gpu", "library", "runc"):
            (LAB / folder).mkdir(parents=True)
        (LAB / "gpu").chmod(0o777)
        library = next(path for path in (self.binaries / "libgpushare.so", self.binaries / "lib/libgpushare.so") if path.exists())
        shutil.copy(library, LAB / "library/libgpushare.so")
        (LAB / "config.toml").write_text(f'[containers]\ncdi = "{LAB}/cdi.json"\nlibrary = "{LAB}/library"\n[classes.half]\ndevices = ["0"]\n'
                                         f'[classes.half.limits]\nGPUSHARE_MEM_LIMIT = "{LIMIT}"\n')
        self.environment = os.environ | asked["environment"] | ({"SOFTGPU_FOLDER": f"{LAB}/gpu"} if asked["soft"] else {})
        self.log = open(LAB / "daemon.log", "w")
        command = [self.binaries / "gpushared", "--config", LAB / "config.toml", "--state-dir", LAB / "state"]
        self.daemon = subprocess.Popen(command, env=self.environment, stderr=self.log)
        end = time.monotonic() + PATIENCE
        while "serving" not in (LAB / "daemon.log").read_text():
            assert self.daemon.poll() is None and time.monotonic() < end, (LAB / "daemon.log").read_text()[-300:]
            time.sleep(0.05)

    def bundle(self, name, door, program):
        folder = LAB / name
        for part in ("upper", "work", "rootfs"):
            (folder / part).mkdir(parents=True)
        options = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
        made = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, folder / "rootfs"], capture_output=True, text=True)
        if made.returncode:
            lacks(f"no overlay can be mounted: {made.stderr.strip()}")
        seen = {key: value for key, value in self.environment.items() if key in ("PATH", "LD_LIBRARY_PATH", "SOFTGPU")}
        seen |= {"NVIDIA_VISIBLE_DEVICES": "all"} | ({"SOFTGPU_FOLDER": "/mnt/gpu"} if self.asked["soft"] else {})
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}]
        # An overlay does not show what is mounted below it, such as a folder of the driver's libraries.
        below = [line.split()[1] for line in open("/proc/self/mounts") if line.split()[1].startswith(("/usr/", "/lib/", "/opt/"))]
        binds = {one: one for one in below} | {"/dev": "/dev", "/sys": "/sys", str(LAB / "gpu"): "/mnt/gpu", str(self.binaries): str(self.binaries), self.asked["work"]: self.asked["work"]}
        mounts += [{"type": "bind", "source": one, "destination": to, "options": ["rbind", "rw"]} for one, to in binds.items()]
        config = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "mounts": mounts, "annotations": {},
                  "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "cwd": "/", "args": program, "env": []},
                  "linux": {"cgroupsPath": f"/gpushare-verify/{name}", "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc")],
                            "resources": {"devices": [{"allow": True, "access": "rwm"}]}}}
        hook = {"path": str(self.binaries / "gpushare-oci-hook"), "args": ["gpushare-oci-hook", "--library", str(LAB / "library"), "createRuntime"], "env": [], "timeout": 10}
        if door in ("hook", "wrapper"):
            config["annotations"] = {"gpushare.io/mem-limit": str(LIMIT), "gpushare.io/devices": "0"}
        if door == "hook":
            config["hooks"] = {"createRuntime": [hook]}
        if door == "CDI":
            edits = json.loads((LAB / "cdi.json").read_text())["devices"][0]["containerEdits"]
            seen |= dict(variable.split("=", 1) for variable in edits["env"])
            config["mounts"] += [{"type": "bind", "source": one["hostPath"], "destination": one["containerPath"], "options": one["options"]} for one in edits["mounts"]]
        config["process"]["env"] = [f"{key}={value}" for key, value in seen.items()]
        (folder / "config.json").write_text(json.dumps(config))
        command = [self.runc]
        if door == "wrapper":
            command = [self.binaries / "gpushare-runtime", f"--gpushare-runtime={self.runc}", f"--gpushare-hook-args=--library,{LAB}/library"]
        return [*command, "--root", LAB / "runc", "run", "--bundle", folder, name]

    def row(self, beginning):
        said = subprocess.run([self.binaries / "gpushare", "ps", "--json"], env=self.environment, capture_output=True, text=True, check=True).stdout
        return next(row for row in json.loads(said) if row["name"].startswith(beginning))

    def end(self):
        for name in os.listdir(LAB / "runc"):
            subprocess.run([self.runc, "--root", LAB / "runc", "delete", "--force", name], capture_output=True)
        self.daemon.terminate()
        self.daemon.wait(PATIENCE)
        for mount in ("", *os.listdir("/sys/fs/cgroup")):
            for name in (f"gpushare-verify/{NAME}{number}" for number in range(len(DOORS) + 1)):
                remove(pathlib.Path("/sys/fs/cgroup", mount, name))
            remove(pathlib.Path("/sys/fs/cgroup", mount, "gpushare-verify"))


def remove(folder):
    try:
        folder.rmdir()
    except OSError:
        pass


class Process(ctypes.Structure):
    """`nvmlProcessInfo_v2_t`."""

    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint)]


def listed():
    """The pids that NVML lists on the first device."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, count, all_of_them = ctypes.c_void_p(), ctypes.c_uint(64), (Process * 64)()
    answers = nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    answers += (nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), all_of_them),)
    assert not any(answers), f"NVML's answers: {answers}"
    return [process.pid for process in all_of_them[: count.value]]


def see(place, door):
    name = NAME + str(DOORS.index(door))
    guest = Guest(place.bundle(name, door, [place.asked["quota"]]))
    assert guest.ask("init") == [0], "cuInit fails in the container"
    total = guest.ask("total")[0]
    assert total == LIMIT, f"the container sees {total // MIB} MiB"
    count, error = guest.ask(f"fill {PIECE}")
    assert error == OUT_OF_MEMORY and count * PIECE == LIMIT, f"{count} pieces of {PIECE // MIB} MiB, then error {error}"
    row = place.row("half-" if door == "CDI" else name)
    pid = row["processes"][0]["pid"]
    group = pathlib.Path(f"/proc/{pid}/cgroup").read_text()
    assert name in group, f"process {pid} is in {group}"
    pids = subprocess.run([sys.executable, HERE, "listed"], env=place.environment, capture_output=True, text=True).stdout.split()
    seen = [f"sees {total // MIB} MiB, allocates {count * PIECE // MIB}, then error {error}", f"pid {pid} in its cgroup"]
    seen.append(f"NVML lists {'it' if str(pid) in pids else ', '.join(pids) or 'no process'}")
    if shutil.which("nvidia-smi") and not place.asked["soft"]:
        query = ["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader"]
        inside = subprocess.run([place.runc, "--root", LAB / "runc", "exec", name, *query], capture_output=True, text=True)
        seen.append(f"nvidia-smi inside: {inside.stdout.strip() or inside.stderr.strip()[-100:]}")
    else:
        seen.append("nvidia-smi: not here")
    guest.end()
    print("; ".join(seen))


def main():
    if sys.argv[1] == "listed":
        print(*listed())
        return
    door, asked = sys.argv[1], json.loads(sys.argv[2])
    work = pathlib.Path(asked["work"])
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "none", "/run"], capture_output=True, text=True)
    if made.returncode:
        lacks(f"nothing can be mounted here: {made.stderr.strip()}")
    assert work.is_dir(), f"{work} is below /run"
    place = Place(asked)
    try:
        plain = subprocess.run(place.bundle(NAME + str(len(DOORS)), None, ["true"]), capture_output=True, text=True)
        if plain.returncode:
            lacks(f"runc cannot run here, without gpushare either: {plain.stderr.strip()[-300:]}")
        see(place, door)
    finally:
        place.end()


if __name__ == "__main__":
    main()
