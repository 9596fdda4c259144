"""Takes the SYMBOLIC mark out of a 64-bit little-endian shared object, in place.

zig's linker binds a library's references to its own functions only together with this mark, which makes the dynamic
linker search the library itself first for every lookup it makes, also where another library stands before it.
"""

import struct
import sys

PT_DYNAMIC = 2
DT_NULL, DT_SYMBOLIC, DT_FLAGS, DF_SYMBOLIC = 0, 16, 30, 2
# A tag nothing reads, in the range left to the operating system, so that the table keeps its
# length.
UNREAD = 0x6FFFFEF0


def main(path):
    with open(path, "r+b") as file:
        header = file.read(64)
        assert header[:6] == b"\x7fELF\x02\x01", f"{path} is no 64-bit little-endian ELF file"
        (segments,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        for index in range(count):
            file.seek(segments + index * size)
            kind, _, offset, _, _, length = struct.unpack("<IIQQQQ", file.read(40))
            if kind == PT_DYNAMIC:
                patch(file, offset, length)


def patch(file, offset, length):
    for at in range(offset, offset + length, 16):
        file.seek(at)
        tag, value = struct.unpack("<QQ", file.read(16))
        if tag == DT_NULL:
            return
        if tag == DT_SYMBOLIC:
            file.seek(at)
            file.write(struct.pack("<QQ", UNREAD, 0))
        elif tag == DT_FLAGS:
            file.seek(at)
            file.write(struct.pack("<QQ", tag, value & ~DF_SYMBOLIC))


if __name__ == "__main__":
    main(sys.argv[1])
