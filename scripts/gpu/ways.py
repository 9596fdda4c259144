"""What the rows of swap.py rest on: the driver's calls that move memory, kinds of host memory, and folders of files."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile

from collisions import GIB, MIB
from machine import ROOT
from rows import NotAvailable

# Where a tenant's memory may be stored (docs/OPERATIONS.md); root also on tmpfs.
KINDS = ("ext2/ext3", "xfs", "btrfs", "f2fs", "bcachefs", "zfs", "tmpfs")


@contextlib.contextmanager
def storable(machine, size):
    """A folder that takes a file of so much memory, and the name of what it is on: a disk before the machine's memory."""
    seen, found = {}, []
    for place in filter(os.path.isdir, (machine.work, ROOT, "/var/tmp", "/dev/shm")):
        seen[place] = kind = subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, text=True).stdout.strip()
        if kind in KINDS and shutil.disk_usage(place).free > 2 * size:
            found.append((KINDS.index(kind), place))
    if not found:
        raise NotAvailable(f"no folder takes {size // MIB} MiB of memory in a file: {', '.join(f'{place} is on {kind}' for place, kind in seen.items())}")
    place = min(found, key=lambda one: one[0])[1]
    with tempfile.TemporaryDirectory(prefix="verify-", dir=place) as folder:
        yield folder, seen[place]


def driver(machine):
    """What the bare driver's calls cost that a move makes, and what a program sees of memory that was away."""
    found = json.loads(machine.run([machine.compile("scripts/gpu/mapped.c"), 64 * MIB if machine.soft else GIB], patience=60))
    piece, read, away, saved = found["call_us"]["64 MiB"], found["read_ns"], found["across_a_remap"], found["checkpoint_ms"]
    said = [f"64 MiB: {', '.join(f'{call} {took:.0f} us' for call, took in piece.items())}",
            f"a kernel's read {read['plain']:.0f} ns, of mapped memory {read['mapped']:.0f}",
            f"unmapped memory is free after {us(away['free_us'])}, by NVML {us(away['free_us_by_nvml'])}",
            f"across a remap the buffer's number {stays(away['same_buffer_id'])}, the context {stays(away['same_context'])}",
            "no checkpoint by this driver" if saved is None else f"the driver's checkpoint {saved['out']:.0f} ms out, {saved['back']:.0f} back"]
    return "; ".join(said), found


def us(took):
    return "more than 1 s" if took is None else f"{took:.0f} us"


def stays(same):
    return "is not told" if same is None else "stays" if same else "changes"


def pinned(machine):
    """Kinds of host memory: how fast each is filled, registered and copied, and what the memory cgroup is charged."""
    found = json.loads(machine.run([machine.compile("scripts/gpu/pinned.c"), 64 * MIB if machine.soft else GIB], patience=60))

    def kind(name, rates):
        if rates is None:
            return f"{name}: none here"
        filled = "" if rates["fill"] is None else f"filled {rates['fill']:.1f}, "
        charged = "unknown" if rates["charged_mib"] is None else f"{rates['charged_mib']} MiB"
        return (f"{name}: {filled}registered {rates['register']:.1f} GB/s, to the device {rates['to_device']:.1f}, from it {rates['from_device']:.1f}, "
                f"both {rates['both_ways']:.1f}, charged {charged}")
    return "; ".join(kind(name, rates) for name, rates in found.items()), found
