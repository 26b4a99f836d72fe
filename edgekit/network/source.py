"""Sources of a model: a built-in network's name, a Python function, or a file.

Files of other formats (PyTorch, TensorFlow, engines, OpenVINO) are recognised and refused with a
hint for a conversion.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from shlex import quote

from edgekit.errors import ModelError, UsageError
from edgekit.files import regular_file
from edgekit.text import listed

#: Prefix of a Python function as a source of data: ``python:module:function``.
PYTHON = "python:"
_TORCH_ENDINGS = (".pt2", ".pt", ".pth", ".ts", ".torchscript")
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_BUILTIN = "builtin:"
#: The networks of ``edgekit.network.zoo``.
BUILTIN_NAMES = (
    "light_bvlc_alexnet",
    "light_densenet121",
    "light_inception_v1",
    "light_inception_v2",
    "light_resnet50",
    "light_shufflenet",
    "light_squeezenet",
    "light_vgg19",
    "light_zfnet512",
)
BUILTIN_ALIASES = {"light_alexnet": "light_bvlc_alexnet"}
_DIGITS = 20  # a seed has 64 bits
# bytes read of each file, and more of a file whose first bytes leave its format open
_START, _HEAD = 1 << 12, 1 << 20
#: Names of PyTorch's files in :func:`foreign_format`; loading a pickle runs its author's code.
TORCH_PROGRAM, TORCHSCRIPT = "a program of torch.export (.pt2)", "a TorchScript file"
TORCH_PICKLES = ("a PyTorch file", "a Python pickle, for example an old PyTorch file")
_TORCH = (
    "load the network in PyTorch and export it: "
    'torch.onnx.export(model.eval(), (torch.zeros(1, 3, 224, 224),), "model.onnx")'
)
_PROGRAM = (
    "write it with torch.export.save(torch.export.export(model.eval(), (x,)), path), or give "
    "package.module:factory"
)
_TF = "python -m tf2onnx.convert --opset 17 --output model.onnx"
_ENGINE = (
    "a TensorRT engine, which does not contain the network",
    "give the ONNX file it was built from",
)
# formats by a file's first bytes: position, bytes, description, hint
_MAGIC = (
    (4, b"TFL3", "a TensorFlow Lite model", f"convert it: {_TF} --tflite {{}}"),
    (4, b"ORTM", "a model in ONNX Runtime's own format", "give the ONNX file it was made from"),
    (
        0,
        b"\x89HDF\r\n\x1a\n",
        "an HDF5 file, for example from Keras",
        f"convert it: {_TF} --keras {{}}",
    ),
    (
        0,
        b"GGUF",
        "a GGUF file of a language model",
        "export the original: optimum-cli export onnx --model NAME FOLDER",
    ),
    (
        0,
        b"version https://git-lfs",
        "a Git LFS pointer, not the file itself",
        "fetch the file: git lfs pull --include {}",
    ),
    (0, b"ftrt", *_ENGINE),  # as edgekit_device/tensorrt/plan.py
    (4, b"NVDA", "a DLA loadable, which does not contain the network", _ENGINE[1]),
    (0, b"\x1f\x8b", "compressed by gzip", "uncompress it first: gunzip -k {}"),
    (0, b"\xfd7zXZ\0", "compressed by xz", "uncompress it first: unxz -k {}"),
    (0, b"BZh", "compressed by bzip2", "uncompress it first: bunzip2 -k {}"),
    (0, b"\x28\xb5\x2f\xfd", "compressed by Zstandard", "uncompress it first: unzstd {}"),
    # magic_number of torch/serialization.py, as a pickle of protocol 2
    (0, b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19", TORCH_PICKLES[0], _TORCH),
    (0, b"<!DOCTYPE", "a web page", "the download failed: download the file itself"),
    (0, b"<html", "a web page", "the download failed: download the file itself"),
)
_MOST_ENTRIES = 1 << 16  # of a zip archive that is named
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_WEIGHTS = (
    "the file contains weights but no network: load them in their framework and export to ONNX"
)
_OPENVINO = ("an OpenVINO model", "give the ONNX file, or export the original network to ONNX")
# first bytes of a SavedModel, a frozen graph or text; an ONNX file has a higher version
_NEEDS_MORE = re.compile(rb"\x08\x01\x12|[\n\t -~]")
_SAVED = re.compile(rb"serve|Placeholder|StatefulPartitionedCall|saved_model|tensorflow")
_OPERATOR = re.compile(rb"[A-Z][A-Za-z0-9_]{1,60}")
_JSON = re.compile(rb"(\xef\xbb\xbf)?\s*[{\[\"\d-]")
_CONFIG = re.compile(rb"(?m)^(version|model|target)\s*:")


def parse_builtin(source: str) -> tuple[str, int] | None:
    """Returns name and seed of "builtin:NAME?seed=N"; None for any other source.

    Raises:
        UsageError: The seed is not a number.
    """
    if not is_builtin(source):
        return None
    name, _, seed = source.removeprefix(_BUILTIN).partition("?seed=")
    if seed and not (seed.isdecimal() and len(seed) < _DIGITS):
        raise UsageError(f"{seed!r} is not a seed", where=source, hint=f"{_BUILTIN}{name}?seed=1")
    return name, int(seed or 0)


def is_function(data: str) -> bool:
    """Returns True if data come from a Python function: "python:module:function"."""
    return data.startswith(PYTHON)


def is_builtin(source: str) -> bool:
    """Returns True if a text names a built-in network: "builtin:NAME"."""
    return source.startswith(_BUILTIN)


def is_config_file(path: str | PathLike[str]) -> bool:
    """Returns True if a path has the extension of a configuration."""
    return Path(path).suffix.lower() in (".yaml", ".yml")


def near_builtins(name: str) -> list[str]:
    """Returns at most three names of built-in networks that are similar to ``name``."""
    from difflib import get_close_matches

    return get_close_matches(name, [*BUILTIN_NAMES, *BUILTIN_ALIASES], n=3, cutoff=0.5)


def missing_model(path: str | Path) -> ModelError:
    """Returns the error for a model file that does not exist."""
    hint = "give the path of an .onnx file, for example from torch.onnx.export"
    if has_torch_ending(Path(path)):
        hint = "give the path of a .pt2 or TorchScript file, or package.module:factory"
    if near := near_builtins(str(path)):
        hint += f", or a built-in network: {_BUILTIN}{near[0]}"
    return ModelError("the file does not exist", code="model.missing", where=str(path), hint=hint)


def source_name(source: str) -> str:
    """Returns a model's name for signed documents: its file without folders, or its built-in name.

    Folders differ between machines and may be private.
    """
    return source if is_builtin(source) else Path(source).name


def is_factory(source: str) -> bool:
    """Returns True if a text names a Python function: "package.module:factory"."""
    return _FACTORY.fullmatch(source) is not None and not is_builtin(source)


def has_torch_ending(path: Path) -> bool:
    """Returns True if a path has the extension of a PyTorch file."""
    return path.suffix.lower() in _TORCH_ENDINGS


def is_torch_file(path: Path, *, trusted: bool = False) -> bool:
    """Returns True if a file is PyTorch's, by extension and content; files with other extensions
    are not opened.

    Args:
        path: The file.
        trusted: True if the user trusts a pickle, which may have any extension.
    """
    try:
        looked = (trusted or has_torch_ending(path)) and path.is_file()
        found = foreign_format(path) if looked else None
    except OSError:
        return False
    return found is not None and found[0] in (TORCH_PROGRAM, TORCHSCRIPT, *TORCH_PICKLES)


def refuse_foreign(path: Path) -> None:
    """Refuses a file or folder of another format.

    Raises:
        ModelError: ``model.not_onnx``, with the format and a hint for the conversion to ONNX;
            ``model.unreadable`` for a pipe, a socket or a device.
    """
    found = None
    if path.exists() and not path.is_dir():
        try:
            regular_file(path)
        except OSError as error:
            raise ModelError(
                f"it cannot be read: {error.strerror}",
                code="model.unreadable",
                where=str(path),
                hint="give the path of an .onnx file",
            ) from None
    with contextlib.suppress(OSError):  # opening the file raises the error later
        found = foreign_format(path)
    if found is not None:
        what, hint = found
        raise ModelError(
            f"this is {what}, but edgekit reads ONNX files",
            code="model.not_onnx",
            where=str(path),
            hint=hint,
        )


def foreign_format(path: Path) -> tuple[str, str] | None:
    """Returns the format of a file or folder and a hint; None if it may be an ONNX model.

    Formats are recognised by content: an extension is ambiguous (``.pb``, ``.bin``) or wrong. Files
    are not run or unpacked.

    Raises:
        OSError: It cannot be read.
    """
    named = quote(str(path))
    if path.is_dir():
        return _folder_format(path, named)
    if not path.is_file():
        return None  # opening the file raises the error later
    with path.open("rb") as file:
        head = file.read(_START)
        if _NEEDS_MORE.match(head):
            head += file.read(_HEAD)
        size = os.fstat(file.fileno()).st_size
    for at, magic, what, hint in _MAGIC:
        if head.startswith(magic, at):
            return what, hint.format(named)
    if head.startswith(b"PK\x03\x04"):
        return _archive_format(path, named)
    if _PICKLE.match(head):
        return TORCH_PICKLES[1], _TORCH
    return _format_by_structure(path, head, size, named)


def _format_by_structure(path: Path, head: bytes, size: int, named: str) -> tuple[str, str] | None:
    """Returns the result of :func:`foreign_format` for formats without own first bytes."""
    # eight bytes with the length of the header, then the header as JSON
    if size > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8:
        return "a safetensors file", _WEIGHTS
    if head.lstrip().startswith((b"<?xml", b"<net")) and b"<net" in head:
        return _OPENVINO
    if _is_saved_model(head):
        return "a TensorFlow SavedModel", (
            f"convert its folder: {_TF} --saved-model {quote(str(path.parent))}"
        )
    if _is_graph_def(head):
        return "a frozen TensorFlow graph", (
            f"convert it: {_TF} --graphdef {named} --inputs NAME:0 --outputs NAME:0"
        )
    ending = path.suffix.lower()
    if ending not in (".yaml", ".yml") and len(set(_CONFIG.findall(head))) == 3:
        return "a YAML configuration", "rename it to end in .yaml"
    if ending in (".engine", ".plan", ".trt") and not head.startswith(b"\x08"):
        return _ENGINE
    # an ONNX file begins with its version
    if ending in _TORCH_ENDINGS and not head.startswith(b"\x08"):
        return "a file with PyTorch's ending and other content", _PROGRAM
    if ending == ".json" and _JSON.match(head):
        return "a JSON document", (
            "give the network's ONNX file; for a measurement with a board's log: edgekit bench "
            f"{named} --tegrastats LOG"
        )
    return None


def _folder_format(path: Path, named: str) -> tuple[str, str] | None:
    names = sorted(os.listdir(path))
    if {"saved_model.pb", "saved_model.pbtxt"} & set(names):
        return "the folder of a TensorFlow SavedModel", (f"convert it: {_TF} --saved-model {named}")
    models = [quote(str(path / name)) for name in names if name.lower().endswith(".onnx")]
    if models:
        one_of = "one of its ONNX files" if len(models) > 1 else "its ONNX file"
        return "a folder", f"give {one_of}: {listed(models, 5)}"
    if any(name.endswith((".safetensors", ".bin")) for name in names) and "config.json" in names:
        return "the folder of a Hugging Face model", (
            f"export it: optimum-cli export onnx --model {named} FOLDER"
        )
    if any(name.endswith(".xml") for name in names) and any(n.endswith(".bin") for n in names):
        return _OPENVINO
    return None


def _archive_format(path: Path, named: str) -> tuple[str, str]:
    from edgekit_device.files import map_file
    from edgekit_device.zips import zip_entries

    names = set()
    try:
        for count, entry in enumerate(zip_entries(map_file(path), 1 + _MOST_ENTRIES)):
            if count == _MOST_ENTRIES:
                return f"a zip archive of more than {_MOST_ENTRIES:,} entries", "give the ONNX file"
            names.add(entry.name.decode("utf-8", "replace"))
    except (ValueError, struct.error):
        return "a damaged zip archive", "copy the complete file again"
    ends = {name.rpartition("/")[2] for name in names}
    if {"archive_format", "serialized_exported_program.json"} & ends:
        return TORCH_PROGRAM, (
            f'export it: torch.onnx.export(torch.export.load("{path}"), (), "model.onnx", '
            "dynamo=True)"
        )
    if "data.pkl" in ends:
        if any("/code/" in f"/{name}" for name in names):
            return TORCHSCRIPT, _TORCH
        return TORCH_PICKLES[0], _TORCH
    if {"config.json", "model.weights.h5"} <= ends:
        return "a Keras model", (
            f'export it: keras.models.load_model("{path}").export("model.onnx", format="onnx")'
        )
    models = sorted(name for name in names if name.lower().endswith(".onnx"))
    if models:
        return f"a zip archive with {models[0]!r} in it", f"unpack it first: unzip {named}"
    if "manifest.json" in names and any(name.startswith("blobs/") for name in names):
        return "an edgekit bundle", f"install it: edgekit deploy CONFIG --bundle {named}"
    if names and all(name.endswith(".npy") for name in names):
        return "a NumPy archive of arrays", "this is data; give the network that reads it"
    return "a zip archive", f"unpack it first: unzip {named}"


def _is_saved_model(head: bytes) -> bool:
    """Returns True for a SavedModel: version 1, then a graph that begins with its MetaInfoDef.

    Source: tensorflow/core/protobuf/saved_model.proto. In an ONNX file the second field is the
    producer's name, which is text.
    """
    if not head.startswith(b"\x08\x01\x12"):
        return False
    fields = _fields(head[2:])
    number, inner = next(fields, (0, b""))
    return number == 2 and inner[:1] == b"\x0a" and _SAVED.search(head) is not None


def _is_graph_def(head: bytes) -> bool:
    """Returns True for a GraphDef: nodes, each with a name and then an operator.

    Source: tensorflow/core/framework/graph.proto.
    """
    number, node = next(_fields(head), (0, b""))
    if number != 1:
        return False
    parts = _fields(node)
    name, operator = next(parts, (0, b"")), next(parts, (0, b""))
    return name[0] == 1 and operator[0] == 2 and bool(_OPERATOR.fullmatch(operator[1]))


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the length-delimited protobuf fields at the start of possibly truncated bytes."""
    at = 0
    while at < len(data) and data[at] & 7 == 2:
        number, size, shift = data[at] >> 3, 0, 0
        at += 1
        while at < len(data) and shift < 64:
            byte = data[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        yield number, data[at : at + size]
        at += size
