"""A headless Chromium, driven over a pair of pipes in its debugging protocol; pixels of its pictures."""

import base64
import fcntl
import json
import os
import queue
import struct
import subprocess
import threading
import time
import zlib

PATIENCE = 120


class Browser:
    """One browser with one tab. Ends when closed."""

    def __init__(self, program, profile, size=(1280, 800)):
        told, heard = os.pipe(), os.pipe()
        # Above 3 and 4, which the browser has for them.
        ours = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (told[0], heard[1])]

        def ends():
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        command = [program, "--headless", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars",
                   "--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}",
                   f"--window-size={size[0]},{size[1]}"]
        if os.geteuid() == 0:
            command.append("--no-sandbox")
        self.process = subprocess.Popen(command, preexec_fn=ends, pass_fds=(3, 4),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (told[0], heard[1], *ours):
            os.close(end)
        self.to, self.answers, self.last, self.session = told[1], queue.Queue(), 0, None
        self.failed = []
        threading.Thread(target=self.listen, args=(heard[0],), daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log"):
            self.call(f"{part}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1,
                  mobile=False)

    def listen(self, end):
        with os.fdopen(end, "rb", buffering=0) as pipe:
            rest = b""
            while part := pipe.read(1 << 16):
                *whole, rest = (rest + part).split(b"\0")
                for message in map(json.loads, whole):
                    if "id" in message:
                        self.answers.put(message)
                    elif message["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                        self.failed.append(json.dumps(message["params"])[:400])
        self.answers.put(None)

    def call(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.answers.get(timeout=PATIENCE)
            assert answer is not None, "the browser ended"
            if answer["id"] == self.last:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def run(self, script):
        """Runs a script; returns its value."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (script, answer["exceptionDetails"])
        return answer["result"].get("value")

    def open(self, address):
        self.failed.clear()
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def until(self, script):
        end = time.monotonic() + PATIENCE
        while True:
            value = self.run(script)
            if value:
                return value
            assert time.monotonic() < end, f"{script} stays {value!r}"
            time.sleep(0.2)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=False)

    def picture(self):
        """The tab as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self):
        self.process.kill()
        self.process.wait()


class Pixels:
    """A PNG of 8 bits a channel, without interlacing, as browsers make them."""

    def __init__(self, png):
        assert png.startswith(b"\x89PNG\r\n\x1a\n"), "no PNG"
        at, packed = 8, b""
        while at < len(png):
            size, kind = struct.unpack(">I4s", png[at:at + 8])
            body = png[at + 8:at + 8 + size]
            if kind == b"IHDR":
                self.width, self.height, bits, colour = struct.unpack(">IIBB", body[:10])
                assert bits == 8 and colour in (2, 6), (bits, colour)
                self.step = 3 if colour == 2 else 4
            elif kind == b"IDAT":
                packed += body
            at += 12 + size
        self.rows = list(self.unfiltered(zlib.decompress(packed)))

    def unfiltered(self, data):
        step, long = self.step, self.width * self.step
        before = bytearray(long)
        for at in range(0, len(data), long + 1):
            kind, row = data[at], bytearray(data[at + 1:at + 1 + long])
            for i in range(long) if kind else ():
                left = row[i - step] if i >= step else 0
                up = before[i]
                if kind == 1:
                    row[i] = (row[i] + left) & 255
                elif kind == 2:
                    row[i] = (row[i] + up) & 255
                elif kind == 3:
                    row[i] = (row[i] + (left + up) // 2) & 255
                else:
                    corner = before[i - step] if i >= step else 0
                    guess = left + up - corner
                    near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))
                    row[i] = (row[i] + near[2]) & 255
            before = row
            yield row

    def count(self, colour, part):
        """Pixels of about this colour in a part (left, top, width, height) of the picture."""
        left, top, width, height = (max(0, int(edge)) for edge in part)
        found = 0
        for row in self.rows[top:top + height]:
            for x in range(left, min(left + width, self.width)):
                at = x * self.step
                found += all(abs(row[at + i] - colour[i]) <= 6 for i in range(3))
        return found

    def colours(self, part):
        """The colours in a part of the picture, and how many pixels each has."""
        left, top, width, height = (max(0, int(edge)) for edge in part)
        found = {}
        for row in self.rows[top:top + height]:
            for x in range(left, min(left + width, self.width)):
                colour = bytes(row[x * self.step:x * self.step + 3])
                found[colour] = found.get(colour, 0) + 1
        return found
