"""The two containers of quickstart_containers.sh, driven line by line, and `gpushare ps` while both run.

Argument: podman or runc. Podman takes runc where that is there, else its own choice: Debian, Ubuntu and Red Hat bring crun alone with it. Exits 1 if anything is not as it should be. The containers' root is the machine's own file system under an
overlay, so that nothing is downloaded.
"""

import json
import os
import shutil
import subprocess
import sys

MIB = 1 << 20
PIECE = 64 * MIB
OUT_OF_MEMORY = 2
LAB, BUILD = os.environ["LAB"], os.environ["BUILD"]
# These options work where this process may not raise limits, and under both versions of cgroups.
PODMAN = ["podman", "--root", f"{LAB}/podman/root", "--runroot", f"{LAB}/podman/run", "--tmpdir", f"{LAB}/podman/tmp",
          "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file",
          "--hooks-dir", f"{LAB}/hooks.d", *(["--runtime", "runc"] if shutil.which("runc") else [])]


def root(name):
    """An overlay over the machine's file system."""
    folder = f"{LAB}/{name}"
    for part in ("upper", "work", "rootfs"):
        os.makedirs(f"{folder}/{part}")
    options = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, f"{folder}/rootfs"], check=True)
    return folder


def settings():
    return {"LD_LIBRARY_PATH": "/mnt/links", "SOFTGPU": os.environ["SOFTGPU"], "SOFTGPU_FOLDER": "/mnt/gpu"}


VOLUMES = {BUILD: BUILD, f"{LAB}/links": "/mnt/links", f"{LAB}/gpu": "/mnt/gpu", f"{LAB}/quota": "/mnt/quota"}


def by_podman(name, limit):
    folder = root(name)
    run = [*PODMAN, "run", "--interactive", "--rm", "--network", "host", "--name", name, "--annotation", f"gpushare.io/mem-limit={limit}"]
    run += ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
    # Under SELinux the container could not read what lies on a file system of this script's own.
    run += ["--security-opt", "label=disable"]
    for variable in settings().items():
        run += ["--env", "=".join(variable)]
    for volume in VOLUMES.items():
        run += ["--volume", ":".join(volume)]
    return [*run, "--rootfs", f"{folder}/rootfs", "/mnt/quota"], f"podman run --annotation gpushare.io/mem-limit={limit} … quota"


def by_runc(name, limit):
    folder = root(name)
    subprocess.run(["runc", "spec"], cwd=folder, check=True)
    with open(f"{folder}/config.json") as file:
        config = json.load(file)
    with open(f"{LAB}/hooks.d/gpushare.json") as file:
        hook = json.load(file)["hook"]
    config["process"].update(terminal=False, args=["/mnt/quota"], env=["=".join(one) for one in settings().items()])
    config["root"]["readonly"] = False
    config["linux"]["namespaces"] = [one for one in config["linux"]["namespaces"] if one["type"] != "network"]
    config["mounts"] = [one for one in config["mounts"] if one["destination"] in ("/proc", "/dev")]
    config["mounts"] += [{"type": "bind", "source": one, "destination": to, "options": ["rbind", "rw"]} for one, to in VOLUMES.items()]
    config["annotations"] = {"gpushare.io/mem-limit": limit}
    config["hooks"] = {"createRuntime": [hook]}
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)
    return ["runc", "--root", f"{LAB}/runc", "run", "--bundle", folder, name], f"runc run {name}    (annotation gpushare.io/mem-limit={limit})"


class Container:
    def __init__(self, make, name, limit):
        self.name, self.good = name, True
        run, shown = make(name, limit)
        print("  $", shown, flush=True)
        self.process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.step("cuInit", self.ask("init")[0] == 0, "works")

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            sys.exit(f"{self.name} ended: status {self.process.wait()}")
        return [int(number) for number in answer[1:]]

    def step(self, what, good, seen):
        self.good &= good
        print(f"  {'ok ' if good else 'BAD'}  {self.name}: {what}: {seen}", flush=True)


def main():
    make = by_podman if sys.argv[1] == "podman" else by_runc
    small, large = Container(make, "small", "512MiB"), Container(make, "large", "1GiB")
    for container, room in ((small, 512 * MIB), (large, 1024 * MIB)):
        _, total, _ = container.ask("info")
        container.step("sees as the device's memory", total == room, f"{total // MIB} MiB")
    count, error = small.ask(f"fill {PIECE}")
    small.step("allocates until refused", (count * PIECE, error) == (512 * MIB, OUT_OF_MEMORY), f"{count * PIECE // MIB} MiB, then error {error}")
    error = large.ask(f"alloc {900 * MIB}")[0]
    large.step("allocates 900 MiB beside it", error == 0, "works" if error == 0 else f"error {error}")
    print(flush=True)
    subprocess.run([f"{BUILD}/gpushare", "ps"], check=True)
    for container in (small, large):
        container.process.stdin.close()
        container.process.wait()
    sys.exit(0 if small.good and large.good else 1)


main()
