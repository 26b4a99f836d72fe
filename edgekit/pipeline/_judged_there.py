"""What travels with a bundle so that a board can judge it: samples."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._files import regular

if TYPE_CHECKING:
    from edgekit.bundle import Samples
    from edgekit.network import Model
    from edgekit.pipeline._work import Work

__all__ = ["health_key", "samples_of"]


def health_key(work: Work) -> list[Any]:
    """Returns what of the configuration's ``deploy.health`` is in the bundle."""
    health = work.file.deploy.health
    key = [health.samples, work.file.accuracy.metric, health.accuracy_min]
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
