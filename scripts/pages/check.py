"""The checks of pages.sh. Arguments: the folder of the programs, Chromium, the Perfetto page's folder, a client,
a folder for the pictures, and for how many seconds the node works."""

import functools
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from browser import Browser, Pixels

MIB = 1 << 20
PATIENCE = 180
# Colours of the page's lines, in their order.
COLOURS = [(0x44, 0x77, 0xAA), (0xEE, 0x66, 0x77), (0x22, 0x88, 0x33), (0xCC, 0xBB, 0x44)]


def ok(what):
    print(f"  ok   {what}", flush=True)


def over_white(colour):
    """A colour of a stacked line, as the page draws it."""
    return tuple(round(0.75 * part + 0.25 * 255) for part in colour)


class Node:
    """A user of the software GPU, with a daemon of its own."""

    def __init__(self, programs, name, config=None):
        self.programs, self.folder = programs, tempfile.mkdtemp()
        self.gpu = f"soft:name=pages-{name}-{os.getpid()},mem=16GiB"
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("GPUSHARE_")}
        self.environment |= {"XDG_RUNTIME_DIR": self.folder, "XDG_STATE_HOME": f"{self.folder}/state"}
        if config:
            file = pathlib.Path(self.folder, "config.toml")
            file.write_text(config)
            self.environment["GPUSHARE_DAEMON_CONFIG"] = str(file)
        self.running = []

    def start(self, *arguments, **more):
        process = subprocess.Popen([f"{self.programs}/gpushare", *arguments], env=self.environment, text=True, **more)
        self.running.append(process)
        return process

    def gpushare(self, *arguments):
        done = subprocess.run([f"{self.programs}/gpushare", *arguments], env=self.environment, text=True,
                              capture_output=True)
        assert done.returncode == 0, done
        return done.stdout

    def client(self, program, name, *flags):
        return Client(self.start("run", "--gpu", self.gpu, "--name", name, *flags, "--", program,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def bench(self, seconds, *tenants):
        named = [part for tenant in tenants for part in ("--tenant", tenant)]
        return self.start("bench", "share", "--gpu", self.gpu, "--alone", "0", "--seconds", str(seconds), *named,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self):
        for process in self.running:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Client:
    def __init__(self, process):
        self.process = process
        assert self.ask("init") == [0]

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        assert answer, f"the client ended: {self.process.wait()}"
        return [int(number) for number in answer[1:]]


def serve(folder):
    """Files of a folder over HTTP; the server and its address."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


FIGURE = """(title => {
    const all = [...document.querySelectorAll('figure')];
    const one = all.find(figure => figure.querySelector('figcaption').textContent === title);
    const box = one.querySelector('svg').getBoundingClientRect();
    return [box.x, box.y, box.width, box.height];
})"""


def lines_in(browser, title):
    """Pixels of each of the first lines' colours in a figure of the page."""
    part = browser.run(f"{FIGURE}({json.dumps(title)})")
    pixels = Pixels(browser.picture())
    return [pixels.count(over_white(colour), part) for colour in COLOURS]


def check_page(browser, address, names, what):
    """A page shows these tenants, has pixels of their lines, and has loaded and run nothing."""
    browser.open(address)
    text = browser.run("document.body.innerText")
    for name in [*names, "GPU 0", "Memory charged", "Time had (billed)", "Events", "refused"]:
        assert name in text, f"{name} is not in\n{text}"
    memory = lines_in(browser, "Memory charged")
    assert sum(count > 20 for count in memory) >= 2, f"lines of memory have {memory} pixels"
    billed = lines_in(browser, "Time had (billed)")
    assert max(billed) > 20, f"lines of time have {billed} pixels"
    loaded = browser.run("performance.getEntriesByType('resource').map(one => one.name)")
    # A browser asks for a server's icon by itself.
    loaded = [one for one in loaded if not one.endswith("/favicon.ico")]
    assert loaded == [], loaded
    assert browser.run("document.scripts.length") == 0
    ok(f"{what}: {len(text.split())} words, pixels of lines {memory} and {billed}, nothing loaded, no script")


def check_empty(browser, address):
    """The page of a node where nothing ran: the same figures without a line."""
    browser.open(address)
    assert "nothing in the last hour" in browser.run("document.body.innerText")
    memory = lines_in(browser, "Memory charged")
    assert memory == [0] * len(COLOURS), memory
    ok("the page of an idle node has figures without lines")


def check_trace_file(path, wanted):
    """The trace is read back: spans with these names on named tracks, in order, none endless."""
    trace = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    spans = [event for event in trace if event["ph"] == "X"]
    found = {event["name"] for event in spans}
    for names in wanted:
        assert found & set(names), f"none of {names} among {sorted(found)}"
    tracks = {(event["pid"], event["tid"]) for event in trace if event["ph"] == "M" and event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in spans} <= tracks
    times = [event["ts"] for event in trace]
    assert times == sorted(times)
    # Spans of one track do not overlap.
    last = {}
    for event in spans:
        track = event["pid"], event["tid"]
        assert event["ts"] >= last.get(track, 0) - 1000, event
        last[track] = event["ts"] + event["dur"]
    counts = {name: sum(event["name"] == name for event in spans) for name in sorted(found)}
    ok(f"{pathlib.Path(path).name} read back: {len(trace)} entries, spans {counts}")
    return counts


def check_perfetto(browser, address, counts, tenants):
    """The Perfetto page has read the whole trace, and shows its tracks."""
    browser.open(f"{address}/#!/?url={address}/trace.json")
    browser.until("!!(window.app && window.app.trace && location.hash.startsWith('#!/viewer'))")
    query = """(async () => {
        const rows = await window.app.trace.engine.query(
            'select name, count(*) as many from slice where dur >= 0 group by name');
        const found = {};
        for (const it = rows.iter({name: 'str', many: 0}); it.valid(); it.next()) found[it.name] = it.many;
        return found;
    })()"""
    read = browser.run(query)
    for name, many in counts.items():
        assert read.get(name, 0) >= many, f"{name}: {many} in the file, {read.get(name)} in Perfetto"
    ok(f"Perfetto has read every span: {sum(counts.values())}")
    # Each group is opened, so that its tracks are seen; four seconds from where tenants yielded or were held.
    browser.until("window.app.trace.workspace.flatTracks.length > 5")
    browser.run("""(async () => {
        const trace = window.app.trace;
        trace.workspace.flatTracks.forEach(track => track.expand());
        window.app.sidebar.toggleVisibility();
        const rows = await trace.engine.query(
            "select min(ts) as since from slice where name in ('yielding', 'held', 'together')");
        const since = rows.iter({since: 0n}).since;
        trace.scrollTo({time: {start: since, end: since + 4000000000n, behavior: 'focus'}});
        await window.waitForPerfettoIdle(5000);
    })()""")
    shown = "[...document.querySelectorAll('.pf-track__title-popup')].map(x => x.textContent).join('\\n')"
    wanted = [*(f"tenant {tenant}" for tenant in tenants), "sharing", "gate of GPU-", "life", "charged by"]
    for name in wanted:
        browser.until(f"({shown}).includes({json.dumps(name)})")
    time.sleep(3)
    png = browser.picture()
    colours = Pixels(png).colours((250, 150, 1030, 600))
    ink = {colour: many for colour, many in colours.items() if max(colour) - min(colour) > 40 and many > 100}
    assert len(ink) >= 3, f"the tracks have {len(ink)} colours"
    ok(f"the tracks {', '.join(wanted)} are shown, in {len(ink)} colours")
    return png


def small(path, png):
    assert len(png) < 150 << 10, f"{path} has {len(png) >> 10} KiB"
    pathlib.Path(path).write_bytes(png)
    ok(f"{path}: {len(png) >> 10} KiB")


def main():
    programs, chromium, perfetto, client, folder, seconds = sys.argv[1:]
    seconds = int(seconds)
    node, turns = Node(programs, "shared"), Node(programs, "turns", "[compute]\nsharing = \"turns\"\n")
    profile = tempfile.mkdtemp()
    browser = exporter = server = None
    site = tempfile.mkdtemp()
    try:
        browser = Browser(chromium, profile, (1080, 760))
        web = node.client(client, "web", "--mem-limit", "6GiB")
        page = pathlib.Path(folder, "idle.html")
        node.gpushare("report", "--html", str(page))
        check_empty(browser, page.as_uri())

        assert web.ask(f"alloc {5 << 30}") == [0]
        batch = node.client(client, "batch", "--mem-limit", "4GiB")
        assert batch.ask(f"alloc {3 << 30}") == [0]
        assert batch.ask(f"alloc {2 << 30}") == [2], "it has a limit"
        load = node.bench(seconds + 15, "name=serve,share=70,kernel=300us,mode=sync,every=3ms",
                          "name=train,share=30,kernel=4ms,mode=queue,depth=8")
        # A private daemon and what it remembers go with its last tenant: this one stays.
        turns.client(client, "keep", "--mem-limit", "1GiB")
        in_turns = turns.bench(8, "name=one,share=70,kernel=1ms,mode=queue", "name=two,share=30,kernel=1ms,mode=queue")
        # A few values of the history, which takes one every ten seconds.
        end = time.monotonic() + PATIENCE
        page = pathlib.Path(folder, "report.html")
        while True:
            time.sleep(3)
            node.gpushare("report", "--html", str(page))
            text = page.read_text()
            if text.count("<polygon") >= 4 and "refused" in text:
                break
            assert time.monotonic() < end, "the history has no lines"
        # Memory comes and goes until there is enough to see.
        end = time.monotonic() + seconds - 15
        pieces = [2, 3, 1, 4]
        while time.monotonic() < end:
            time.sleep(15)
            web.ask("free 1")
            web.ask(f"alloc {pieces[0] << 30}")
            pieces = pieces[1:] + pieces[:1]
        node.gpushare("report", "--html", str(page))
        check_page(browser, page.as_uri(), ["web", "batch", "train", "serve"], "report --html")
        small(f"{folder}/report.png", browser.picture())

        exporter = subprocess.Popen([f"{programs}/gpushare-exporter", "--listen", "127.0.0.1:0", "--runtime-dir",
                                     str(next(pathlib.Path(node.folder, "gpushare/d").iterdir()))],
                                    env=node.environment, stderr=subprocess.PIPE, text=True)
        address = exporter.stderr.readline().split("http://")[1].split("/")[0]
        check_page(browser, f"http://{address}/", ["web", "batch", "train", "serve"], "the exporter's /")

        trace = f"{site}/trace.json"
        node.gpushare("events", "--perfetto", trace)
        counts = check_trace_file(trace, [["runs"], ["together", "yielding", "held"], ["shares", "yields", "closed"]])
        shutil.copy(trace, f"{folder}/trace.json")
        other = f"{site}/turns.json"
        in_turns.wait()
        turns.gpushare("events", "--perfetto", other)
        names = [event["name"] for event in json.loads(pathlib.Path(other).read_text())["traceEvents"]]
        assert any(name.startswith("turn of ") and name.endswith("-one") for name in names), set(names)
        assert any(name.startswith("turn of ") and name.endswith("-two") for name in names), set(names)
        check_trace_file(other, [["has the turn"], ["closed"]])

        for entry in os.scandir(perfetto):
            os.symlink(entry.path, f"{site}/{entry.name}")
        server, address = serve(site)
        browser.size(1280, 800)
        small(f"{folder}/trace.png", check_perfetto(browser, address, counts, ["web", "batch"]))
        load.wait()
    finally:
        if browser:
            browser.close()
        if exporter:
            exporter.kill()
        if server:
            server.shutdown()
        node.end()
        turns.end()
        for path in (profile, site):
            shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
