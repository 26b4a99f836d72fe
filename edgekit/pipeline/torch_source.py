"""PyTorch modules as arguments instead of a model: they are exported first, and the function works
on the ONNX file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import EdgekitError, UsageError
from edgekit.network.part import ModelPart
from edgekit.network.source import has_torch_ending, is_factory

if TYPE_CHECKING:
    from edgekit.pytorch.document import Exported

# keys of "model" for the export of a network
_EXPORT = ("inputs", "exporter", "trust", "leave")


@dataclass(frozen=True)
class TorchSource:
    """The exported file and keys that replace a PyTorch network.

    Attributes:
        exported: The ONNX file of the network.
        options: The configuration's keys for that file.
    """

    exported: Exported
    options: Mapping[str, Any]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on how the network was exported."""
        return (self.exported.words(), *self.exported.notes)


def from_torch(
    source: Any, args: Any, kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> TorchSource | None:
    """Exports a PyTorch network; returns None for a source that a configuration accepts.

    Args:
        source: A module or a program of ``torch.export``; or, with an example, a path or factory.
        args: The example's positional arguments.
        kwargs: The example's keyword arguments.
        options: The configuration's keys, and ``jetpack``.

    Raises:
        UsageError: An example for a configuration, or no target.
        EdgekitError: As raised by ``export``.
    """
    # a tensor alone is also an example, and PyTorch may refuse its truth value
    example = bool(kwargs) or not (isinstance(args, tuple | list) and not args)
    named = isinstance(source, str | os.PathLike)
    given = dict(options)
    sizes = given.pop("dynamic_shapes", None)
    # `export` has the error for dynamic_shapes of a file or factory
    refused = (
        bool(sizes) and named and (is_factory(str(source)) or has_torch_ending(Path(str(source))))
    )
    # by name: importing PyTorch takes seconds, and most callers give a path
    modules = {base.__module__.partition(".")[0] for base in type(source).__mro__}
    if not example and not refused and (named or "torch" not in modules):
        return None
    from edgekit.config.loader import Config, config_name
    from edgekit.pytorch.export import export, release_for

    if isinstance(source, Config):
        raise UsageError(
            "a configuration takes no example inputs",
            code="torch.inputs",
            hint="give sizes in model.inputs, or the module instead of the configuration",
        )
    target = given.get("target")
    if target is None:
        raise UsageError(
            "a PyTorch network needs a target", hint="edgekit.list_targets() lists the boards"
        )
    part = given.pop("model", None) or {}
    part = dict(part._asdict() if isinstance(part, ModelPart) else part)
    how = {key: part.pop(key) for key in _EXPORT if part.get(key)}
    release = release_for(str(target), given.get("tensorrt"), given.get("jetpack"))
    exported = export(source, args, kwargs, release=release, dynamic_shapes=sizes, **how)
    if exported.dimensions and not (part.get("shapes") or part.get("dimensions")):
        part["dimensions"] = exported.dimensions
    elif exported.dimensions:
        _check_sizes(exported, str(target), part)
    given["model"] = part or None
    if given.get("name") is None:
        made_of = str(source) if named else exported.source.rpartition(".")[2]
        given["name"] = config_name(made_of)
    return TorchSource(exported, given)


def _check_sizes(exported: Exported, target: str, part: Mapping[str, Any]) -> None:
    """Refuses sizes of a configuration's ``model`` that a network was not exported for."""
    from edgekit.config.error_places import set_place
    from edgekit.config.loader import open_config
    from edgekit.network.loading.load import file_inputs
    from edgekit.network.shape_requests import refuse_outside_export, shape_request

    sizes = {key: part.get(key) for key in ("shapes", "dimensions", "batch")}
    config = open_config(exported.file, target=target, model=sizes)
    inputs = file_inputs(Path(exported.file))
    try:
        section = config.file.model
        refuse_outside_export(shape_request(section, inputs), inputs, exported.dimensions, section)
    except EdgekitError as error:
        set_place(error, config)
        raise


def with_model_keys(
    options: Mapping[str, Any], leave: Sequence[str] = (), inputs: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Returns a configuration's keys with those of ``model`` that are arguments of functions.

    Args:
        options: The keys.
        leave: Globs of the modules that are left out.
        inputs: Sizes of the inputs: ``{"x": "1x3x224x224:float32"}``.
    """
    own = {"leave": [leave] if isinstance(leave, str) else list(leave or ()), "inputs": inputs}
    own = {key: value for key, value in own.items() if value}
    if not own:
        return dict(options)
    part = options.get("model") or {}
    given = dict(part._asdict() if isinstance(part, ModelPart) else part)
    return {**options, "model": {**given, **own}}
