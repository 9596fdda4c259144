#!/usr/bin/env python3
"""Names the tests that passed only when they were run again, and fails if one had no right to.

    scripts/flaky.py [REPORT]   a JUnit report of cargo-nextest; without one that of the last run in CI

.config/nextest.toml has tests of real time run again. One may fail, and pass then, only by a figure of real time
(`assert_measured!`): any other assertion that fails once is a defect, however the second attempt ends."""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

# cargo-nextest writes below the workspace's own folder, wherever CARGO_TARGET_DIR is.
REPORT = pathlib.Path(__file__).resolve().parent.parent / "target/nextest/default/junit.xml"
# As in tests/src/measured.rs.
MEASURED = "measured in real time: "


def flaky(report):
    """Each test that passed after failing, and whether all its failures were figures of real time."""
    for case in ElementTree.parse(report).iter("testcase"):
        failures = case.findall("flakyFailure") + case.findall("flakyError")
        if failures:
            said = ["".join(failure.itertext()) + (failure.get("message") or "") for failure in failures]
            yield case.get("name"), all(MEASURED in text for text in said)


def main():
    report = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else REPORT
    if not report.exists():
        print(f"flaky: not known, the tests left no report in {report}")
        return 1
    seen = sorted(flaky(report))
    names = "".join(f", {name}" for name, _ in seen)
    print(f"flaky: {len(seen)}{names}")
    wrong = [name for name, allowed in seen if not allowed]
    for name in wrong:
        print(f"{name}: failed once, and not by a figure of real time: that is a defect, whatever its second attempt said")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
