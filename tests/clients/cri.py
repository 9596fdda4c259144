"""Runs one container by the interface that Kubernetes uses (CRI), with its standard streams: a pod on the host's network, so that
no network plugin is needed, with one container that reads and writes named pipes.

Argument: a JSON file with address, folder, name, image, program, environment, volumes, read_only, devices, annotations, runtime.
Needs grpc (Debian: python3-grpcio). The messages are encoded here, so that nothing has to be generated.
"""

import json
import os
import shutil
import sys
import threading

import grpc

# Values of NamespaceMode.
CONTAINER, NODE = 1, 2


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """One field of a message: a number or truth value, a text, or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(int(value))
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def pairs(number, mapping):
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in mapping.items())


def first_text(message):
    """The first field of a message, if it is a text."""
    if not message:
        return ""
    length, shift, at = 0, 0, 1
    while True:
        length |= (message[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 0x80:
            return message[at : at + length].decode()


class Service:
    def __init__(self, address):
        self.channel = grpc.insecure_channel(f"unix://{address}")

    def __call__(self, method, message):
        call = self.channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")
        return first_text(call(message, timeout=60))


def pump(source, to):
    while data := os.read(source, 65536):
        while data:
            data = data[os.write(to, data) :]


def feed(path):
    to = os.open(path, os.O_WRONLY)
    pump(0, to)
    os.close(to)


def main():
    with open(sys.argv[1]) as file:
        asked = json.load(file)
    pipes = f"{asked['folder']}/pipes"
    os.mkdir(pipes)
    for name in ("in", "out", "err"):
        os.mkfifo(f"{pipes}/{name}")
        os.chmod(f"{pipes}/{name}", 0o666)
    service = Service(asked["address"])
    namespaces = field(1, NODE) + field(2, CONTAINER) + field(3, CONTAINER)
    metadata = field(1, asked["name"]) + field(2, asked["name"]) + field(3, "lab")
    pod = field(1, metadata) + pairs(7, asked["annotations"]) + field(8, field(2, field(1, namespaces)))
    sandbox = service("RunPodSandbox", field(1, pod) + field(2, asked["runtime"]))
    try:
        line = 'exec "$@" </mnt/pipes/in >/mnt/pipes/out 2>/mnt/pipes/err'
        config = field(1, field(1, "program")) + field(2, field(1, asked["image"]))
        config += b"".join(field(3, word) for word in ("sh", "-c", line, "sh", *asked["program"]))
        for name, value in (variable.split("=", 1) for variable in asked["environment"]):
            config += field(6, field(1, name) + field(2, value))
        for source, to, read_only in [*asked["volumes"], (pipes, "/mnt/pipes", False)]:
            config += field(7, field(1, to) + field(2, source) + field(3, read_only))
        security = field(3, namespaces) + field(7, asked["read_only"])
        config += pairs(10, asked["annotations"]) + field(15, field(2, security))
        config += b"".join(field(17, field(1, device)) for device in asked["devices"])
        container = service("CreateContainer", field(1, sandbox) + field(2, config) + field(3, pod))
        service("StartContainer", field(1, container))
        threading.Thread(target=feed, args=(f"{pipes}/in",), daemon=True).start()
        out = os.open(f"{pipes}/out", os.O_RDONLY)
        errors = os.open(f"{pipes}/err", os.O_RDONLY)
        told = threading.Thread(target=pump, args=(errors, 2))
        told.start()
        pump(out, 1)
        told.join()
        service("StopContainer", field(1, container) + field(2, 5))
    except grpc.RpcError as error:
        sys.exit(error.details())
    finally:
        service("StopPodSandbox", field(1, sandbox))
        service("RemovePodSandbox", field(1, sandbox))
        shutil.rmtree(pipes)


main()
