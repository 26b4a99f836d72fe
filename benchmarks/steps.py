"""How long edgekit takes: to start, for every step of a run, and for a run without new work.

    python benchmarks/steps.py [CONFIG]

Prints seconds on this machine; they are no test and depend on its other work. The cache is a
temporary one, so no result of earlier runs is reused.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from edgekit.config.loader import load_config
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline

_STARTS = 5


def main() -> None:
    """Measures and prints."""
    config = load_config(sys.argv[1] if sys.argv[1:] else "configs/resnet50-orin.yaml")
    starts = []
    for _ in range(_STARTS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "edgekit", "--help"], capture_output=True, check=True)
        starts.append(time.perf_counter() - began)
    print(f"edgekit --help       {min(starts):7.2f} s (best of {_STARTS})")
    with tempfile.TemporaryDirectory() as folder:
        for title in ("first run", "second run"):
            began = time.perf_counter()
            with Pipeline(config, out=Path(folder, "out"), cache=Cache(Path(folder))) as pipeline:
                steps = pipeline.run().document.steps
            print(f"{title:<20} {time.perf_counter() - began:7.2f} s")
            for step in steps:
                print(f"  {step.name:<18} {step.seconds:7.2f} s  {step.status}")


if __name__ == "__main__":
    main()
