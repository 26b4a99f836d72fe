"""Calls of left-out modules as ONNX files of their own, which ONNX Runtime runs: of a module's, for
a board without PyTorch; and of a network whose export holds all modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import helper

from edgekit.errors import ModelError, UsageError
from edgekit.network.left_modules import LeftPart, parts, with_left_modules
from edgekit.network.loading.load import load
from edgekit.network.writing import save
from edgekit.pytorch import exporters, keeping
from edgekit.pytorch.document import Exported
from edgekit.pytorch.left import LeftOut
from edgekit.pytorch.networks import network_of
from edgekit.pytorch.translation import export_network, left_module

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST = 1_800_000_000  # bytes of weights


def leave_in_file(exported: Exported, globs: Sequence[str]) -> Exported:
    """Leaves modules out of an exported file that holds them; each call becomes an ONNX file.

    Args:
        exported: The export, in the cache.
        globs: Paths of the modules to leave out.

    Returns:
        The export of a file without them, in the cache, too.

    Raises:
        UsageError: "torch.leave": the file names no modules, or a glob matches none.
    """
    whole = Path(exported.file)
    key = keeping.key("left", whole.parent.name, *globs)
    if (found := keeping.found(key)) is not None:
        return found
    cut, calls = with_left_modules(load(whole), globs)
    places = [one for one in parts(cut.proto) if isinstance(one, LeftPart)]
    with keeping.making(key) as folder:
        save(cut, folder / keeping.FILE)
        left = []
        for part, model in zip(places, calls, strict=True):
            if sum(one.nbytes for one in model.weights.values()) > _LARGEST:
                raise _too_large(part.module)
            _tidy(model.proto)
            name = f"left-{part.call}.onnx"
            save(model, folder / name)
            left.append(left_module(part, str(keeping.home(key) / name)))
        made = exported.model_copy(
            update={"file": str(keeping.home(key) / keeping.FILE), "left": left, "cached": False}
        )
        keeping.put(made, folder)
    return made


def left_file(left: LeftOut, part: LeftPart, tensors: Sequence[Tensor], release: str) -> bytes:
    """Returns the ONNX file of a left-out module's call, with its weights.

    Args:
        left: The modules that stay in PyTorch.
        part: The call.
        tensors: What the module gets in an example, in the order of ``part.inputs``.
        release: The board's TensorRT, which decides the opset.

    Returns:
        Its inputs and outputs are the call's, a tensor that the module takes twice once.

    Raises:
        UsageError: "compile.left": the module cannot be exported, or takes no tensor.
    """
    import torch

    call = left.calls[part.call]
    names = list(dict.fromkeys(part.inputs))

    class Alone(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = left.modules[call.module]

        def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
            return tuple(call.run(self.module, [given[names.index(one)] for one in part.inputs]))

    typed = dict(zip(part.inputs, call.typed(tensors), strict=True))
    try:
        network = network_of(Alone(), tuple(typed[name] for name in names), {}, {}, part.module)
        file = Path(export_network(network, release, None, None).file)
    except (ModelError, UsageError) as error:
        raise UsageError(
            f"the module stays in PyTorch and cannot become an ONNX file: {error.message}",
            code="compile.left", where=part.module,
            hint="a bundle holds no Python: name the modules inside that can be exported, or "
            "deploy the compiled parts and run this module beside them",
        ) from error  # fmt: skip
    if (file.parent / keeping.DATA).exists():
        raise _too_large(part.module)
    proto = onnx.load(file)
    exporters.rename(proto, names, part.outputs)
    _tidy(proto)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def _tidy(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        del node.metadata_props[:]  # where its Python code lies on this machine
        node.doc_string = ""
    # older ONNX Runtimes refuse a newer version, whatever the file uses of it
    proto.ir_version = helper.find_min_ir_version_for(proto.opset_import)


def _too_large(module: str) -> UsageError:
    return UsageError(
        "the module is left out and has more weights than an ONNX file holds (1.8 GB)",
        code="compile.left", where=module, hint="leave out less of the network",
    )  # fmt: skip
