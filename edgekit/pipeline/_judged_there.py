"""What travels with a bundle so that a board can judge it: samples, and what a rebuild reads."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._files import regular

if TYPE_CHECKING:
    from edgekit.bundle import Rebuild, Samples
    from edgekit.network import Model
    from edgekit.pipeline._work import Work
    from edgekit.trt import Request

__all__ = ["health_key", "rebuild_of", "samples_of"]

# of max|a-b| / max|b|: another TensorRT takes other kernels, which round elsewhere
_RELATIVE = 0.02


def health_key(work: Work) -> list[Any]:
    """Returns what of the configuration's ``deploy.health`` is in the bundle."""
    health = work.file.deploy.health
    key = [health.samples, work.file.accuracy.metric, health.accuracy_min, health.on_change]
    if health.labels is not None:
        # one that cannot be read is told when it is read
        with suppress(OSError):
            key.append(hashlib.sha256(regular(Path(health.labels)).read_bytes()).hexdigest())
    return key


def samples_of(work: Work, model: Model | None = None) -> Samples | None:
    """Returns the first calibration inputs with the FP32 network's outputs; None for none.

    Args:
        work: The configuration's work.
        model: The network, with other weights; the one that came, before rewrites, when None.

    Raises:
        DataError: The inputs cannot be read.
    """
    from edgekit.bundle import Samples
    from edgekit.network import session
    from edgekit.pipeline._labels import read_labels
    from edgekit_device._manifest_health import LABELLED

    health = work.file.deploy.health
    if not health.samples:
        return None
    names, tensors = list(work.network.outputs), work.network.tensors
    wanted = work.network.inputs
    fp32 = session(model or work.source, outputs=names)
    cases = []
    for inputs in islice(work.inputs(), health.samples):
        feed = {name: inputs[name] for name in wanted}
        outputs = dict(zip(names, fp32.run(names, feed), strict=True))
        cases.append(
            (feed, {n: a.astype(tensors[n].dtype, copy=False) for n, a in outputs.items()})
        )
    labels = None
    if health.labels is not None:
        labels = read_labels(Path(health.labels), len(cases), tensors[names[0]].shape)
    return Samples(
        metric=work.file.accuracy.metric if labels is None else LABELLED,
        source=f"the first {len(cases)} of {work.inputs_text}",
        synthetic=work.file.calibration.data is None,
        least=health.accuracy_min,
        cases=cases,
        labels=labels,
    )


def rebuild_of(work: Work, request: Request | None) -> Rebuild | None:
    """Returns what a board needs to build a request's engines again; None where it may not.

    The reference backend's engines are ONNX, which any ONNX Runtime loads: nothing of them is built
    again on a board.

    Args:
        work: The configuration's work.
        request: What a board was asked; None where none built.
    """
    from edgekit.bundle import Rebuild

    if request is None or work.file.deploy.health.on_change != "rebuild":
        return None
    blobs = [request.blobs[digest] for digest in sorted(request.blobs)]
    # the bytes that the request's own digest is of
    text = json.dumps(request.document, sort_keys=True, separators=(",", ":"))
    return Rebuild(text.encode(), blobs, _RELATIVE)
