"""Asks NVIDIA's builder for refittable and stripped plans, which need a GPU.

    python scripts/check_refit.py make FOLDER           # any machine: typed models and requests
    python scripts/check_refit.py build FOLDER WHEELS   # a machine with an NVIDIA GPU

WHEELS is a folder with the unpacked wheels of TensorRT for RTX (scripts/_parser_wheels.py). The
second command needs neither edgekit nor its packages, only edgekit_device and NumPy. Each line is
a build: the flags that were asked for and held, and the plan's bytes. Exit status 1 if a build
fails or loses a flag, or if a stripped plan is no smaller than its plan with weights. No plan is
loaded: TensorRT for RTX refuses the GPUs of servers.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edgekit_device.build.attempt import BuilderLog
from edgekit_device.build.builder import build_attempt
from edgekit_device.build.request import Attempt, EngineSpec
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import read, write

_NETWORKS = ("mobilenet_v3_small", "yolo11n")
_FLAGS = (
    (),
    ("REFIT",),
    ("REFIT_IDENTICAL",),
    ("STRIP_PLAN", "REFIT_IDENTICAL"),
    ("STRIP_PLAN", "REFIT"),
    ("REFIT_INDIVIDUAL",),
)


def make_requests(folder: Path) -> None:
    """Writes typed models and their requests."""
    from _parser_builds import _make_spec, type_model

    from edgekit.network.loading.load import canonical
    from edgekit.network.writing import save
    from tests.exports import load

    folder.mkdir(parents=True, exist_ok=True)
    for name in _NETWORKS:
        for precision in ("fp16", "int8"):
            model = type_model(canonical(load(name), None), precision)
            save(model, folder / f"{name}-{precision}.onnx")
            weights = [node for node in model.graph.nodes() if node.op in ("Conv", "Gemm")]
            spec = replace(
                _make_spec(model), refit_individual=tuple(sorted(weights[0].inputs[1:2]))
            )
            text = json.dumps(write(spec))
            (folder / f"{name}-{precision}.json").write_text(text)


def build_all(folder: Path, wheels: Path) -> int:
    """Builds every model with every set of flags; returns the number of failures."""
    sys.path.insert(0, str(wheels))
    trt = importlib.import_module("tensorrt_rtx_bindings")
    log, failed = BuilderLog(trt, lambda line: None), 0
    print(f"TensorRT for RTX {trt.__version__}")
    for path in sorted(folder.glob("*.onnx")):
        spec = read(EngineSpec, json.loads(path.with_suffix(".json").read_text()))
        sizes: dict[tuple[str, ...], int] = {}
        for flags in _FLAGS:
            marked = spec.refit_individual if "REFIT_INDIVIDUAL" in flags else ()
            try:
                built = build_attempt(
                    trt,
                    log,
                    replace(spec, refit_individual=marked),
                    Attempt(flags, ""),
                    model=path,
                    cache=None,
                    timing=None,
                    on_progress=lambda done, total, text: None,
                    cancelled=lambda: False,
                )
            except DeviceError as error:
                failed += 1
                print(f"FAILED {path.stem} {flags}: {error.code}: {error.message[:200]}")
                continue
            size = sizes[flags] = len(built.data)
            right = set(flags) <= set(built.flags)
            if flags[:1] == ("STRIP_PLAN",):
                right = right and size < sizes[flags[1:]]
            failed += not right
            words = f"{path.stem} {', '.join(flags) or 'no flag'}: {size:,} bytes"
            print(f"{'ok    ' if right else 'FAILED'} {words}; held {built.flags}; {built.notes}")
    return failed


def main() -> int:
    match sys.argv[1:]:
        case ["make", folder]:
            make_requests(Path(folder))
            return 0
        case ["build", folder, wheels]:
            return int(build_all(Path(folder), Path(wheels)) > 0)
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
