"""What trtexec refuses or does wrong, told before it runs.

From its own option parser and builder (samples/common/sampleOptions.cpp, sampleEngines.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.errors import BuildError
from edgekit.trt._releases import release
from edgekit.trt._trtexec_flags import Trtexec, flag_facts

__all__ = ["check"]


def check(engine: Mapping[str, Any], flags: tuple[str, ...], on: Trtexec) -> None:
    """Checks an engine and an attempt.

    Raises:
        BuildError: "trtexec.refuses".
    """
    typings = release(on.tensorrt).typings
    if engine["typing"] not in typings:
        _refuse(
            engine, f"TensorRT {on.tensorrt} builds no {engine['typing']}ly typed network",
            f"it builds {' and '.join(f'{typing}ly' for typing in typings)} typed ones",
        )  # fmt: skip
    if engine["typing"] == "weak" and "int8" in engine["precisions"] and not engine["calibration"]:
        _refuse(
            engine, "INT8 without a calibration cache: trtexec would make ranges up",
            "calibrate, or give a cache: edgekit calibrate",
        )  # fmt: skip
    if "REFIT_INDIVIDUAL" in flags and engine.get("refit_individual"):
        _refuse(
            engine, "trtexec cannot mark single weights as refittable",
            "build.refit: identical or any, or build with build.backend: tensorrt",
        )  # fmt: skip
    if engine["kind"] == "loadable":
        _standalone(engine)


def _standalone(engine: Mapping[str, Any]) -> None:
    if engine["device"] == "GPU":
        _refuse(engine, "a loadable runs on a DLA core, and none is named", "")
    if engine["gpu_fallback"]:
        _refuse(engine, "a DLA loadable has no GPU fallback", "build.mode: hybrid has it")
    allowed = flag_facts()["standalone"]
    for side in ("inputs", "outputs"):
        for tensor in engine[side]:
            legal = allowed[side].get(tensor["dtype"], ())
            if len(tensor["formats"]) != 1 or tensor["formats"][0] not in legal:
                given = " or ".join(tensor["formats"]) or "no format"
                _refuse(
                    engine,
                    f"the loadable's {side[:-1]} {tensor['name']} is {tensor['dtype']} in {given}",
                    "one format each: "
                    + "; ".join(f"{t}: {', '.join(f)}" for t, f in allowed[side].items()),
                )


def _refuse(engine: Mapping[str, Any], message: str, hint: str) -> None:
    raise BuildError(message, code="trtexec.refuses", where=str(engine["key"]), hint=hint)
