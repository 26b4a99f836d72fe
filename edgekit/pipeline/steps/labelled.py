"""How many labelled inputs the build classifies as they are labelled, beside FP32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import DataError
from edgekit.files import read_file
from edgekit.network.streaming import grouped
from edgekit.pipeline.cache import identity_of_path
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.accuracy import artefacts, build_key
from edgekit.pipeline.steps.calibrate import inputs_identity
from edgekit.pipeline.steps.load import source
from edgekit.pipeline.steps.rewrite import model
from edgekit.reference.accuracy import Float32
from edgekit.reference.run import Runner
from edgekit_device.arrays.npz import read_npz
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import document, member, text

if TYPE_CHECKING:
    from pathlib import Path

    from edgekit.network.model import Model

LABELS = "labels"
_MOST_BYTES = 1 << 30


@document(frozen=True)
class LabelledResult:
    """How many labelled inputs are classified right.

    Attributes:
        file: The file's name.
        count: Inputs.
        right: Those whose largest value of the first output is at the label, as built.
        right_in_fp32: The same of the FP32 network.
    """

    file: str = member(text())
    count: int = member(fields.count)
    right: int = member(fields.count)
    right_in_fp32: int = member(fields.count)

    @property
    def words(self) -> str:
        """Returns it in a sentence."""
        return (
            f"{self.right} of {self.count} labels of {self.file} right as built, "
            f"{self.right_in_fp32} in FP32"
        )


def check_labelled(context: Context) -> None:
    """Refuses labelled inputs that are not there; the model is not needed for it.

    Raises:
        DataError: "data.labels".
    """
    if context.file.accuracy.labelled is not None:
        _read(context.config.resolve(context.file.accuracy.labelled))


def check_labelled_fits(context: Context) -> None:
    """Refuses labelled inputs that do not fit the model; the rewrites keep its inputs.

    Raises:
        DataError: "data.labels".
    """
    if context.file.accuracy.labelled is not None:
        _fitting(context.config.resolve(context.file.accuracy.labelled), source(context))


@computed()
def labelled_result(context: Context) -> LabelledResult | None:
    """Returns how many of the configuration's labelled inputs are right; None without any.

    Raises:
        DataError: "data.labels": they do not fit the network.
    """
    named = context.file.accuracy.labelled
    if named is None:
        return None
    path = context.config.resolve(named)

    def compute() -> LabelledResult:
        network = model(context)
        arrays, labels = _fitting(path, network)
        runner, reference = Runner(artefacts(context)), Float32(network)
        output = network.graph.outputs[0]
        right = in_fp32 = 0
        feeds = (
            {name: value[number : number + 1] for name, value in arrays.items()}
            for number in range(len(labels))
        )
        number = 0
        for group in grouped(feeds, [runner, reference]):
            real = reference.outputs((output,), number, group)
            for made, (value,) in zip(runner.run_group(group), real, strict=True):
                label = int(labels[number])
                right += int(np.argmax(made[output])) == label
                in_fp32 += int(np.argmax(value)) == label
                number += 1
                context.update(number, len(labels), f"labelled input {number}")
        return LabelledResult(path.name, len(labels), right, in_fp32)

    identity = identity_of_path(path), inputs_identity(context)
    return context.stored(LabelledResult, "labelled", compute, build_key(context), *identity)


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        arrays = read_npz(read_file(path, _MOST_BYTES))
    except (OSError, ValueError, DeviceError) as error:
        raise _wrong(path, f"cannot be read: {error}") from error
    if LABELS not in arrays or arrays[LABELS].dtype.kind not in "iu":
        raise _wrong(path, f"has no array {LABELS!r} of whole numbers")
    return arrays


def _fitting(path: Path, network: Model) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
    """The inputs by name and the labels, of as many rows."""
    arrays, graph = _read(path), network.graph
    labels = arrays.pop(LABELS).reshape(-1)
    if set(arrays) != set(graph.inputs):
        raise _wrong(path, f"has {', '.join(arrays) or 'no inputs'}")
    for name, value in arrays.items():
        row = (len(labels), *graph.shape(name)[1:])
        if graph.shape(name)[:1] != (1,) or (value.shape, value.dtype.name) != (
            row, graph.dtype(name),
        ):  # fmt: skip
            raise _wrong(
                path,
                f"has {name!r} as {value.dtype} {list(value.shape)}, and the input is "
                f"{graph.dtype(name)} {list(graph.shape(name))}",
            )
    return arrays, labels


def _wrong(path: Path, text: str) -> DataError:
    return DataError(
        f"the file of labelled inputs {text}",
        code="data.labels",
        where=str(path),
        hint=f"an .npz with {LABELS!r} (whole numbers), and for each input of the network (of a "
        "batch of 1) an array with one row a label",
    )
