"""Cached exports: a folder in the cache for each, with the ONNX file and its document.

A key covers all dependencies of the file: the program's nodes (its structure), the weights' values,
the release, the versions of PyTorch and ONNX, and the code that writes the file.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import onnx

from edgekit.errors import BuildError
from edgekit.files import cache_folder, read_file, write_atomically, write_folder_atomically
from edgekit.network import left_modules
from edgekit.pytorch.document import Exported

FILE, DATA, _RECORD = "model.onnx", "model.onnx.data", "export.json"
# larger weights go to a separate file: a protobuf is limited to 2 GiB
_INLINE = 1_900_000_000
_LARGEST_RECORD = 1 << 24
_FOLDER = "exports"


def key(*facts: object) -> str:
    """Returns the key of an export from the given facts and edgekit's version."""
    return hashlib.sha256(repr((onnx.__version__, _source_digest(), *facts)).encode()).hexdigest()


@cache
def _source_digest() -> str:
    digest = hashlib.sha256()
    # the code, not edgekit's version, decides if an old file is still right
    own = sorted(Path(__file__).parent.glob("*.py"))
    for path in (*own, Path(left_modules.__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def program_digest(program: Any) -> str:
    """Returns the SHA-256 of a program's nodes and weights."""
    import torch

    digest = hashlib.sha256()
    for node in program.graph.nodes:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        value = node.meta.get("val")
        words = (
            node.op,
            str(node.target),
            node.name,
            str(node.args),
            str(node.kwargs),
            stack,
            str(getattr(value, "dtype", "")),
            str(getattr(value, "shape", "")),
        )
        digest.update(repr(words).encode())
    for name, tensor in (*program.state_dict.items(), *program.constants.items()):
        digest.update(f"{name}:".encode())
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            plain = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(memoryview(plain.view(torch.uint8).numpy()))
    return digest.hexdigest()


def find(name: str) -> Exported | None:
    """Returns the export of a key, None if it is not cached or damaged."""
    folder = entry_folder(name)
    try:
        record = Exported.model_validate_json(read_file(folder / _RECORD, _LARGEST_RECORD))
    except (OSError, ValueError):
        return None
    return record.model_copy(update={"cached": True}) if (folder / FILE).is_file() else None


def entry_folder(name: str) -> Path:
    """Returns the folder of a key."""
    return cache_folder() / _FOLDER / name


def write_record(exported: Exported, folder: Path) -> None:
    """Writes an export's document into its folder."""
    text = exported.model_dump_json(by_alias=True, exclude_unset=True)
    (folder / _RECORD).write_text(text, encoding="utf-8")


@contextmanager
def new_entry(name: str) -> Iterator[Path]:
    """Yields an empty folder, which becomes the key's folder if the block succeeds."""
    with write_folder_atomically(entry_folder(name)) as folder:
        yield folder


def adopt(exported: Exported, name: str, within: Path) -> Exported:
    """Caches the export of a child process.

    Args:
        exported: The child's document, whose file is moved.
        name: The key.
        within: The child's folder; files outside are refused.

    Raises:
        BuildError: ``torch.failed``: the file is outside the folder or missing.
    """
    file = Path(exported.file)
    inside = file.name == FILE and file.resolve().is_relative_to(within.resolve())
    # a file's code ran in the child and may have put anything there
    if not inside or file.is_symlink() or not file.is_file():
        raise BuildError(
            "the process that exports the network gives no ONNX file",
            code="torch.failed",
            where=exported.source,
        )
    with new_entry(name) as folder:
        for part in (FILE, DATA):
            if (file.parent / part).is_file():
                shutil.move(file.parent / part, folder / part)
        kept = exported.model_copy(update={"file": str(entry_folder(name) / FILE)})
        write_record(kept, folder)
    return kept


def write(proto: onnx.ModelProto, path: Path) -> None:
    """Writes a network; weights of 1.9 GB and more go to a file beside it."""
    if sum(len(tensor.raw_data) for tensor in proto.graph.initializer) < _INLINE:
        path.write_bytes(proto.SerializeToString())
    else:
        _write_external(proto, path, f"{path.name}.data")


def _write_external(proto: onnx.ModelProto, path: Path, data: str) -> None:
    (path.parent / data).unlink(missing_ok=True)  # ONNX appends
    onnx.save_model(proto, str(path), save_as_external_data=True, location=data)


def copy_out(exported: Exported, save: Path | None) -> Exported:
    """Copies the file out of the cache, if a path is given."""
    if save is None:
        return exported
    kept = Path(exported.file)
    with write_atomically(save) as temporary:
        # the file names its data file, so both are written anew
        if any(kept.parent.glob(f"{FILE}.*")):
            _write_external(onnx.load(kept), temporary, f"{save.name}.data")
        else:
            temporary.write_bytes(kept.read_bytes())
    return exported.model_copy(update={"file": str(save)})
