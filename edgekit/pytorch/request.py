"""What the parent of a child process asks, and what the child answers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from edgekit.documents import Document
from edgekit.errors import EdgekitError
from edgekit.pytorch.document import Exported, Exporter, Structure

Kind = Literal["program", "torchscript", "pickle", "factory"]


class RawTensor(Document):
    """A tensor of the example, in the request's file of values."""

    name: str
    type: str
    shape: list[int]
    offset: int


class Request(Document):
    """What a child does.

    Attributes:
        source: The file's path, or the factory.
        kind: What it is.
        digest: The file's SHA-256; "" of a factory.
        trusted: Whether its pickle may be run.
        path: Python's, for a factory.
        folder: The child's, with the values of the example; the answer is written there.
    """

    source: str
    kind: Kind
    digest: str
    trusted: bool
    path: list[str]
    folder: str
    release: str
    exporter: Exporter | None
    example: Structure | None
    tensors: list[RawTensor]
    inputs: dict[str, str]


class Failed(Document):
    """An error of the child's, as the parent raises it."""

    kind: str
    message: str
    code: str
    where: str
    hint: str
    details: list[str]


class Answer(Document):
    """What a child answers: one of both."""

    exported: Exported | None
    failed: Failed | None


def read_request(text: str) -> Request:
    """Returns a child's request."""
    return Request.model_validate(json.loads(text))


def example_to(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], folder: Path
) -> tuple[Structure | None, list[RawTensor], bytes]:
    """Writes the example's values; returns its structure, tensors, and a digest of the values."""
    if not args and not kwargs:
        return None, [], b""
    import torch

    from edgekit.pytorch.signature import Result

    result = Result(())
    tensors = result.take({"args": args, "kwargs": dict(kwargs)})
    found, offset, digest = [], 0, hashlib.sha256()
    with (folder / "values").open("wb") as file:
        for name, tensor in zip(result.names, tensors, strict=True):
            plain = tensor.detach().cpu().contiguous()
            data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
            file.write(data)
            digest.update(data)
            kind = str(tensor.dtype).removeprefix("torch.")
            found.append(RawTensor(name=name, type=kind, shape=list(tensor.shape), offset=offset))
            offset += len(data)
    return result.structure, found, digest.digest()


def example_from(request: Request) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns args and kwargs of a request."""
    if request.example is None:
        return (), {}
    import torch

    from edgekit.pytorch.signature import rebuild

    data = bytearray((Path(request.folder) / "values").read_bytes())
    tensors = {}
    for one in request.tensors:
        dtype = getattr(torch, one.type)
        count = math.prod(one.shape)
        flat = (
            torch.frombuffer(data, dtype=dtype, count=count, offset=one.offset)
            if count
            else torch.zeros(0, dtype=dtype)
        )
        tensors[one.name] = flat.reshape(one.shape).clone()
    both = rebuild(request.example, tensors)
    return tuple(both["args"]), both["kwargs"]


def failed_by(error: EdgekitError) -> Failed:
    """Returns an error for the parent."""
    return Failed(
        kind=type(error).__name__, message=error.message, code=error.code, where=error.where,
        hint=error.hint, details=list(error.details),
    )  # fmt: skip
