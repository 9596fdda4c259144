#!/usr/bin/env python3
"""Fails if fuzz/Cargo.lock, a project of its own that CI does not build, is behind the workspace.

A crate of ours must have the same dependencies in both lock files, but for what only its tests and
its build need. `cargo metadata --manifest-path fuzz/Cargo.toml` brings the file up to date.
"""

import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def ours(lock: str) -> dict[str, set[str]]:
    """The crates that come from no registry, and their dependencies by name."""
    packages = tomllib.loads((ROOT / lock).read_text())["package"]
    local = [package for package in packages if "source" not in package]
    return {p["name"]: {name.split()[0] for name in p.get("dependencies", [])} for p in local}


def needed(manifest: pathlib.Path) -> tuple[str, set[str]]:
    """A crate, and what it itself depends on: what a project that depends on it must have."""
    crate = tomllib.loads(manifest.read_text())
    tables = [crate, *crate.get("target", {}).values()]
    return crate["package"]["name"], {
        entry.get("package", name) if isinstance(entry, dict) else name
        for table in tables
        for name, entry in table.get("dependencies", {}).items()
        if not (isinstance(entry, dict) and entry.get("optional"))
    }


def main() -> int:
    workspace, fuzz = ours("Cargo.lock"), ours("fuzz/Cargo.lock")
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    wrong = 0
    for manifest in (ROOT / member / "Cargo.toml" for member in members):
        name, wanted = needed(manifest)
        if name not in fuzz:
            continue
        for missing in sorted(wanted - fuzz[name]):
            print(f"fuzz/Cargo.lock: {name} lacks {missing}")
            wrong += 1
        for stale in sorted(fuzz[name] - workspace[name]):
            print(f"fuzz/Cargo.lock: {name} has {stale}, which it no longer depends on")
            wrong += 1
    print(f"{len(fuzz)} crates in fuzz/Cargo.lock, {wrong} wrong dependencies")
    return 1 if wrong else 0


sys.exit(main())
