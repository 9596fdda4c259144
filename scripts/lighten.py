"""Takes out of the library, in place, what every program that it is loaded into would pay for (docs/adr/0136).

- libpthread.so.0 and libdl.so.2 among its needs. zig's linker searches glibc 2.17's libpthread.so.0 before its libc.so.6,
  so functions that both have (read, close) are bound to the first. Both have them with the same version, so the reference
  is bound to libc.so.6. A function that only the one taken out has is an error: interposer/src/guest/late.rs finds such.
- Code that runs when it is loaded: the C runtime's empty _init and _fini, and the standard library's note of the program's
  arguments, which nothing in it asks for. Any other such code is an error.

For 64-bit little-endian ELF files with a table of symbols.
"""

import struct
import subprocess
import sys

DROPPED = {b"libpthread.so.0", b"libdl.so.2"}
KEPT = b"libc.so.6"
# Functions of glibc 2.17's libpthread.so.0 that its libc.so.6 has too: system calls that are points of cancellation.
IN_BOTH = {
    *(b"__errno_location accept close connect fcntl fsync lseek lseek64 msync open open64 pause pread pread64".split()),
    *(b"pwrite pwrite64 read recv recvfrom recvmsg send sendmsg sendto tcdrain wait waitpid write".split()),
}

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SYMTAB = 0, 1, 5, 6
DT_RELA, DT_RELASZ, DT_INIT, DT_FINI = 7, 8, 12, 13
DT_INIT_ARRAY, DT_FINI_ARRAY, DT_INIT_ARRAYSZ, DT_FINI_ARRAYSZ = 25, 26, 27, 28
DT_VERSYM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
# A tag nothing reads, in the range left to the operating system, so that the table keeps its length.
UNREAD = 0x6FFFFEF0
HIDDEN = 0x8000


class File:
    def __init__(self, content):
        assert content[:6] == b"\x7fELF\x02\x01", "no 64-bit little-endian ELF file"
        self.content = content
        (at,) = struct.unpack_from("<Q", content, 32)
        size, count = struct.unpack_from("<HH", content, 54)
        # Kind, place in the file, address, bytes in the file.
        headers = [struct.unpack_from("<IIQQQQ", content, at + index * size) for index in range(count)]
        self.loads = [(header[2], header[3], header[5]) for header in headers if header[0] == PT_LOAD]
        (self.dynamic,) = [(header[2], header[5]) for header in headers if header[0] == PT_DYNAMIC]

    def place(self, address):
        """Where in the file the contents of an address are."""
        for place, start, length in self.loads:
            if start <= address < start + length:
                return place + address - start
        raise ValueError(f"no segment holds {address:#x}")

    def entries(self):
        """The dynamic section: (place in the file, tag, value)."""
        start, length = self.dynamic
        for at in range(start, start + length, 16):
            tag, value = struct.unpack_from("<QQ", self.content, at)
            if tag == DT_NULL:
                return
            yield at, tag, value

    def table(self, tag):
        return next((value for _, kind, value in self.entries() if kind == tag), None)

    def set_entry(self, wanted, tag, value):
        at = next(at for at, kind, _ in self.entries() if kind == wanted)
        struct.pack_into("<QQ", self.content, at, tag, value)

    def text(self, offset):
        at = self.place(self.table(DT_STRTAB)) + offset
        return bytes(self.content[at : self.content.index(0, at)])

    def needs(self):
        """The libraries whose versions are needed: (name, place in the file, {index: version})."""
        at = self.place(self.table(DT_VERNEED))
        while True:
            _, count, file, first, following = struct.unpack_from("<HHIII", self.content, at)
            versions, version = {}, at + first
            for _ in range(count):
                _, _, index, name, step = struct.unpack_from("<IHHII", self.content, version)
                versions[index] = self.text(name)
                version += step
            yield self.text(file), at, versions
            if following == 0:
                return
            at += following


def rebind(file):
    """Gives the undefined symbols bound to a dropped library the version of the kept one. Names for which that is wrong."""
    needs = list(file.needs())
    (kept,) = [versions for name, _, versions in needs if name == KEPT]
    by_version = {version: index for index, version in kept.items()}
    dropped = {index: version for name, _, versions in needs if name in DROPPED for index, version in versions.items()}
    symbols, versions = file.place(file.table(DT_SYMTAB)), file.place(file.table(DT_VERSYM))
    # The table of strings is the section behind the table of versions; each symbol has a version.
    sections = sorted(value for _, tag, value in file.entries() if tag in (DT_STRTAB, DT_VERNEED, 4, 0x6FFFFEF5))
    end = file.place(min(value for value in sections if value > file.table(DT_VERSYM)))
    wrong = []
    for number in range((end - versions) // 2):
        (index,) = struct.unpack_from("<H", file.content, versions + 2 * number)
        if index & ~HIDDEN not in dropped:
            continue
        (name,) = struct.unpack_from("<I", file.content, symbols + 24 * number)
        new = by_version.get(dropped[index & ~HIDDEN])
        if new is None or file.text(name) not in IN_BOTH:
            wrong.append(file.text(name).decode())
            continue
        struct.pack_into("<H", file.content, versions + 2 * number, new)
    return wrong


def drop(file):
    """Takes the dropped libraries out of the lists of needs."""
    needs = list(file.needs())
    rest = [at for name, at, _ in needs if name not in DROPPED]
    base = file.table(DT_VERNEED) - file.place(file.table(DT_VERNEED))
    for at, following in zip(rest, [*rest[1:], None]):
        struct.pack_into("<I", file.content, at + 12, following - at if following else 0)
    file.set_entry(DT_VERNEED, DT_VERNEED, rest[0] + base)
    file.set_entry(DT_VERNEEDNUM, DT_VERNEEDNUM, len(rest))
    dropped = [at for at, tag, value in file.entries() if tag == DT_NEEDED and file.text(value) in DROPPED]
    for at in dropped:
        struct.pack_into("<QQ", file.content, at, UNREAD, 0)


def run_nothing(path, file):
    """Takes out the code that runs at loading and unloading. What is more than that of every Rust library."""
    listing = subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout
    names = {int(fields[0], 16): fields[2] for fields in map(str.split, listing.splitlines()) if len(fields) == 3}
    array, length = file.table(DT_INIT_ARRAY) or 0, file.table(DT_INIT_ARRAYSZ) or 0
    start = file.place(file.table(DT_RELA))
    relocations = range(start, start + file.table(DT_RELASZ), 24)
    entries = [struct.unpack_from("<QQq", file.content, at) for at in relocations]
    run = [names.get(addend, hex(addend)) for at, _, addend in entries if array <= at < array + length]
    wrong = [name for name in run if "std" not in name or "args" not in name or "init" not in name]
    # Only code that the linker puts there by itself is known to be empty.
    at = [file.table(tag) for tag in (DT_INIT, DT_FINI)]
    wrong += [names.get(address, "?") for address in at if address and names.get(address) not in ("_init", "_fini")]
    if file.table(DT_FINI_ARRAY):
        wrong.append("an array of functions to run at the end")
    if not wrong:
        for tag in (DT_INIT, DT_FINI, DT_INIT_ARRAY, DT_INIT_ARRAYSZ):
            if file.table(tag) is not None:
                file.set_entry(tag, UNREAD, 0)
    return wrong


def main(path):
    with open(path, "rb") as source:
        file = File(bytearray(source.read()))
    wrong = rebind(file)
    if wrong:
        sys.exit(f"{path}: not in an old libc.so.6, so interposer/src/guest/late.rs has to find: {', '.join(wrong)}")
    more = run_nothing(path, file)
    if more:
        sys.exit(f"{path}: runs code when it is loaded: {', '.join(more)}")
    drop(file)
    with open(path, "r+b") as target:
        target.write(file.content)


if __name__ == "__main__":
    main(sys.argv[1])
