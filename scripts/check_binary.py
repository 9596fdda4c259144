"""Lists the needs of a shipped file, from its dynamic section; exits 1 on a finding.

--max-glibc X.Y   no symbol of a newer glibc
--alone           for the preloaded library: needs nothing but what every program has loaded already, and every undefined
                  symbol has a glibc version (so nothing is left to be found by luck) or is weak; runs nothing at loading;
                  has none of the kill points of a build with debug assertions
"""

import argparse
import pathlib
import re
import subprocess
import sys

# In every program: the C library and the dynamic linker. Another one, also of glibc's, would be loaded into each.
EVERYWHERE = re.compile(r"^libc\.so\.6$|^ld-linux.*\.so\.\d+$")


def readelf(option, path):
    # Some readelf print a warning for unknown entries; only the table matters.
    return subprocess.run(["readelf", "-W", option, path], check=True, capture_output=True, text=True).stdout


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.+?)\]", readelf("--dynamic", path))


def undefined(path):
    """(name, version or None, weak) of each undefined dynamic symbol."""
    for line in readelf("--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[6] == "UND":
            name, _, version = fields[7].partition("@")
            yield name, version.lstrip("@") or None, fields[4] == "WEAK"


def number(version):
    return tuple(map(int, version.split(".")))


def findings(path, limit, alone):
    newest = (0, 0)
    for name, version, weak in undefined(path):
        glibc = re.fullmatch(r"GLIBC_([\d.]+)", version or "")
        if glibc:
            newest = max(newest, number(glibc[1]))
            if number(glibc[1]) > limit:
                yield f"{name} needs {version}"
        elif alone and not weak:
            yield f"{name} is undefined and is no symbol of glibc ({version or 'no version'})"
    if re.search(r"\(SYMBOLIC\)|\(FLAGS\).*\bSYMBOLIC\b", readelf("--dynamic", path)):
        yield "it is marked SYMBOLIC, so its own lookups would not see what stands before it"
    started = re.findall(r"\((?:PRE)?(INIT|FINI)(?:_ARRAY)?\)", readelf("--dynamic", path))
    if alone and started:
        yield f"it runs code when it is loaded or unloaded ({', '.join(sorted(set(started)))})"
    if alone and b"GPUTEST_" in pathlib.Path(path).read_bytes():
        yield "it names a variable of the tests: it was built with debug assertions"
    for library in needed(path):
        if library.startswith("libgcc_s"):
            yield f"it needs {library}, which minimal images do not have"
        elif alone and not EVERYWHERE.match(library):
            yield f"it needs {library}, which every program would load"
    print(f"{path}: needs {', '.join(needed(path))}; newest symbol GLIBC_{'.'.join(map(str, newest))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-glibc", required=True)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("file")
    arguments = parser.parse_args()
    found = list(findings(arguments.file, number(arguments.max_glibc), arguments.alone))
    for finding in found:
        print(f"{arguments.file}: {finding}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
