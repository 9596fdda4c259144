"""Holds a memory file: a write to it takes its bytes from a file whose server does not answer, and nothing else may change the
memory file meanwhile. Arguments: the file, the memory file. Waits for a line of its input before it writes."""

import mmap
import os
import sys

served, memory = (os.open(path, os.O_RDWR) for path in sys.argv[1:])
page = mmap.mmap(served, 4096, prot=mmap.PROT_READ)
print("ready", flush=True)
sys.stdin.readline()
os.write(memory, page)
