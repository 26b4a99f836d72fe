"""Files and factories are loaded and exported by a limited child process, since a file's code is
not the user's own. Defines the request and the answer.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from edgekit import errors, timeouts
from edgekit.documents import Document
from edgekit.errors import BuildError, EdgekitError, ModelError, UsageError
from edgekit.files import file_digest
from edgekit.network.source import (
    TORCH_PICKLES,
    TORCH_PROGRAM,
    TORCHSCRIPT,
    foreign_format,
    is_factory,
    missing_model,
    refuse_foreign,
)
from edgekit.pytorch import export_cache
from edgekit.pytorch.document import Exported, Exporter, Structure
from edgekit.text import listed

Kind = Literal["program", "torchscript", "pickle", "factory"]
_CHILD = Path(__file__).with_name("child.py")
# address space: PyTorch's libraries reserve much more than they use
_MEMORY = 64 << 30
_COPIES = 8  # additional copies of a file
# the environment variables that a file's child needs
_VARIABLES = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
_SETTINGS = {"CUDA_VISIBLE_DEVICES": ""}
_MOST_PICKLE = 64 << 20
_PICKLES = 4
# modules of a pickle with only tensors and their names
_PLAIN = frozenset({"torch", "torch._utils", "torch.storage", "collections"})


class RawTensor(Document):
    """A tensor of the example, in the request's file of values."""

    name: str
    type: str
    shape: list[int]
    offset: int


class Request(Document):
    """The request to a child process.

    Attributes:
        source: The file's path, or the factory.
        kind: The kind of the source.
        digest: The file's SHA-256; "" for a factory.
        trusted: True if its pickle may be executed.
        path: Python's module path, for a factory.
        folder: The child's folder, with the values of the example; the answer is written there.
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
    """An error of the child, to be raised by the parent."""

    kind: str
    message: str
    code: str
    where: str
    hint: str
    details: list[str]


class Answer(Document):
    """A child's answer: an export or an error."""

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

    from edgekit.pytorch.signature import Result, type_name

    result = Result(())
    tensors = result.take({"args": args, "kwargs": dict(kwargs)})
    found, offset, digest = [], 0, hashlib.sha256()
    with (folder / "values").open("wb") as file:
        for name, tensor in zip(result.names, tensors, strict=True):
            plain = tensor.detach().cpu().contiguous()
            # as bytes, since NumPy lacks bfloat16 and the 8-bit floats
            data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
            file.write(data)
            digest.update(data)
            kind = type_name(tensor)
            found.append(RawTensor(name=name, type=kind, shape=list(tensor.shape), offset=offset))
            offset += len(data)
    return result.structure, found, digest.digest()


def example_from(request: Request) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns args and kwargs of a request."""
    if request.example is None:
        return (), {}
    import torch

    from edgekit.pytorch.signature import rebuild

    # PyTorch warns of read-only buffers
    data = bytearray((Path(request.folder) / "values").read_bytes())
    tensors = {}
    for tensor in request.tensors:
        dtype = getattr(torch, tensor.type)
        count = math.prod(tensor.shape)
        flat = (
            torch.frombuffer(data, dtype=dtype, count=count, offset=tensor.offset)
            if count
            else torch.zeros(0, dtype=dtype)
        )
        tensors[tensor.name] = flat.reshape(tensor.shape).clone()
    both = rebuild(request.example, tensors)
    return tuple(both["args"]), both["kwargs"]


def describe_failure(error: EdgekitError) -> Failed:
    """Returns an error in the form for the parent."""
    return Failed(
        kind=type(error).__name__,
        message=error.message,
        code=error.code,
        where=error.where,
        hint=error.hint,
        details=list(error.details),
    )


def export_outside(
    source: str | Path,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    inputs: Mapping[str, str],
    *,
    release: str,
    exporter: Exporter | None,
    save: Path | None,
    trust: str | None,
) -> Exported:
    """Exports a file or a factory; the arguments are those of ``export``.

    Raises:
        BuildError: ``torch.failed``, ``torch.timeout`` or ``torch.memory``: the child ended early.
        EdgekitError: The child's error.
    """
    kind = source_kind(source)
    digest = "" if kind == "factory" else file_digest(Path(source))
    with tempfile.TemporaryDirectory(prefix="edgekit-torch-") as made:
        folder = Path(made)
        example, tensors, values = example_to(args, kwargs, folder)
        request = Request(
            source=str(source if kind == "factory" else Path(source).absolute()),
            kind=kind,
            digest=digest,
            trusted=bool(trust),
            folder=made,
            release=release,
            exporter=exporter,
            # the user's own code, and that of a trusted pickle, is in the working directory
            path=[*([os.getcwd()] if kind in ("factory", "pickle") else []), *sys.path],
            example=example,
            tensors=tensors,
            inputs=dict(inputs),
        )
        if kind == "factory":  # its result is only known afterwards; the child caches it
            return export_cache.copy_out(_run_child(request, folder), save)
        # the digest identifies the file, wherever it is
        facts = request.model_dump_json(exclude={"path", "folder", "source"})
        key = export_cache.key(version("torch"), Path(source).name, facts, values)
        found = export_cache.find(key)
        if found is None:
            found = export_cache.adopt(_run_child(request, folder), key, folder)
        return export_cache.copy_out(found, save)


def refuse_untrusted(source: str | Path, trust: str | None) -> None:
    """Refuses a pickle unless the user gives its SHA-256; a factory is the user's own code.

    Raises:
        ModelError: ``model.missing``, or ``torch.untrusted`` for a pickle.
        UsageError: ``torch.source``: no PyTorch network; ``torch.trust``: another file is trusted.
    """
    kind = source_kind(source)
    if kind == "factory" or not (trust or kind == "pickle"):
        return
    digest = file_digest(Path(source))
    if not trust:
        raise _untrusted_error(Path(source), digest)
    if trust.lower() != digest:
        raise UsageError(
            f"the file's SHA-256 is {digest}, and another one is trusted",
            code="torch.trust",
            where=str(source),
            hint="ask its author for the SHA-256, or give trust the file's own",
        )


def source_kind(source: str | Path) -> Kind:
    """Returns the kind of a source path or text.

    Raises:
        ModelError: ``model.missing``, ``model.unreadable``, or ``model.not_onnx`` for a file that
            is not PyTorch's.
        UsageError: ``torch.source``: an ONNX file.
    """
    path = Path(source)
    if not path.exists():
        if is_factory(str(source)):
            return "factory"
        raise missing_model(path)
    what = (foreign_format(path) if path.is_file() else None) or ("", "")
    kinds: dict[str, Kind] = {TORCH_PROGRAM: "program", TORCHSCRIPT: "torchscript"}
    kinds |= dict.fromkeys(TORCH_PICKLES, "pickle")
    if what[0] in kinds:
        return kinds[what[0]]
    refuse_foreign(path)
    raise UsageError(
        "this is no PyTorch file",
        code="torch.source",
        where=str(source),
        hint="give a .pt2 or TorchScript file, package.module:factory, or the module itself; an "
        "ONNX file needs no export",
    )


def _untrusted_error(path: Path, digest: str) -> ModelError:
    modules = pickled_modules(path)
    trusting = f"or, if you trust its author, give trust (--trust) {digest}"
    if any(name.partition(".")[0] == "ultralytics" for name in modules):
        what = "an Ultralytics checkpoint"
        hint = (
            f"load it with Ultralytics and export that: YOLO({str(path)!r}).export(format='onnx')"
        )
    elif modules and _PLAIN.issuperset(modules):
        what = "a file of weights without a network"
        hint = "make the module in Python, load_state_dict the file, and give the module"
        trusting = ""
    else:
        what = "a PyTorch pickle"
        hint = (
            "load it in Python, if you trust it, and give the module, or a file of torch.export or "
            "torch.onnx.export"
        )
    return ModelError(
        f"this is {what}: loading it runs code of its author, so that it is not loaded",
        code="torch.untrusted",
        where=str(path),
        hint="; ".join(filter(None, (hint, trusting))),
    )


def pickled_modules(path: Path) -> list[str]:
    """Returns the Python modules that a PyTorch file's pickle names, without running it."""
    import pickletools
    import zipfile

    found: list[str] = []
    texts: list[str] = []
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                name = next(entry for entry in archive.namelist() if entry.endswith("data.pkl"))
                with archive.open(name) as file:
                    data = file.read(_MOST_PICKLE)
        else:
            with path.open("rb") as plain:
                data = plain.read(_MOST_PICKLE)
        stream = io.BytesIO(data)
        # an old file begins with three additional pickles
        operations = (step for _ in range(_PICKLES) for step in pickletools.genops(stream))
        for operation, argument, _ in operations:
            if operation.name == "GLOBAL":
                found.append(str(argument).partition(" ")[0])
            # it takes the last two texts: the module and the name
            elif operation.name == "STACK_GLOBAL" and len(texts) > 1:
                found.append(texts[-2])
            elif isinstance(argument, str):
                texts.append(argument)
    except (OSError, ValueError, StopIteration, zipfile.BadZipFile, NotImplementedError):
        pass  # return the modules found so far
    return list(dict.fromkeys(found))


def _run_child(request: Request, folder: Path) -> Exported:
    """Runs the child, and returns its answer or raises its error."""
    asked = folder / "request.json"
    asked.write_text(request.model_dump_json(), encoding="utf-8")
    size = 0 if request.kind == "factory" else Path(request.source).stat().st_size
    command = [
        sys.executable,
        "-I",
        str(_CHILD),
        str(asked),
        str(timeouts.EXPORT_CPU_S),
        str(_MEMORY + _COPIES * size),
    ]
    if request.kind == "factory":
        # a factory is the user's own code, and may need any variable
        environment = dict(os.environ)
    else:
        environment = {key: os.environ[key] for key in _VARIABLES if key in os.environ}
        # a file's code can only write there, and the answer is checked before it is cached
        environment |= _SETTINGS | {"EDGEKIT_CACHE": str(folder / "cache")}
    where = request.source
    try:
        done = subprocess.run(
            command,
            env=environment,
            timeout=timeouts.EXPORT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except subprocess.TimeoutExpired:
        raise _child_error("torch.timeout", f"took over {timeouts.EXPORT_S} s", where) from None
    except OSError as error:
        raise _child_error("torch.failed", f"cannot be started: {error.strerror}", where) from error
    if done.returncode == -signal.SIGXCPU:
        raise _child_error(
            "torch.timeout", f"took over {timeouts.EXPORT_CPU_S} s of the processor", where
        )
    # from the kernel's out-of-memory killer
    if done.returncode == -signal.SIGKILL:
        raise _child_error("torch.memory", "ran out of memory", where)
    try:
        # a file's code ran in that process: its answer is checked like any input
        answer = Answer.model_validate_json((folder / "answer.json").read_bytes())
    except (OSError, ValueError):
        code = done.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise _child_error(
            "torch.failed", f"crashed ({how}) {listed(last)}".strip(), where
        ) from None
    if answer.exported is None:
        raise _rebuild_error(answer.failed, where)
    return answer.exported


def _child_error(code: str, what: str, where: str) -> BuildError:
    return BuildError(
        f"the process that exports the network {what}",
        code=code,
        where=where,
        hint="export the module in your own process: edgekit.export(model, (x,))",
    )


def _rebuild_error(failed: Failed | None, where: str) -> EdgekitError:
    if failed is None:
        return _child_error("torch.failed", "gives no answer", where)
    kind = getattr(errors, failed.kind, None)
    if (
        # ConfigError is made from problems, not from a message
        not (isinstance(kind, type) and issubclass(kind, EdgekitError))
        or kind is errors.ConfigError
    ):
        kind = ModelError
    error = kind(failed.message, code=failed.code, where=failed.where or where, hint=failed.hint)
    error.details = tuple(failed.details)
    return error
