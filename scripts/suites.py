"""Runs public driver-API suites bare and under gpushare, and compares each test's outcome; called by suites.sh.

    suites.py NUMBA_ENVIRONMENT CUDA_PYTHON_ENVIRONMENT [SUITE...]

The target folder's suites/ holds the programs of crates' tests, a file each, named as their suites.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATES = pathlib.Path(os.environ["CARGO_TARGET_DIR"]) / "suites"
BUILT = pathlib.Path(os.environ["CARGO_TARGET_DIR"]) / "debug"
KNOWN = ROOT / "tests/data/suites.tsv"
# The longest one run of a suite may take, in seconds.
PATIENCE = 1500
# A plugin of pytest that writes a line a test. A test's outcome is the worst of its phases.
PLUGIN = '''
import os
import sys
import types
import pytest
RANK = ["passed", "skipped", "failed"]
worst = {}
def pytest_runtest_logreport(report):
    before = worst.get(report.nodeid, "passed")
    worst[report.nodeid] = max(before, report.outcome, key=RANK.index)
def pytest_collectreport(report):
    if report.failed:
        worst[report.nodeid] = "failed"
def pytest_sessionfinish(session):
    with open(os.environ["SUITE_OUTCOMES"], "w") as file:
        for test, outcome in worst.items():
            file.write("::".join(part.rsplit("/", 1)[-1] for part in test.split("::")) + "\\t" + outcome + "\\n")
# numba-cuda's tests are imported as cuda.tests here. Processes that they start find them as what they are.
def pytest_collection_modifyitems(items):
    for module in {item.module for item in items if item.module.__name__.startswith("cuda.tests.")}:
        found, name = module.__name__, "numba." + module.__name__
        sys.modules[name] = module
        for value in vars(module).values():
            if isinstance(value, types.FunctionType) and value.__module__ == found:
                value.__module__ = name
@pytest.fixture
def initialize_from_pytest_config():
    """A fixture that numba-cuda's tests ask for and its package leaves out."""
'''
# Suite: what pytest is given (a crate's test program takes nothing), and how many tests there must be at least.
SUITES = {
    "numba-cuda": (["--continue-on-collection-errors", "--import-mode=importlib", "--pyargs", "numba.cuda.tests.cudadrv"], 260),
    "cuda-python": (["--continue-on-collection-errors", "--pyargs", "cuda.tests"], 80),
    "pycuda": (["--continue-on-collection-errors", *map(str, sorted((CRATES / "pycuda/test").glob("test_*.py")))], 120),
    "cudarc": (None, 25),
    "rustacuda": (None, 90),
    "nvml-wrapper": (None, 200),
}
# The machine, and another for a suite. PyCUDA's tests skip what needs more of the host than it may have, if the device has
# less memory; their kernels come from a compiler that is newer than the default driver.
DEVICE = "mem=16GiB"
DEVICES = {"pycuda": "mem=4GiB,driver=13000"}
# How often a suite runs bare at most until each test that flips has shown two outcomes.
FLIPS = 6
# Modes with the flags of `gpushare run`; with a daemon, and beside a neighbour that keeps the device busy.
MODES = {
    "limit": (["--daemon", "off", "--mem-limit", "50%"], False),
    "daemon": (["--daemon", "on", "--mem-limit", "50%"], False),
    "cap": (["--daemon", "off", "--sm-limit", "60"], False),
    "beside": (["--daemon", "on", "--mem-limit", "50%"], True),
}


class Machine:
    """A software GPU and a runtime folder of one run's own."""

    def __init__(self, name, device):
        self.folder = tempfile.TemporaryDirectory(prefix="gpushare-suite-")
        path = pathlib.Path(self.folder.name)
        self.path = path
        self.spec = f"name=suite-{os.getpid()}-{name},{device}"
        links = path / "links"
        links.mkdir()
        for library, names in (("cuda", ("libcuda.so.1", "libcuda.so")), ("nvml", ("libnvidia-ml.so.1", "libnvidia-ml.so"))):
            for link in names:
                (links / link).symlink_to(BUILT / f"libsoftgpu_{library}.so")
        (path / "outcome_lines.py").write_text(PLUGIN)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("GPUSHARE_", "SOFTGPU", "CUDA_", "NVIDIA_", "LD_"))}
        self.environment = kept | {
            "XDG_RUNTIME_DIR": str(path),
            "PYTHONPATH": str(path),
            "SUITE_OUTCOMES": str(path / "outcomes"),
            "PYTHONDONTWRITEBYTECODE": "1",
            # PyCUDA compiles with nvcc, a source once for all runs.
            "PATH": f"{ROOT}/scripts/nvcc:{kept['PATH']}",
            "PYCUDA_CACHE_DIR": str(CRATES / "pycuda-ptx"),
        }
        (CRATES / "pycuda-ptx").mkdir(parents=True, exist_ok=True)
        self.links = links

    def run(self, flags):
        return [BUILT / "gpushare", "run", "--gpu", f"soft:{self.spec}", *flags, "--"]

    def outcomes(self, command, bare, folder):
        folder = folder or self.folder.name
        environment = dict(self.environment)
        # Libraries of packages that look for them by the linker's path only.
        found = pathlib.Path(command[command.index("-m") - 1]).parent.parent.glob("lib/*/site-packages/nvidia/*/lib") if "-m" in command else []
        environment["LD_LIBRARY_PATH"] = ":".join(map(str, found))
        if bare:
            environment |= {"SOFTGPU": self.spec, "LD_LIBRARY_PATH": f"{self.links}:{environment['LD_LIBRARY_PATH']}"}
        with open(self.path / "log", "w") as log, open(self.path / "errors", "w") as errors:
            try:
                subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                               stderr=errors, timeout=PATIENCE, check=False)
            except subprocess.TimeoutExpired:
                return {"(the whole run)": "hangs"}
        if "-m" not in command:
            return crate_outcomes((self.path / "log").read_text(errors="replace"))
        written = pathlib.Path(environment["SUITE_OUTCOMES"])
        if not written.exists():
            print((self.path / "log").read_text()[-2000:], (self.path / "errors").read_text()[-2000:], file=sys.stderr)
            return {"(the whole run)": "no outcomes"}
        return dict(line.split("\t") for line in written.read_text().splitlines())


def crate_outcomes(text):
    """Reads the output of Rust's own test harness. A program that ends early leaves tests without an outcome."""
    words = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
    found = re.findall(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", text, re.MULTILINE)
    told = {test: words[word] for test, word in found}
    if not re.search(r"^test result:", text, re.MULTILINE):
        print(text[-2000:], file=sys.stderr)
        told["(the whole run)"] = "ended early"
    return told


def outcomes(suite, program, mode):
    """Each test's outcome in one run."""
    machine = Machine(f"{suite}-{mode}", DEVICES.get(suite, DEVICE))
    # One test after the other, in the same order: each has the whole device.
    command, sources = [program, "--test-threads=1"], pathlib.Path(program).parent / f"source-{suite}"
    if SUITES[suite][0] is not None:
        command, sources = [program, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "outcome_lines", *SUITES[suite][0]], None
    if mode.startswith("bare"):
        return machine.outcomes(command, True, sources)
    flags, beside = MODES[mode]
    neighbour = None
    if beside:
        # Kernels of 0.3 ms without a gap, for as long as the suite runs.
        client = pathlib.Path(machine.folder.name) / "turns"
        subprocess.run(["cc", "-O1", "-pthread", "-o", client, ROOT / "tests/clients/turns.c", "-ldl"], check=True)
        neighbour = subprocess.Popen([*machine.run(["--daemon", "on"]), client], env=machine.environment, text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for line in ("init", "work 300000"):
            neighbour.stdin.write(line + "\n")
            neighbour.stdin.flush()
            answer = neighbour.stdout.readline().strip()
            assert answer == f"{line.split()[0]} 0", answer
    try:
        return machine.outcomes([*machine.run(flags), *command], False, sources)
    finally:
        if neighbour:
            neighbour.stdin.close()
            neighbour.terminate()
            neighbour.wait()


def known():
    """Suite and test: why it fails bare (`kernels`, `gap`, `hardware`, `package`) or differs from run to run (`flips`)."""
    rows = [line.split("\t") for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")]
    return {(suite, test): kind for suite, test, kind, _ in rows}


def shown_to_flip(suite, program, flips, bare):
    """Outcomes in bare runs of tests that are said to flip."""
    shown = {test: {bare.get(test)} for test in sorted(flips)}
    for _ in range(1, FLIPS if flips else 1):
        if all(len(outcome) > 1 for outcome in shown.values()):
            break
        again = outcomes(suite, program, "bare")
        for test, outcome in shown.items():
            outcome.add(again.get(test))
    return [f"{suite}: {test}: bare {' and '.join(sorted(map(str, outcome)))}" for test, outcome in shown.items()]


def main():
    numba, cuda_python, *chosen = sys.argv[1:]
    programs = {"numba-cuda": f"{numba}/bin/python", "cuda-python": f"{cuda_python}/bin/python", "pycuda": os.environ.get("SUITE_PYCUDA")}
    lists, wrong, table, notes = known(), [], [], []
    for suite in chosen or SUITES:
        program = programs.get(suite, f"{CRATES}/{suite}")
        bare = outcomes(suite, program, "bare")
        least = SUITES[suite][1]
        if len(bare) < least:
            wrong.append(f"{suite}: {len(bare)} tests, at least {least} are expected")
        flips = {test for (of, test), kind in lists.items() if of == suite and kind == "flips"}
        failed = {test for test, outcome in bare.items() if outcome not in ("passed", "skipped")} - flips
        explained = {test for (of, test), kind in lists.items() if of == suite and kind != "flips"}
        wrong += [f"{suite}: fails bare, and suites.tsv does not say why: {test}" for test in sorted(failed - explained)]
        wrong += [f"{suite}: suites.tsv says that it fails: {test} {bare.get(test, 'is not there')}" for test in sorted(explained - failed)]
        notes += shown_to_flip(suite, program, flips, bare)
        same = []
        for mode in MODES:
            hooked = outcomes(suite, program, mode)
            differ = sorted(test for test in (bare.keys() | hooked.keys()) - flips if bare.get(test) != hooked.get(test))
            same.append(f"{mode} {len(bare) - len(differ)}")
            wrong += [f"{suite}, {mode}: {test}: bare {bare.get(test)}, hooked {hooked.get(test)}" for test in differ]
        kinds = [lists[suite, test] for test in failed & explained]
        passed = sum(outcome == "passed" for outcome in bare.values())
        skipped = sum(outcome == "skipped" for outcome in bare.values())
        table.append(f"| {suite} | {len(bare)} | {passed} | {skipped} | {', '.join(same)} | {kinds.count('kernels')} | {kinds.count('gap')} | {kinds.count('hardware')} | {kinds.count('package')} |")
    print("| suite | run | passed bare | skipped bare | same under gpushare | needs kernels | gaps | fails on such a GPU too | wants more than its package |")
    print("|---|---|---|---|---|---|---|---|---|")
    print("\n".join(table))
    print("\n".join(["", "Tests that flip:", *notes]) if notes else "")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


sys.exit(main())
