"""A call of a left-out module as an ONNX file of its own, for a board without PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import helper

from edgekit.errors import ModelError, UsageError
from edgekit.network.left_modules import LeftModule
from edgekit.pytorch import exporters, keeping
from edgekit.pytorch.left import LeftOut
from edgekit.pytorch.networks import network_of
from edgekit.pytorch.translation import export_network

if TYPE_CHECKING:
    from torch import Tensor


def left_file(left: LeftOut, part: LeftModule, tensors: Sequence[Tensor], release: str) -> bytes:
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
        raise UsageError(
            "the module stays in PyTorch and has more weights than an ONNX file holds (1.9 GB)",
            code="compile.left", where=part.module, hint="leave out less of the network",
        )  # fmt: skip
    proto = onnx.load(file)
    exporters.rename(proto, names, part.outputs)
    for node in proto.graph.node:
        del node.metadata_props[:]  # where its Python code lies on this machine
        node.doc_string = ""
    # older ONNX Runtimes refuse a newer version, whatever the file uses of it
    proto.ir_version = helper.find_min_ir_version_for(proto.opset_import)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data
