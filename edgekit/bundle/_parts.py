"""The parts of a manifest that come straight from what was built."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.bundle._types import Golden, blob_view
from edgekit.errors import BundleError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build import Segment, Weight
    from edgekit.network import Network, Tensor

__all__ = ["golden_cases", "golden_inputs", "segment_entry", "tensor_io", "weight_fields"]


def tensor_io(
    tensor: Tensor, layout: str = "LINEAR", strides: Sequence[int] | None = None
) -> dict[str, Any]:
    """Returns a manifest's input or output.

    Args:
        tensor: Name, shape and type.
        layout: TensorRT's format name.
        strides: Bytes by dimension; those of a dense C-order array when None.
    """
    if strides is None:
        import numpy as np

        step, found = np.dtype(tensor.dtype).itemsize, []
        for size in reversed(tensor.shape):
            found.append(step)
            step *= size
        strides = found[::-1]
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "format": layout,
        "strides": list(strides),
    }


def golden_inputs(
    network: Network, seed: int, ranges: Mapping[str, tuple[float, float]]
) -> dict[str, np.ndarray]:
    """Returns the inputs that a board generates for a golden vector of this seed and ranges."""
    from edgekit_device._golden import golden_inputs as generate
    from edgekit_device._types import TensorEntry

    entries = [
        TensorEntry(tensor.name, tensor.dtype, tensor.shape, "LINEAR", ())
        for tensor in (network.tensors[name] for name in network.inputs)
    ]
    return generate(entries, seed, dict(ranges))


def golden_cases(
    golden: Sequence[Golden], outputs: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Returns the manifest's golden cases, and their outputs by digest."""
    cases, blobs = [], {}
    for case in golden:
        results = {}
        for tensor in outputs:
            value = case.outputs[tensor["name"]]
            digest = hashlib.sha256(blob_view(value)).hexdigest()
            blobs[digest] = value
            results[tensor["name"]] = {
                "blob": digest, "dtype": str(value.dtype), "shape": list(value.shape),
            }  # fmt: skip
        cases.append({
            "seed": case.seed,
            "inputs": {
                name: {"low": float(low), "high": float(high)}
                for name, (low, high) in case.ranges.items()
            },
            "outputs": results,
            "tolerance": {"relative": float(case.relative)},
            **({} if case.lane is None else {"lane": case.lane}),
        })  # fmt: skip
    return cases, blobs


def segment_entry(segment: Segment) -> dict[str, Any]:
    """Returns a manifest's segment."""
    return {
        "index": segment.index,
        "device": segment.device,
        "engine": segment.engine,
        "inputs": list(segment.inputs),
        "outputs": list(segment.outputs),
        "layers": list(segment.layers),
    }


def weight_fields(weights: Mapping[str, Weight]) -> dict[str, dict[str, Any]]:
    """Returns the manifest's weights by name.

    Raises:
        BundleError: "bundle.invalid": a type that no bundle can hold.
    """
    import numpy as np

    return {
        name: {
            "digest": weight.digest,
            "dtype": weight.dtype,
            "shape": list(weight.shape),
            "bytes": int(np.prod(weight.shape, dtype=np.int64)) * _item_bytes(weight.dtype),
            "source": weight.source,
            "transform": weight.transform,
        }
        for name, weight in weights.items()
    }


def _item_bytes(dtype: str) -> int:
    from edgekit_device._types import WEIGHT_DTYPES

    if dtype not in WEIGHT_DTYPES:
        raise BundleError(
            f"weights of type {dtype} cannot be bundled",
            code="bundle.invalid",
            hint=f"use one of {', '.join(WEIGHT_DTYPES)}",
        )
    return WEIGHT_DTYPES[dtype]
