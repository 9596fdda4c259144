"""verify.py's rows about single families of calls that no other row makes: room in a pool at the limit (ADR 243), and batches of copies (ADR 65)."""

import json

from machine import MIB
from rows import Row

LIMIT = 256
# What tests/clients/ordered.c is told, and its answers: a stream is served what it freed behind work that it has not reached, and no more than that. Then
# halves of two pieces that a pool keeps serve every stream where the rest of the limit is taken.
BEHIND = (("init", "init 0"), ("keep", "keep 0"), (f"alloc {200 * MIB} 1", "alloc 0"), ("crowd 1 0", "crowd 0"), ("free 0 1", "free 0"),
          (f"alloc {200 * MIB} 1", "alloc 0"), (f"alloc {100 * MIB} 1", "alloc 2"), ("value 1", "value 0"), ("value 2", "value 0"), ("sync-all", "sync-all 0"))
HALVES = (("init", "init 0"), ("keep", "keep 0"), *[(f"alloc {64 * MIB} 1", "alloc 0")] * 2, ("free 0 1", "free 0"), ("sync 1", "sync 0"),
          (f"linear {(LIMIT - 128) * MIB}", "linear 0"), (f"alloc {32 * MIB} 2", "alloc 0"), (f"alloc {32 * MIB} 1", "alloc 0"), (f"alloc {32 * MIB} 1", "alloc 2"))


def room(machine):
    """What a pool keeps of what was freed is room also at the limit, as on the bare driver."""
    client, seen = machine.compile("tests/clients/ordered.c"), []
    for name, script in (("behind work of the same stream", BEHIND), ("parts of a piece, by two streams", HALVES)):
        told, wanted = (list(words) for words in zip(*script))
        said = machine.run(machine.under(f"{LIMIT}MiB", client), stdin="\n".join([*told, "reserved"]) + "\n").split("\n")
        reserved = int(said[len(wanted)].split()[1]) if len(said) > len(wanted) + 1 else 0
        wrong = [f"{line}: {answer}" for line, answer, right in zip(told, said, wanted) if answer != right]
        seen.append(f"{name}: {'; '.join(wrong) or 'served, and no more than that'}, {reserved // MIB} of {LIMIT} MiB reserved")
        assert not wrong and 0 < reserved <= LIMIT * MIB, seen[-1]
    return "; ".join(seen)


def batches(machine):
    """Batches of copies between kernels, without the library, with it, and in two tenants at once, one of them under a cap."""
    program = machine.compile("scripts/gpu/batches.c")
    beside = [[machine.gpushare, "run", "--daemon", "on", "--gpu", machine.gpu, *flags, "--", program] for flags in ((), ("--sm-limit", "40"))]
    names = ("without", "with", "beside another", "under a cap")
    said = [machine.run([program]), machine.run(machine.under("2GiB", program)), *machine.runs(beside)]
    found = dict(zip(names, map(json.loads, said)))
    calls = [call for call, fact in found["without"].items() if fact]
    told = "; ".join(f"{call}: " + ", ".join(f"{name} {one[call]['answer']} in {one[call]['call_us']:.0f} us" for name, one in found.items()) for call in calls)
    wrong = [f"{call} {name}" for call in calls for name, one in found.items() if one[call]["answer"] != found["without"][call]["answer"] or not one[call]["whole"]]
    assert not wrong, f"{', '.join(wrong)}; {told}"
    return told or "this driver has no batches of copies", found


def rows():
    return [Row("quota: room in a pool at the limit", room, expected=2), Row("copies in batches", batches, expected=4)]
