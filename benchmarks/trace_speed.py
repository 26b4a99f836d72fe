"""Time and memory of `edgekit trace` on a large Nsight Systems export.

python benchmarks/trace_speed.py [KERNELS] writes an export with that many launches and kernels
(500,000 by default: a million rows) and prints the time and memory for its trace.
"""

from __future__ import annotations

import os
import resource
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from edgekit.pipeline.exports import TraceFiles, trace

MIB = 1 << 20


def write(path: Path, kernels: int) -> None:
    """Writes an export to the documented schema, in an order that is not that of time."""
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
        "CREATE TABLE EXPORT_META_DATA (name TEXT, value TEXT);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT,"
        " globalTid INTEGER, textId INTEGER, domainId INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,"
        " correlationId INTEGER, nameId INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,"
        " streamId INTEGER, correlationId INTEGER, demangledName INTEGER, shortName INTEGER);"
    )
    names = [(number, f"kernel_{number}") for number in range(200)]
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
    order = sorted(range(kernels), key=lambda n: n * 7919 % kernels)
    calls = ((1000 * n, 1000 * n + 400, 1 << 24 | 2, n + 1, n % 200) for n in order)
    db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", calls)
    work = ((1000 * n + 500, 1000 * n + 1400, 0, 7, n + 1, n % 200, n % 200) for n in order)
    db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)", work)
    db.commit()
    db.close()


def main() -> None:
    """Prints rows, seconds of processor time, and the peak of memory before and after."""
    kernels = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "large.sqlite", Path(folder) / "trace.json"
        child = os.fork()
        if not child:  # the time of writing is not counted
            write(path, kernels)
            os._exit(0)
        os.waitpid(child, 0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        start = time.process_time()
        document = trace(TraceFiles(nsys=(path,)), out)
        spent = time.process_time() - start
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        events = sum(document.events.values())
        print(
            f"{2 * kernels} rows of {path.stat().st_size / MIB:.0f} MiB: {events} events, "
            f"{out.stat().st_size / MIB:.0f} MiB, in {spent:.1f} s; "
            f"memory {before} MiB before, {after} MiB at its peak"
        )


if __name__ == "__main__":
    main()
