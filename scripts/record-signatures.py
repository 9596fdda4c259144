#!/usr/bin/env python3
"""Records the parameters of every function of cuda.h and nvml.h, as a machine sees them, into tests/data/signatures-13.5.tsv.

    pip install libclang; scripts/record-signatures.py FOLDER_OF_CUDA_H FOLDER_OF_NVML_H

One line a function: symbol, answer, parameters. Each is `ptr`, an integer or float by its bytes (`i4`, `i8`, `f4`), a struct passed
by value by its bytes (`s64`), or `void`. The folders are those the wheels nvidia-cuda-runtime and nvidia-nvml-dev install.
"""

import pathlib
import sys

from clang.cindex import CursorKind, Index, TypeKind

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/signatures-13.5.tsv"

# The headers that libclang reads in place of the compiler's own.
STANDARD = {
    "stddef.h": "typedef unsigned long size_t;\n#define NULL ((void *)0)\n",
    "stdlib.h": "#include <stddef.h>\n",
    "stdint.h": "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;\n"
    "typedef unsigned long uint64_t; typedef int int32_t; typedef long int64_t;\n",
}


def kind(type_):
    """The machine's view of a C type."""
    real = type_.get_canonical()
    if real.kind in (TypeKind.POINTER, TypeKind.INCOMPLETEARRAY, TypeKind.CONSTANTARRAY):
        return "ptr"
    if real.kind == TypeKind.RECORD:
        return f"s{real.get_size()}"
    if real.kind in (TypeKind.FLOAT, TypeKind.DOUBLE):
        return f"f{real.get_size()}"
    return "void" if real.kind == TypeKind.VOID else f"i{real.get_size()}"


def functions(header, prefix):
    """The functions of one header, those of CUDA 2 and the per-thread twins included."""
    arguments = ["-x", "c", "-nostdinc", f"-I{header.parent}", "-I/standard", "-D__CUDA_API_VERSION_INTERNAL",
                 "-DNVML_NO_UNVERSIONED_FUNC_DEFS"]
    standard = [(f"/standard/{name}", text) for name, text in STANDARD.items()]
    unit = Index.create().parse(str(header), args=arguments, unsaved_files=standard)
    errors = [str(message) for message in unit.diagnostics if message.severity >= 3]
    if errors:
        raise SystemExit("\n".join(errors))
    for node in unit.cursor.get_children():
        if node.kind == CursorKind.FUNCTION_DECL and node.spelling.startswith(prefix):
            yield node.spelling, kind(node.result_type), " ".join(kind(arg.type) for arg in node.get_arguments()) or "void"


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    cuda, nvml = (pathlib.Path(folder) for folder in sys.argv[1:])
    rows = set(functions(cuda / "cuda.h", "cu")) | set(functions(nvml / "nvml.h", "nvml"))
    head = "# Parameters of the functions of cuda.h and nvml.h of CUDA 13.5 on x86-64 (scripts/record-signatures.py).\n"
    OUT.write_text(head + "symbol\tanswer\tparameters\n" + "".join("\t".join(row) + "\n" for row in sorted(rows)))
    print(f"{OUT.name}: {len(rows)} functions")


if __name__ == "__main__":
    main()
