"""A file system whose server stops to answer when it is told to. It has one file, `file`.

Words on standard input: `silent` and `answer`. On standard output: `ready`, `silent`, `answers`, and `asked OPCODE` for each
request that gets no answer for now. It unmounts at the end of its input, and when its parent dies.
"""

import ctypes
import os
import select
import signal
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH = 1, 2, 3, 14, 15, 17, 18, 25
INIT, INTERRUPT, SETLK, SETLKW, BATCH_FORGET = 26, 36, 32, 33, 42
WITHOUT_ANSWER = (FORGET, INTERRUPT, BATCH_FORGET)
ROOT, FILE = 1, 2
FLOCK_LOCKS = 1 << 10
NOSUID_NODEV, DETACH, PR_SET_PDEATHSIG = 6, 2, 1

libc = ctypes.CDLL(None, use_errno=True)
folder = sys.argv[1].encode()


def end(*_):
    libc.umount2(folder, DETACH)
    os._exit(0)


signal.signal(signal.SIGTERM, end)
libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if libc.mount(b"silent", folder, b"fuse", NOSUID_NODEV, options) != 0:
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")


def attributes(node):
    mode, links = (0o040755, 2) if node == ROOT else (0o100666, 0)
    return struct.pack("<6Q3I7I", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)


def body(opcode, node, data):
    """The answer to a request; a number is an error."""
    if opcode == INIT:
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, FLOCK_LOCKS, 16, 12, 65536, 1, 0, 0, 0)
    if opcode == LOOKUP:
        return struct.pack("<4Q2I", FILE, 0, 0, 0, 0, 0) + attributes(FILE)
    if opcode == GETATTR:
        return struct.pack("<QII", 0, 0, 0) + attributes(node)
    if opcode == OPEN:
        return struct.pack("<QII", 1, 0, 0)
    if opcode == READ:
        return bytes(min(4096, struct.unpack_from("<QQI", data)[2]))
    if opcode == STATFS:
        return struct.pack("<5Q4I24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0)
    if opcode in (RELEASE, FLUSH, SETLK, SETLKW):
        return b""
    return 38


def answer(request):
    unique, opcode, node, data = request
    said = body(opcode, node, data)
    error, said = (-said, b"") if isinstance(said, int) else (0, said)
    try:
        os.write(device, struct.pack("<IiQ", 16 + len(said), error, unique) + said)
    except FileNotFoundError:
        pass  # It was given up.


def tell(text):
    print(text, flush=True)


kept, silent, words = [], False, b""
tell("ready")
while True:
    ready, _, _ = select.select([device, 0], [], [])
    if 0 in ready:
        more = os.read(0, 4096)
        if not more:
            break
        words += more
        *lines, words = words.split(b"\n")
        for line in lines:
            silent = line == b"silent"
            if not silent:
                for request in kept:
                    answer(request)
                kept = []
            tell("silent" if silent else "answers")
    if device in ready:
        request = os.read(device, 1 << 20)
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        if opcode in WITHOUT_ANSWER:
            continue
        request = (unique, opcode, node, request[40:])
        if silent and opcode != INIT:
            kept.append(request)
            tell(f"asked {opcode}")
        else:
            answer(request)
end()
