#!/usr/bin/env python3
"""Records how each CUDA runtime binds the driver, into tests/data/cudart/.

    scripts/record-cudart.py [FOLDER_OF_LIBSOFTGPU_CUDA]     (default: target/debug, or $CARGO_TARGET_DIR/debug)

For each release of the runtime below: fetches its wheel, lets it start on the simulated driver, and writes down every function it
asks for, by which door, version and flags, and whether it got it. The runtimes go on to ask for export tables, which the simulated
driver refuses; there the recording ends. Nothing of the wheels is kept.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# (distribution, version, version of the driver it is started on). A driver of CUDA 11.2 has no
# cuGetProcAddress: there the names of the exported functions are looked up.
RUNTIMES = [
    ("nvidia-cuda-runtime-cu11", "11.8.89", 11020),
    ("nvidia-cuda-runtime-cu11", "11.8.89", 11080),
    ("nvidia-cuda-runtime-cu12", "12.0.146", 12000),
    ("nvidia-cuda-runtime-cu12", "12.9.79", 12090),
    ("nvidia-cuda-runtime", "13.0.96", 13000),
    ("nvidia-cuda-runtime", "13.5.37", 13050),
]

# A program's first lookups, and the answers where the runtime cannot start.
START = """
import ctypes, sys
runtime = ctypes.CDLL(sys.argv[1])
print(runtime.cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))
"""


def fetch(distribution, version, folder):
    """The runtime library of one wheel."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder,
         f"{distribution}=={version}"],
        check=True,
    )
    for wheel in pathlib.Path(folder).glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if pathlib.PurePath(name).name.startswith("libcudart.so"):
                    return archive.extract(name, folder)
    raise SystemExit(f"{distribution} {version}: no libcudart in the wheel")


def record(distribution, version, driver, soft, folder):
    """The lines of one transcript."""
    runtime = fetch(distribution, version, folder)
    trace = pathlib.Path(folder) / "trace.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", trace, ROOT / "scripts/record-cudart.c"], check=True)
    world = pathlib.Path(folder) / "driver"
    world.mkdir()
    for link in ("libcuda.so", "libcuda.so.1"):
        (world / link).symlink_to(soft)
    lines = pathlib.Path(folder) / "lines.tsv"
    environment = dict(os.environ, LD_AUDIT=str(trace), LD_LIBRARY_PATH=str(world), RECORD_CUDART=str(lines),
                       SOFTGPU=f"driver={driver}")
    started = subprocess.run([sys.executable, "-c", START, runtime], env=environment, capture_output=True, text=True, check=True)
    asked = lines.read_text().splitlines()
    if not any(line.startswith("cuGetExportTable\t") for line in asked):
        raise SystemExit(f"{distribution} {version}: did not come as far as the export tables; it said {started.stdout!r}")
    return asked, started.stdout.strip()


def main():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    soft = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else target / "debug").resolve() / "libsoftgpu_cuda.so"
    if not soft.exists():
        raise SystemExit(f"{soft} does not exist: cargo build -p softgpu-cuda")
    out = ROOT / "tests/data/cudart"
    out.mkdir(parents=True, exist_ok=True)
    for distribution, version, driver in RUNTIMES:
        with tempfile.TemporaryDirectory() as folder:
            asked, answer = record(distribution, version, driver, soft, folder)
        release = f"{driver // 1000}.{driver % 1000 // 10}"
        head = (
            f"# How libcudart of {distribution} {version} binds a driver of CUDA {release}, asked and\n"
            f"# answered in this order (scripts/record-cudart.py). With its export tables refused it ends: cudaGetDeviceCount is {answer}.\n"
            "door\tname\tversion\tflags\tresult\tstatus\tfound\n"
        )
        path = out / f"{version}-on-{release}.tsv"
        path.write_text(head + "".join(f"{line}\n" for line in asked))
        print(f"{path.relative_to(ROOT)}: {len(asked)} questions, {sum(line.endswith('1') for line in asked)} answered")


if __name__ == "__main__":
    main()
