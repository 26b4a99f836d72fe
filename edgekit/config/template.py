"""The commented configuration that `edgekit init` writes for a model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.detection.recognise import recognise
from edgekit.detection.recognised import Recognised
from edgekit.errors import EdgekitError, UsageError
from edgekit.files import write_text
from edgekit.network.loading.load import file_metadata, load, open_inputs, proposed_sizes
from edgekit.network.source import parse_builtin
from edgekit.quantize.data.preparation import head_pictures
from edgekit.removed import FormerDict
from edgekit.targets.loader import get
from edgekit_device.detection.head import Head
from edgekit_device.protocol.codec import choice, document, long_text, member

_TEMPLATE = """\
# Made by edgekit init; every key is described in docs/config.md.
version: 1
name: {name}
model:
  {model}{shapes}{head}
target: {target}          # edgekit targets lists the boards
precision: int8           # int8, fp16 or fp32
placement:
  objective: latency      # latency, throughput, period, energy or gpu_time
  dla_cores: [0]          # [] keeps everything on the GPU
  # bounds: {{latency_us: 2000}}
{data}
# deploy:
#   boards:
#     - {{name: lab, host: 192.0.2.7, user: edgekit, host_key: "SHA256:..."}}
#   sign_with: ~/.ssh/id_ed25519
"""

_DATA = """\
# calibration: {data: images/, preset: imagenet, method: auto}  # synthetic inputs when absent
# accuracy: {metric: cosine, min: 0.99}"""
_PICTURES = """\
# calibration: {{data: images/, method: auto}}  # synthetic inputs when absent
#   pictures are prepared as those of {name}: {options}
# accuracy: {{metric: boxes, min: 0.95}}
# detection: {{score: 0.25, iou: 0.45}}"""


@document(frozen=True)
class Initial(FormerDict):
    """An ``edgekit.init/1``: the configuration that was written."""

    path: str = member(long_text)
    schema: str = member(choice("edgekit.init/1"), default="edgekit.init/1")


def write_template(
    model: str,
    target: str,
    output: Path | None = None,
    *,
    batch: int | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes a configuration for ``model`` and returns its path.

    If edgekit recognises the model's detection head, the configuration cuts the network at the
    head's raw maps (``model.head: auto``).

    Args:
        model: An ONNX file, or "builtin:NAME".
        target: A board's name.
        output: The file; NAME.yaml in the current folder if None.
        batch: The batch if the file leaves it open; 1 if None.
        overwrite: Replace an existing file.

    Raises:
        UsageError: An unknown board, or the file exists.
        ModelError: The model cannot be read.
        EnvironmentLack: The file cannot be written.
    """
    board = get(target)
    given = parse_builtin(model)
    stem = Path(given[0] if given else model).stem.lower()
    name = re.sub(r"[^a-z0-9._-]+", "-", stem).strip("._-")[:64] or "model"
    path = output or Path(f"{name}.yaml")
    shapes, head, data = "", "", _DATA
    if given is not None:
        source = f"builtin: {_yaml_scalar(given[0])}" + (
            f"\n  seed: {given[1]}" if given[1] else ""
        )
    else:
        file = Path(model)
        # relative to the configuration, so that both can be moved together; realpath, since ".."
        # after a link leads elsewhere
        relative = Path(os.path.relpath(os.path.realpath(file), path.resolve().parent))
        source = f"onnx: {_yaml_scalar(relative.as_posix())}"
        shapes, sizes = _open_shapes(file, batch)
        found = _recognised_head(file, sizes)
        if found is not None:
            usual = head_pictures(found)
            head = f"\n  head: auto              # {found.family}: decoded after the network"
            data = _PICTURES.format(name=usual.name, options=usual.yaml)
    if batch is not None and not shapes:
        raise UsageError(
            f"the batch cannot be {batch}: the model has fixed sizes",
            code="model.batch",
            where=model,
            hint="export the model with a dynamic batch, or leave --batch out",
        )
    # before `path.exists()`, whose hint --force would destroy the model
    if given is None and os.path.realpath(path) == os.path.realpath(model):
        raise UsageError(
            "the configuration would overwrite the model",
            code="output.same",
            where=str(path),
            hint="give another file",
        )
    if not path.parent.is_dir():
        hint = f"create it first: mkdir -p {path.parent}"
        raise UsageError("its folder does not exist", where=str(path), hint=hint)
    if path.exists() and not overwrite:
        raise UsageError("the file exists", where=str(path), hint="--force overwrites it")
    text = _TEMPLATE.format(
        name=name, model=source, shapes=shapes, head=head, data=data, target=board.name
    )
    write_text(path, text)
    return path


def _open_shapes(file: Path, batch: int | None) -> tuple[str, dict[str, list[int]]]:
    """Returns the ``batch`` if the file leaves only that open, else ``shapes`` for all sizes; and
    the shapes.
    """
    found, proposal = open_inputs(file, batch or 1), proposed_sizes(file)
    if proposal is None:
        return "", {}
    shapes = {}
    for name, proposed in proposal.shapes.items():
        # of unknown rank, all its sizes are unknown
        own = found[name] or (batch or 1, *[None] * (len(proposed) - 1))
        shapes[name] = [size or usual for size, usual in zip(own, proposed, strict=True)]
    if all(sizes and None not in sizes for sizes in found.values()):
        return f"\n  batch: {batch or 1}                # the file leaves the batch open", shapes
    entries = ", ".join(f"{_yaml_scalar(name)}: {sizes}" for name, sizes in shapes.items())
    why = f"# the file leaves these sizes open: set them ({proposal.rule})"
    return f"\n  {why}\n  shapes: {{{entries}}}", shapes


def _recognised_head(file: Path, shapes: Mapping[str, Sequence[int]]) -> Head | None:
    """Returns the head that edgekit recognises; None for a file that does not load without more
    settings.
    """
    try:
        model = load(file, shapes=shapes)
        found = recognise(model, file_metadata(file))
    except EdgekitError:
        return None
    return found.head if isinstance(found, Recognised) else None


def _yaml_scalar(text: str) -> str:
    """Returns ``text`` as a YAML scalar."""
    if re.fullmatch(r"[A-Za-z_./][A-Za-z0-9_./-]*", text) and text not in ("true", "false", "null"):
        return text

    return json.dumps(text)
