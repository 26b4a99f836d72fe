"""A segment that is a PyTorch module: its source file, a function that makes it, and its state as
safetensors. No data is unpickled, and only code from a signed manifest runs.
"""

from __future__ import annotations

import json
import sys
import types
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Tuple

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import (
    anything,
    choice,
    digest,
    document,
    mapping,
    member,
    parse_json,
    read,
    text,
)
from edgekit_device.protocol.manifest import SegmentEntry
from edgekit_device.trust.bundle import Checked, read_checked

if TYPE_CHECKING:
    import numpy as np

SCHEMA = "edgekit.python-part/1"
_INVALID = "engine.invalid"
_FACTORY = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
_MOST_HEADER = 100 << 20  # safetensors' own bound
#: PyTorch's names of types by those of safetensors.
DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


@document(frozen=True)
class PythonPart:
    """A module's call.

    Attributes:
        factory: "package.module:factory" where it was saved; the function is in the source file.
        source: The digest of the source file.
        state: The digest of the state, as safetensors.
        arguments: The arguments: {"tensor": name}, {"constant": value}, {"list": [...]},
            {"tuple": [...]} or {"dict": {name: ...}}.
        keywords: The keyword arguments by name, in the same form.
        takes: PyTorch's type of each tensor.
    """

    factory: str = member(text(_FACTORY, "package.module:factory"))
    source: str = member(digest)
    state: str = member(digest)
    arguments: Any = member(anything)
    keywords: Any = member(anything)
    takes: Mapping[str, str] = member(mapping(choice(*DTYPES.values())))
    schema: str = member(choice(SCHEMA), default=SCHEMA)


class PythonEngine:
    """A loaded module that runs as a segment."""

    def __init__(self, module: Any, part: PythonPart) -> None:
        self._module, self._part = module, part

    def run(self, segment: SegmentEntry, feeds: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        """Runs the segment: inputs by name to outputs by name.

        Raises:
            DeviceError: "engine.failed".
        """
        import numpy as np
        import torch

        try:
            tensors = {}
            for name, kind in self._part.takes.items():
                value = feeds[name]
                array = value.numpy() if hasattr(value, "numpy") else value
                # from_numpy warns about memory that cannot be written and refuses negative strides
                plain = torch.from_numpy(np.require(array, requirements=["C", "W"]))
                tensors[name] = plain.to(getattr(torch, kind))
            args = _build_value(self._part.arguments, tensors)
            kwargs = _build_value(self._part.keywords, tensors)
            with torch.no_grad():
                found = list(_tensors(self._module(*args, **kwargs)))
            arrays = [
                # NumPy has no bfloat16; float32 holds its values exactly
                (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy()
                for tensor in found
            ]
        except Exception as error:  # the module may raise any error
            raise DeviceError(
                "a segment failed: {}: {}".format(type(error).__name__, error),
                code="engine.failed",
                where="segment {} on {}".format(segment.index, segment.device),
            ) from error
        if len(arrays) != len(segment.outputs):
            raise _invalid(segment.engine, "it returns {} tensors".format(len(arrays)))
        return dict(zip(segment.outputs, arrays))  # noqa: B905 (Python 3.8)


def open_python(checked: Checked, segment: SegmentEntry) -> PythonEngine:
    """Makes the module of a segment.

    Args:
        checked: A bundle whose signature and manifest were checked.
        segment: Its engine is the digest of a ``PythonPart``.

    Raises:
        DeviceError: "engine.untrusted" for a bundle without a known signer; "engine.invalid";
            "board.no-torch"; "blob.*".
    """
    where = segment.engine
    # a segment is code: an accepted but unsigned bundle may bring data only
    if checked.signer is None:
        raise DeviceError(
            "the bundle has Python code, and no known key signed it",
            code="engine.untrusted",
            where=checked.files.where,
            hint="load one whose signer is in allowed_signers: trust_unsigned runs no code",
        )
    data = bytes(read_checked(checked, where))
    part = read(PythonPart, parse_json(data, where, _INVALID), where, code=_INVALID)
    for name in (part.source, part.state):
        if name not in checked.manifest.blobs:
            raise _invalid(where, "the manifest has no blob {}".format(name))
    source, state = (bytes(read_checked(checked, name)) for name in (part.source, part.state))
    return PythonEngine(make_module(part.factory, source, state, where), part)


def make_module(factory: str, source: bytes, state: bytes, where: str) -> Any:
    """Runs a source file and returns the module that its factory makes, with its state.

    Args:
        factory: "package.module:factory".
        source: The file, whose digest a signed manifest has.
        state: The state as safetensors.
        where: For messages.

    Raises:
        DeviceError: "engine.invalid" or "board.no-torch".
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise  # it is installed, but broken
        raise DeviceError(
            "PyTorch is needed for a Python part of this bundle and is not installed",
            code="board.no-torch",
            where=where,
            hint="python3 -m pip install torch",
        ) from error
    # named by its content, so that it differs from all other modules of this process
    module = types.ModuleType("edgekit_python_part_" + where[:16])
    # registered: dataclasses look up the module of their class there
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, "<{}>".format(factory), "exec"), module.__dict__)
        made = getattr(module, factory.partition(":")[2])()
        # not torch.load, which unpickles and so could run code from the state
        made.load_state_dict(dict(read_safetensors(state)))
    except DeviceError:
        raise
    except Exception as error:  # the code may raise any error
        raise _invalid(where, "{}: {}".format(type(error).__name__, error)) from error
    if not isinstance(made, torch.nn.Module):
        raise _invalid(where, "{} returns no torch.nn.Module".format(factory))
    return made.eval()


def read_safetensors(data: bytes) -> Iterator[Tuple[str, Any]]:
    """Yields names and tensors of a safetensors file
    (https://huggingface.co/docs/safetensors: eight bytes of the header's size, JSON, values).

    Raises:
        DeviceError: "engine.invalid".
    """
    import torch

    size = int.from_bytes(data[:8], "little")
    # before anything is parsed: the size comes from the file
    if size > min(_MOST_HEADER, len(data) - 8):
        raise _invalid("safetensors", "its header is cut off")
    values = memoryview(data)[8 + size :]
    header = parse_json(data[8 : 8 + size], "safetensors", _INVALID)
    for name, about in header.items():
        if name == "__metadata__":
            continue
        try:
            kind = getattr(torch, DTYPES[about["dtype"]])
            start, end = about["data_offsets"]
            count = 1
            for length in about["shape"]:
                count *= length
            part = values[start:end] if 0 <= start <= end <= len(values) else values[:0]
            if len(part) != count * torch.empty(0, dtype=kind).element_size():
                raise ValueError("its bytes are not those of its shape")
            # bytearray: frombuffer warns about read-only memory; it refuses empty buffers
            flat = torch.frombuffer(bytearray(part), dtype=kind) if count else torch.empty(0)
            tensor = flat.to(kind).reshape(about["shape"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise _invalid("safetensors", "tensor {!r}: {}".format(name[:80], error)) from error
        yield name, tensor


def write_safetensors(tensors: Mapping[str, Any]) -> bytes:
    """Returns tensors as a safetensors file; the same tensors give the same bytes."""
    import torch

    names = {torch_name: name for name, torch_name in DTYPES.items()}
    header: Dict[str, object] = {}
    parts: List[bytes] = []
    end = 0
    # sorted by name: the digest must not depend on the order of registration
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        kind = str(plain.dtype)[len("torch.") :]
        if kind not in names:
            raise _invalid("safetensors", "{!r} is of type {}".format(name[:80], kind))
        parts.append(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
        start, end = end, end + len(parts[-1])
        header[name] = {
            "dtype": names[kind],
            "shape": list(plain.shape),
            "data_offsets": [start, end],
        }
    data = json.dumps(header, separators=(",", ":")).encode()
    # the format aligns values to 8 bytes with spaces after the JSON
    data += b" " * (-len(data) % 8)
    return len(data).to_bytes(8, "little") + data + b"".join(parts)


def _build_value(tree: Any, tensors: Mapping[str, Any]) -> Any:
    """Returns the value that a tree of arguments describes."""
    ((kind, inner),) = tree.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "constant":
        return inner
    if kind == "dict":
        return {key: _build_value(branch, tensors) for key, branch in inner.items()}
    items = [_build_value(branch, tensors) for branch in inner]
    return items if kind == "list" else tuple(items)


def _tensors(value: Any) -> Iterator[Any]:
    """Yields the tensors of a result in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _invalid(where: str, problem: str) -> DeviceError:
    return DeviceError(
        "a Python part cannot be made: {}".format(problem),
        code=_INVALID,
        where=where,
        hint="save the network again with this edgekit",
    )
