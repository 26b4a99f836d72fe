"""The lines of ``edgekit doctor`` about what builds and runs engines: TensorRT, CUDA, DLA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgekit.pipeline._doctor_check import Check

__all__ = ["cuda", "dla", "tensorrt"]


def tensorrt(probe: Mapping[str, Any]) -> Iterator[Check]:
    """TensorRT's libraries, Python modules and trtexec."""
    trt = probe["tensorrt"]
    python = trt["python"]
    jetson = bool(probe["l4t"])
    if trt["full"]:
        yield Check("tensorrt", "TensorRT", "ok", trt["full"])
    else:
        yield Check(
            "tensorrt",
            "TensorRT",
            "missing" if jetson else "warn",
            "libnvinfer not found",
            "sudo apt-get install nvidia-jetpack" if jetson else "engines cannot be built here",
        )
    if python["full"]:
        yield Check("tensorrt.python", "TensorRT for Python", "ok", python["full"])
    elif trt["full"]:
        yield Check(
            "tensorrt.python",
            "TensorRT for Python",
            "warn",
            "import tensorrt fails",
            "sudo apt-get install python3-libnvinfer; until then builds use trtexec",
        )
    for flavour in ("lean", "dispatch"):
        there = trt[flavour] or python[flavour]
        if there:
            yield Check(f"tensorrt.{flavour}", f"TensorRT {flavour} runtime", "ok", there)
        elif trt["full"]:
            yield Check(
                f"tensorrt.{flavour}",
                f"TensorRT {flavour} runtime",
                "warn",
                "not there",
                "only engines of another TensorRT need it",
            )
    if probe["trtexec"]:
        yield Check("trtexec", "trtexec", "ok", probe["trtexec"]["path"])
    elif trt["full"]:
        yield Check(
            "trtexec", "trtexec", "warn", "not found", "sudo apt-get install libnvinfer-bin"
        )


def cuda(probe: Mapping[str, Any]) -> Iterator[Check]:
    """The driver and the GPU."""
    if probe["compute_capability"]:
        text = f"CUDA {probe['cuda'] or probe['cuda_driver']}, compute capability " + str(
            probe["compute_capability"]
        )
        yield Check("cuda", "CUDA", "ok", text)
    else:
        why = next((n for n in probe["notes"] if "CUDA driver" in n), "no driver answers")
        yield Check(
            "cuda",
            "CUDA",
            "missing" if probe["l4t"] else "warn",
            why,
            _cuda_fix(why) if probe["l4t"] else "",
        )


def _cuda_fix(why: str) -> str:
    if "cannot open shared object file" in why:
        return (
            "the driver's library is not there: sudo apt-get install nvidia-l4t-cuda; in a "
            "container, start it with --runtime nvidia"
        )
    return "is the account in the groups video and render?"


def dla(probe: Mapping[str, Any]) -> Iterator[Check]:
    """The DLA's cores, its compiler and cuDLA."""
    seen = probe["dla"]
    devices, cores = seen["devices"], seen["cores"]
    if not devices:
        if probe["l4t"]:
            yield Check("dla", "DLA", "ok", "this module shows none")
        return
    count = f"{len(devices)} in hardware"
    if cores:
        yield Check("dla", "DLA", "ok", f"{count}, {cores} for TensorRT")
    elif cores == 0:
        fix = "this TensorRT drives no DLA: edgekit targets shows which releases do"
        if seen["compiler"] is None:
            fix = (
                "libnvdla_compiler.so is missing: sudo apt-get install nvidia-l4t-dla-compiler "
                "(JetPack 6; JetPack 7.2 has none)"
            )
        yield Check("dla", "DLA", "missing", f"{count}, none for TensorRT", fix)
    else:
        yield Check(
            "dla",
            "DLA",
            "warn",
            f"{count}; TensorRT was not asked",
            "its Python module is needed for that",
        )
    if probe["cudla"]:
        yield Check("dla.cudla", "cuDLA", "ok", probe["cudla"])
    else:
        yield Check(
            "dla.cudla",
            "cuDLA",
            "warn",
            "libcudla not found",
            "standalone loadables need it; it comes with CUDA's package libcudla",
        )
