"""PyTorch under a quota of 2 GiB; knows nothing of gpushare. The arguments name what to show; each answer is a line of JSON: whether it held, and what
was seen."""

import gc
import json
import subprocess
import sys
import traceback

import torch

MIB = 1 << 20
LIMIT = 2048 * MIB
PIECE = 64 * MIB
# Its name moved in 2.5.
OutOfMemory = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError


def fill():
    """Tensors of 64 MiB until torch's own out-of-memory error."""
    held = []
    try:
        while len(held) * PIECE < 2 * LIMIT:
            held.append(torch.full((PIECE,), len(held), dtype=torch.uint8, device="cuda"))
    except OutOfMemory:
        return held
    raise AssertionError(f"{len(held)} x 64 MiB were granted under 2 GiB")


def intact(held):
    """Looked at on the host: where memory is full, the device has no room for a comparison."""
    assert all(bool((tensor.cpu() == number).all()) for number, tensor in enumerate(held)), "a tensor has changed"


def limit():
    """To the limit, torch's own error, freed, again."""
    counts = []
    for _ in range(2):
        held = fill()
        intact(held)
        counts.append(len(held))
        del held
        torch.cuda.empty_cache()
    assert counts[0] == counts[1] and PIECE * counts[0] <= LIMIT, counts
    assert PIECE * counts[0] >= LIMIT * 3 // 4, f"only {counts[0]} x 64 MiB fitted into 2 GiB"
    return f"{counts[0]} x 64 MiB, then torch.cuda.OutOfMemoryError; the same again after empty_cache"


def info():
    """mem_get_info and device properties show the quota."""
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0).total_memory
    assert total == properties == LIMIT and 0 < free <= total, (free, total, properties)
    return f"total {total // MIB} MiB, free {free // MIB} MiB"


def smi():
    """nvidia-smi, started by this process, shows the quota."""
    torch.zeros(1, device="cuda")
    command = ["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"]
    total, used = map(int, subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()[0].split(","))
    assert total == LIMIT // MIB and used <= total, (total, used)
    return f"total {total} MiB, used {used} MiB"


def graphs():
    """A captured graph replays under the quota, and its pool counts."""
    source = torch.ones(16 * MIB, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        source * 2 + 1
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = source * 2 + 1
    source.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((result.cpu() == 7).all()), "the graph computed something else"
    held = fill()
    intact(held)
    graph.replay()
    torch.cuda.synchronize()
    return f"captured, replayed, right; beside it {len(held)} x 64 MiB until refused, and it still replays"


def hold():
    """Holds half of the tenant's quota until the end of the input."""
    held = [torch.full((PIECE,), 1, dtype=torch.uint8, device="cuda") for _ in range(16)]
    torch.cuda.synchronize()
    print("holding", flush=True)
    sys.stdin.read()
    return f"{len(held)}"


def rest():
    """How much a second process of the tenant gets beside a process that holds half."""
    held = fill()
    assert PIECE * (len(held) + 16) <= LIMIT, f"{len(held)} x 64 MiB beside 16 x 64 MiB under 2 GiB"
    assert len(held) >= 8, f"only {len(held)} x 64 MiB beside 16 x 64 MiB"
    return f"{len(held)} x 64 MiB beside the 16 of the other process, then out of memory"


def main():
    for mode in sys.argv[1:]:
        try:
            ok, said = True, {"limit": limit, "info": info, "smi": smi, "graphs": graphs, "hold": hold, "rest": rest}[mode]()
        except Exception as why:
            traceback.print_exc()
            ok, said = False, f"{type(why).__name__}: {why}"
        print(json.dumps({"mode": mode, "ok": ok, "said": said}), flush=True)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
