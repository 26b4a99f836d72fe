"""Measures activation ranges: one pass over the data with ONNX Runtime in FP32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError, ModelError, UsageError
from edgekit.quantize._feeds import check_feed
from edgekit.quantize._groups import share
from edgekit.quantize._histogram import Histogram
from edgekit.quantize._methods import LEVELS, METHODS, amax_of
from edgekit.quantize._scales import make_scales

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model, Network
    from edgekit.quantize._types import Scales

__all__ = ["calibrate"]

# activations held at once; above it the outputs are taken in several sessions
_CHUNK_BYTES = 1 << 30
_BYTES_PER_FLOAT = 4


def calibrate(
    model: Model,
    network: Network,
    data: Iterable[Mapping[str, np.ndarray]],
    *,
    method: str = "entropy",
    describe: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Scales:
    """Measures a symmetric INT8 scale (amax / 127) for every float tensor of the network.

    Args:
        model: The FP32 model.
        network: Its layers; tensors that pooling, concatenation and shuffles tie together get
            the union of their ranges.
        data: Inputs by name, one dict a run; read once, never held.
        method: "entropy" (IInt8EntropyCalibrator2), "minmax", "percentile" (99.99) or "mse".
        describe: What the data is, for people.
        progress: Called with (runs done, runs in all or 0 when unknown).

    Returns:
        Scales by tensor name; a tensor that is always zero gets 1/127.

    Raises:
        DataError: No data, inputs that do not fit, or a NaN or infinity in a tensor (named).
        UsageError: Unknown method.
        ModelError: ONNX Runtime cannot run the model.
    """
    if method not in METHODS:
        raise UsageError(
            f"unknown calibration method {method!r}",
            code="calibration.method",
            hint=f"use one of {', '.join(METHODS)}",
        )
    names = _float_tensors(model, network)
    histograms = {name: Histogram() for name in names}
    count = 0
    total = len(data) if isinstance(data, Sized) else 0
    sessions: list[tuple[Any, list[str]]] = []
    with ThreadPoolExecutor(max_workers=2) as pool:
        for feed in data:
            checked = check_feed(feed, model, where=f"calibration sample {count}")
            sessions = sessions or _sessions(model, network, names)
            for name in checked:
                if name in histograms:
                    _add_all(pool, histograms, [name], [checked[name]], count)
            for session, outputs in sessions:
                _add_all(pool, histograms, outputs, _run(session, outputs, checked), count)
            count += 1
            if progress is not None:
                progress(count, total)
        if count == 0:
            raise DataError(
                "there is no calibration data",
                code="calibration.empty",
                hint="give at least one sample; a few hundred representative ones are usual",
            )
        amax = dict(
            zip(names, pool.map(lambda n: amax_of(histograms[n], method), names), strict=True)
        )
    shared = share(network, amax)
    scales = {name: (value or 1.0) / LEVELS for name, value in shared.items()}
    return make_scales(scales, method=method, data=describe or f"{count} samples")


def _float_tensors(model: Model, network: Network) -> list[str]:
    """Returns the float tensors that an ONNX node or the caller writes, in graph order."""
    written = {name for node in model.proto.graph.node for name in node.output}
    written.update(value.name for value in model.proto.graph.input)
    return [
        name
        for name, tensor in network.tensors.items()
        if tensor.dtype in ("float32", "float16") and name in written
    ]


def _sessions(model: Model, network: Network, names: list[str]) -> list[tuple[Any, list[str]]]:
    from edgekit.network import session

    inputs = {value.name for value in model.proto.graph.input}
    chunks: list[list[str]] = []
    room = 0
    for name in names:
        if name in inputs:
            continue
        need = network.tensors[name].elements * _BYTES_PER_FLOAT
        if not chunks or need > room:
            chunks.append([])
            room = _CHUNK_BYTES
        chunks[-1].append(name)
        room -= need
    return [(session(model, outputs=chunk), chunk) for chunk in chunks]


def _run(session: Any, outputs: list[str], feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    try:
        return list(session.run(outputs, dict(feed)))
    except Exception as error:  # onnxruntime raises a family of pybind types without a common base
        raise ModelError(
            f"ONNX Runtime could not run the model: {_first_line(error)}",
            code="model.run",
            hint="check that the model runs in ONNX Runtime on its own",
        ) from error


def _add_all(
    pool: ThreadPoolExecutor,
    histograms: dict[str, Histogram],
    names: list[str],
    arrays: list[np.ndarray],
    sample: int,
) -> None:
    results = pool.map(
        lambda pair: histograms[pair[0]].add(pair[1]), zip(names, arrays, strict=True)
    )
    for name, fine in zip(names, results, strict=True):
        if not fine:
            raise DataError(
                f"tensor {name!r} has NaN or infinite values in calibration sample {sample}",
                code="calibration.nonfinite",
                where=name,
                hint="check the input's preprocessing (mean, std, range) and the weights",
            )


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
