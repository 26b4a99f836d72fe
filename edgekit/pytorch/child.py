"""Loads and exports a file or a factory in a separate process.

Usage: child.py REQUEST SECONDS BYTES: within SECONDS of CPU time and BYTES of address space, it
executes the file REQUEST (``isolated_export.Request``), and writes ``answer.json`` into the
request's folder. It is started by ``python -I``; edgekit is imported from the request's ``path``.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.pytorch.document import Exported
    from edgekit.pytorch.isolated_export import Request

_ULTRALYTICS = "ultralytics"


def main() -> None:
    """Answers a request."""
    asked, seconds, size = sys.argv[1:]
    # a crash must not leave a core file of the network's size
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # the soft limit sends SIGXCPU, which distinguishes this end from others
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (int(size), int(size)))
    text = Path(asked).read_text(encoding="utf-8")
    # before edgekit is imported: python -I knows neither its folder nor the user's
    sys.path[:] = json.loads(text)["path"]

    from edgekit.errors import BuildError, EdgekitError
    from edgekit.pytorch.isolated_export import Answer, describe_failure, read_request

    request = read_request(text)
    try:
        answer = Answer(exported=_export(request), failed=None)
    except EdgekitError as error:
        answer = Answer(exported=None, failed=describe_failure(error))
    except MemoryError:
        lack = BuildError(
            "the process that exports the network ran out of memory",
            code="torch.memory",
            hint="export the module in your own process: edgekit.export(model, (x,))",
        )
        answer = Answer(exported=None, failed=describe_failure(lack))
    content = answer.model_dump_json(by_alias=True)
    Path(request.folder, "answer.json").write_text(content, encoding="utf-8")


def _export(request: Request) -> Exported:
    from edgekit.pytorch.export import export_network
    from edgekit.pytorch.isolated_export import example_from
    from edgekit.pytorch.networks import prepare_network

    args, kwargs = example_from(request)
    source = _load(request)
    inputs, metadata = dict(request.inputs), dict[str, str]()
    if request.kind == "pickle" and _is_ultralytics(type(source).__module__):
        metadata = _prepare_ultralytics(source)
        if not args and not kwargs and not inputs:
            sides = metadata["imgsz"].strip("[]").replace(", ", "x")
            inputs = {"x": f"1x{metadata['channels']}x{sides}:float32"}
    if isinstance(source, tuple) and request.kind == "factory":
        # a factory may also provide its example
        module, example, *more = source
        if not args and not kwargs and not request.inputs:
            args, kwargs = tuple(example), dict(*more)
        source = module
    name = request.source if request.kind == "factory" else Path(request.source).name
    network = prepare_network(source, args, kwargs, inputs, name)
    network.metadata = metadata
    return export_network(network, request.release, request.exporter, None)


def _load(request: Request) -> Any:
    if request.kind == "factory":
        return _call_factory(request.source)
    import torch

    from edgekit.errors import EnvironmentLack, ModelError
    from edgekit.pytorch.exporters import captured_output
    from edgekit.pytorch.source_errors import first_words

    try:
        with captured_output(), _limit_unpickling(request.trusted):
            if request.kind == "program":
                return torch.export.load(request.source)
            if request.kind == "torchscript":
                return torch.jit.load(request.source, map_location="cpu")
            loaded = torch.load(request.source, map_location="cpu", weights_only=False)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and _is_ultralytics(error.name or ""):
            raise EnvironmentLack(
                "the file is an Ultralytics checkpoint, and ultralytics is not installed here",
                code="torch.missing",
                where=request.source,
                hint="pip install ultralytics; or export it where it is installed, and give the "
                f"ONNX file: yolo export model={Path(request.source).name} format=onnx",
            ) from error
        if _is_unpickling_error(error):
            raise ModelError(
                "the file holds Python objects, whose loading runs code of its author",
                code="torch.untrusted",
                where=request.source,
                hint="save it again with tensors alone; or, if you trust its author, give trust "
                f"(--trust) {request.digest}",
            ) from error
        raise ModelError(
            f"PyTorch {torch.__version__} cannot load the file: {first_words(error)}",
            code="torch.load",
            where=request.source,
            hint=f"put the folder of the module {error.name!r} on PYTHONPATH, or give the network"
            if isinstance(error, ModuleNotFoundError)
            else "save it again with this version of PyTorch, or give the module",
        ) from error
    return _checkpoint_module(loaded)


class Unpickled(Exception):
    """A file requires unpickling of objects."""


def _is_unpickling_error(error: BaseException | None) -> bool:
    import pickle

    while error is not None:
        if isinstance(error, Unpickled | pickle.UnpicklingError):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def _limit_unpickling(trusted: bool) -> Iterator[None]:
    """Within the block only tensors are unpickled, unless the file is trusted.

    ``torch.export.load`` unpickles arbitrary objects of a file.
    """
    import pickle

    import torch
    import torch.export.pt2_archive  # has classes of Unpickler

    if trusted:
        yield
        return
    load = torch.load

    def tensors_alone(*args: Any, **kwargs: Any) -> Any:
        return load(*args, **{**kwargs, "weights_only": True})

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Unpickled

    class Refusing(pickle.Unpickler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            raise Unpickled

    places: list[tuple[Any, str, Any]] = [
        (torch, "load", tensors_alone),
        # the same function under another name, which PyTorch itself calls
        (torch.serialization, "load", tensors_alone),
        (pickle, "load", refuse),
        (pickle, "loads", refuse),
        (pickle, "Unpickler", Refusing),
        (torch._C, "_pickle_load_obj", refuse),
    ]
    before = [(owner, name, getattr(owner, name, None)) for owner, name, _ in places]
    for owner, name, replacement in places:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _checkpoint_module(loaded: Any) -> Any:
    """Returns the network of a trusted pickle: a module, or an Ultralytics checkpoint's."""
    import torch

    from edgekit.errors import ModelError

    if isinstance(loaded, dict):
        # "ema": the averaged weights, which Ultralytics itself exports
        kept = loaded.get("ema") or loaded.get("model")
        if isinstance(kept, torch.nn.Module):
            return kept.float()  # checkpoints are stored in FP16 to save space
    if isinstance(loaded, torch.nn.Module):
        return loaded
    holds = "no module, but " + type(loaded).__name__
    if isinstance(loaded, dict) and any(map(torch.is_tensor, loaded.values())):
        holds = "weights without a network"
    raise ModelError(
        f"the file holds {holds}",
        code="torch.source",
        hint="make the module in Python, load_state_dict the file, and give the module",
    )


def _is_ultralytics(module: str) -> bool:
    return module.partition(".")[0] == _ULTRALYTICS


def _prepare_ultralytics(model: Any) -> dict[str, str]:
    """Prepares a network of Ultralytics for an export, as its own exporter does.

    Returns:
        The metadata that its own exporter writes: names, stride, task, imgsz.
    """
    for part in model.modules():
        if hasattr(part, "export") and hasattr(part, "format"):
            # only the decoded boxes, without the raw maps
            part.export, part.format = True, "onnx"
    arguments = getattr(model, "args", None)
    arguments = arguments if isinstance(arguments, dict) else vars(arguments or object)
    size = arguments.get("imgsz") or 640
    sides = [int(side) for side in (size if isinstance(size, list | tuple) else [size, size])]
    names = model.names.values() if isinstance(model.names, dict) else model.names
    about = {
        "names": dict(enumerate(map(str, names))),
        "stride": int(max(model.stride)),
        "task": str(getattr(model, "task", None) or arguments.get("task") or "detect"),
        "imgsz": sides * (3 - len(sides)),
        "channels": int(getattr(model, "yaml", {}).get("channels", 3)),
    }
    shape = getattr(model, "kpt_shape", None) or getattr(model, "yaml", {}).get("kpt_shape")
    if shape:
        about["kpt_shape"] = list(shape)
    return {key: str(value) for key, value in about.items()}


def _call_factory(spec: str) -> Any:
    """Calls a factory."""
    import importlib
    import traceback

    from edgekit.errors import ModelError
    from edgekit.pytorch.source_errors import first_words

    module, _, function = spec.partition(":")
    try:
        return getattr(importlib.import_module(module), function)()
    except Exception as error:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename not in (__file__, importlib.__file__)
        ]
        own = [frame for frame in frames if not frame.filename.startswith("<")]
        line = f"{own[-1].filename}:{own[-1].lineno}" if own else spec
        raise ModelError(
            f"the factory {spec} fails: {type(error).__name__}: {first_words(error)}",
            code="torch.factory",
            where=line,
            hint="package.module:factory names a function without arguments that returns a module, "
            "in a package that Python finds from this folder",
        ) from error


if __name__ == "__main__":
    main()
