"""``onnx_file``: an ONNX file as an exported network: its inputs are its arguments, its outputs its
results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from edgekit.compiled.calls import bind_values, named_values
from edgekit.errors import UsageError
from edgekit.network.files import read
from edgekit.network.loading.load import load
from edgekit.network.protos import dtype_name, reads
from edgekit.network.source import foreign_format
from edgekit.network.writing import save
from edgekit.pytorch import export_cache
from edgekit.pytorch.chain import array
from edgekit.pytorch.document import Arguments, Exported, Structure, Tensor
from edgekit.pytorch.export import digests, leave_in_file, value_range
from edgekit.pytorch.exporters import read_opset
from edgekit.pytorch.signature import size_in

if TYPE_CHECKING:
    from edgekit.pytorch.signature import Values


def is_onnx(source: object) -> bool:
    """Returns True if a source is the path of an ONNX file (a file of no other known format)."""
    if not isinstance(source, str | Path) or not Path(source).is_file():
        return False
    try:
        return foreign_format(Path(source)) is None
    except OSError:  # the code that opens it reports the error
        return True


def onnx_file(
    path: Path,
    args: Any,
    kwargs: Mapping[str, Any],
    *,
    release: str,
    inputs: Mapping[str, str],
    leave: Sequence[str],
) -> Exported:
    """Returns an ONNX file as an export; its file is a copy with static shapes in the cache.

    Args:
        path: The file.
        args: An example of its inputs in order: tensors or NumPy arrays, or a single tensor or
            array.
        kwargs: Inputs of the example by name.
        release: The board's TensorRT.
        inputs: Sizes instead of an example: ``{"x": "1x3x224x224"}``.
        leave: Globs of modules, for a file with module names: each call becomes an ONNX file.

    Raises:
        ModelError: "model.*": the file is invalid or not supported.
        UsageError: "torch.inputs": the example does not fit; "torch.leave".
    """
    graph = read(path)[0].graph
    constants = {weight.name for weight in graph.initializer}
    # ONNX up to IR version 3 lists initializers as inputs as well
    declared = {value.name: value for value in graph.input if value.name not in constants}
    given = tuple(args) if isinstance(args, list | tuple) else (args,)
    example = named_values(list(declared), given, kwargs)
    known = {name: size_in(name, text) for name, text in inputs.items()}
    sizes = {name: shape for name, (shape, _) in known.items()}
    sizes |= {
        name: tuple(value.shape) for name, value in example.items() if hasattr(value, "shape")
    }
    used = {name for node in graph.node for name in reads(node)}
    # loading drops unused inputs; an unknown name stays, so that loading refuses it
    read_sizes = {
        name: shape for name, shape in sizes.items() if name in used or name not in declared
    }
    model = load(path, shapes=read_sizes)
    key = export_cache.key("onnx", str(path), release, model.digest)
    exported = export_cache.find(key)
    if exported is None:
        with export_cache.new_entry(key) as folder:
            save(model, folder / export_cache.FILE)
            structure, weights = digests(onnx.load(folder / export_cache.FILE))
            names = [value.name for value in model.proto.graph.output]
            items = [Structure(kind="tensor", name=name) for name in names]
            exported = Exported(
                schema="edgekit.export/1",
                file=str(export_cache.entry_folder(key) / export_cache.FILE),
                source=str(path),
                kind="onnx",
                torch=None,
                exporter=None,
                opset=read_opset(model.proto),
                tensorrt=release,
                # set below: sizes and ranges belong to the call, the cache entry to the file
                inputs=[],
                outputs=[_tensor(value) for value in model.proto.graph.output],
                arguments=Arguments(parameters=list(declared), constants={}),
                result=items[0] if len(items) == 1 else Structure(kind="tuple", items=items),
                structure=structure,
                weights=weights,
                agreement=None,
                cached=False,
                notes=list(model.notes),
            )
            export_cache.write_record(exported, folder)
    if leave:
        exported = leave_in_file(exported, leave)
    static = {value.name: value for value in model.proto.graph.input}
    taken = [
        _tensor(static.get(name, value), sizes.get(name), example.get(name))
        for name, value in declared.items()
    ]
    for tensor in taken:
        kind = known.get(tensor.name, ((), ""))[1]
        if kind not in ("", tensor.type):
            raise UsageError(
                f"input {tensor.name!r} is {tensor.type}, and not {kind}",
                code="torch.inputs",
                where=tensor.name,
                hint="leave the type out",
            )
    exported = exported.model_copy(update={"inputs": taken})
    # only now: the load resolved the open sizes
    if example:
        bind_values(exported, given, kwargs)
    return exported


def _tensor(
    value: onnx.ValueInfoProto,
    shape: Sequence[int] | None = None,
    example: Values | None = None,
) -> Tensor:
    """Returns an input or output; an open size of an unused input is 1."""
    known = value.type.tensor_type
    kind = dtype_name(known.elem_type)
    return Tensor(
        name=value.name,
        shape=[dim.dim_value or 1 for dim in known.shape.dim] if shape is None else list(shape),
        type=kind,
        torch_type=kind,
        range=value_range(array(example)) if hasattr(example, "dtype") else None,
    )
