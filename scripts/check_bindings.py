#!/usr/bin/env python3
"""Checks the board's code and the carried API data against TensorRT's published bindings.

scripts/check_bindings.py [--cache FOLDER]

Downloads the bindings of every sampled release for this Python (from the index of pip's own
settings), imports each in a process of its own against empty substitute libraries, and checks that
every name, keyword and enum member that edgekit_device uses exists where it is used, that the
loader's logger and recorder can be derived from the real classes, and that tests/data/tensorrt_api
is true. Without a registry, a wheel for this Python or a C compiler it prints the reason and exits
with 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _bindings_rules import (
    Names,
    compare,
    find_missing,
    find_undeclared,
    find_wrong_calls,
    read_declared,
)
from _bindings_used import collect
from _bindings_wheels import WHEELS, Unavailable, fetch, read

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Runs the check; returns 1 if it finds a difference."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgekit-bindings"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=cache, help="keeps the unpacked wheels")
    options = parser.parse_args()
    used, uses = read_declared(ROOT), collect(ROOT)
    carried: dict[str, Names] = {}
    for release, _ in WHEELS:
        file = ROOT / "tests" / "data" / "tensorrt_api" / f"{release}.json"
        carried[release] = json.loads(file.read_text())["symbols"]
    wrong = find_undeclared(used, uses, carried.values())
    checked: list[str] = []
    for (release, flavour), requirement in WHEELS.items():
        try:
            found = read(fetch(requirement, options.cache), release, flavour, ROOT)
        except Unavailable as reason:
            print(f"bindings: skipped {release} {flavour}: {reason}")
            if not checked:
                break  # no registry: the others would wait in vain
            continue
        except RuntimeError as failed:
            wrong.append(str(failed))
            continue
        names = found["symbols"]
        here = carried[release]
        if flavour != "full":
            here = {name: entry for name, entry in here.items() if entry.get("lean")}
        faults = compare(here, names)
        faults += [f"lacks {name}" for name in find_missing(used, names, release, flavour)]
        faults += find_wrong_calls(used, uses, names, release, flavour)
        wrong += [f"{release} {flavour}: {fault}" for fault in faults]
        checked.append(f"{release} {flavour}")
    for line in wrong:
        print(f"bindings: {line}", file=sys.stderr)
    amount = sum(len(names) for part in ("full", "runtime") for names in used[part].values())
    if checked:
        print(f"bindings: {amount} names of TensorRT checked in: {', '.join(checked)}")
    else:
        print("bindings: skipped, no release was checked")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
