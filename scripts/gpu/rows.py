"""The table of verify.py: each row is PASS, FAIL, or not available with its reason, written as soon as it is known. A row that hangs costs its own
limit and no more; the run as a whole ends in time and its report is whole, whatever a row does."""

import collections
import json
import os
import re
import signal
import textwrap
import time
import traceback

# `work` takes the machine and returns the observation, or (observation, figures for the JSON).
# `expected`: the most seconds that it took on an H100 or H200; with less time left it is not
# started. `limit`: seconds after which the row is a failure, at least twice as many. `needs` takes
# the seconds that are left, and waits for what has to be there first: not a part of the row's time.
Row = collections.namedtuple("Row", "name work limit expected needs", defaults=(30, 3, None))


class NotAvailable(Exception):
    """This machine lacks a prerequisite of the row, or the run's time is used up."""


class Hang(BaseException):
    """The row's time is over. Not an Exception, so that nothing on the way takes it for its own."""


class Cut(BaseException):
    """The whole run is told to end."""


def cell(text):
    """A text as it can stand in a table."""
    return " ".join(str(text).split()).replace("|", "\\|") or "–"


def say(text):
    try:
        print(text, flush=True)
    except OSError:
        # Its reader has gone; the files are what counts.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def verdicts(text):
    """The rows of a report that ran, with their verdicts."""
    return dict(re.findall(r"^\| (.+?) \| \*\*(PASS|FAIL)\*\* \|", text, re.MULTILINE))


def began(text):
    """When a report was made, by its first line, as words that sort by time."""
    found = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", text.split("\n")[0])
    return found.group() if found else ""


def passed(reports):
    """The names of the rows that passed in the newest of these reports that ran them."""
    last = {}
    for text in sorted((report.read_text() for report in reports), key=began):
        last |= verdicts(text)
    return {name for name, verdict in last.items() if verdict == "PASS"}


class Report:
    """NAME.md, line by line as it comes to be; NAME.log, what failed programs said; NAME.json, the figures."""

    def __init__(self, folder, name, seconds):
        folder.mkdir(parents=True, exist_ok=True)
        number, wanted = 2, name
        while (folder / f"{name}.md").exists():
            name, number = f"{wanted}-{number}", number + 1
        self.path, self.figures_path = folder / f"{name}.md", folder / f"{name}.json"
        self.file, self.log = open(self.path, "w"), open(folder / f"{name}.log", "w")
        self.began, self.deadline, self.seconds = time.monotonic(), time.monotonic() + seconds, seconds
        self.counts, self.missing, self.figures = collections.Counter(), {}, {}

    def line(self, text=""):
        self.file.write(text + "\n")
        self.file.flush()
        say(text)

    def keep(self):
        """Writes the figures so far, whole at every moment: the run may be killed."""
        fresh = self.figures_path.with_suffix(".json.new")
        fresh.write_text(json.dumps(self.figures, indent=1) + "\n")
        fresh.rename(self.figures_path)

    def room(self, row):
        """Seconds that the row may take."""
        left = self.deadline - time.monotonic()
        if left < min(row.expected, row.limit):
            raise NotAvailable(f"the {self.seconds:.0f} s of this run are used up")
        return min(row.limit, left)

    def note(self, text):
        self.log.write(text.rstrip() + "\n")
        self.log.flush()

    def failed(self, row, machine):
        self.note(f"== {row.name}\n{traceback.format_exc()}{machine.daemon_logs()}")

    def row(self, row, machine):
        began = time.monotonic()
        try:
            limit = self.room(row)
            if row.needs:
                row.needs(self.deadline - time.monotonic())
                limit = self.room(row)
            with Limit(limit, machine):
                said = row.work(machine)
            said, figures = said if isinstance(said, tuple) else (said, None)
            verdict, detail = "PASS", said
            if figures is not None:
                self.figures[row.name] = figures
                self.keep()
        except NotAvailable as why:
            verdict, detail = "not available", why
        except AssertionError as why:
            verdict, detail = "FAIL", why
            self.failed(row, machine)
        except Hang:
            whole = limit == row.limit
            verdict, detail = ("FAIL", f"no end within {limit:.0f} s") if whole else ("not available", f"the {self.seconds:.0f} s of this run ended in it")
            self.failed(row, machine)
        except Exception as why:
            verdict, detail = "FAIL", f"{type(why).__name__}: {why}"
            self.failed(row, machine)
        self.counts[verdict] += 1
        if verdict == "not available":
            self.missing.setdefault(cell(detail), []).append(row.name)
        self.line(f"| {row.name} | **{verdict}** | {cell(detail)} | {time.monotonic() - began:.1f} s |")

    def end(self, cut):
        """The last lines. The status: 0 only if no row failed and at least one passed."""
        self.keep()
        for why, names in self.missing.items():
            said = textwrap.wrap(f"NOT SHOWN, {why}: {', '.join(names)}.", 100, break_long_words=False)
            self.line("\n" + "\n".join(said))
        total = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.counts.items())) or "no row"
        self.line(f"\n{total}; {time.monotonic() - self.began:.0f} s{'; CUT SHORT from outside' if cut else ''}")
        say(f"report: {self.path}")
        return 0 if self.counts["PASS"] and not self.counts["FAIL"] and not cut else 1


class Limit:
    """A row's time. When it is over, all the row has started is killed, which ends every wait for it, and Hang is raised; again each 5 s, should what
    cleans up behind it hang as well."""

    def __init__(self, seconds, machine):
        self.seconds, self.machine = seconds, machine

    def __enter__(self):
        def over(*_):
            self.machine.clear(True)
            raise Hang
        self.machine.begin()
        self.machine.limit = self.seconds
        signal.signal(signal.SIGALRM, over)
        signal.setitimer(signal.ITIMER_REAL, self.seconds, 5)

    def __exit__(self, kind, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.machine.clear(kind is not None)
