"""PyTorch networks become ONNX files with names: ``export``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from edgekit.errors import EnvironmentLack, UsageError
from edgekit.pytorch.document import Exported, Exporter
from edgekit.pytorch.networks import Network, network_of, size_words
from edgekit.pytorch.signature import call_of, parameter_names
from edgekit.pytorch.translation import export_network
from edgekit.text import listed


def export(
    source: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    release: str,
    inputs: Mapping[str, str] | None = None,
    exporter: str | None = None,
    save: Path | None = None,
    trust: str | None = None,
    dynamic_shapes: object = None,
    leave: Sequence[str] = (),
) -> Exported:
    """Exports a PyTorch network for a TensorRT release, and compares the file with PyTorch.

    The caller's module is not changed: a copy is exported, in evaluation mode and without
    gradients.

    Args:
        source: A module, a program of ``torch.export``, the path of a program (.pt2) or of a
            TorchScript file, or a factory "package.module:factory", which returns a module. Paths
            and factories are loaded in a process of their own.
        args: The example's positional arguments; or one tensor.
        kwargs: The example's keyword arguments.
        release: The board's TensorRT, which decides exporter and opset.
        inputs: In the place of an example, sizes: ``{"x": "1x3x224x224:float32"}``.
        exporter: "dynamo" or "legacy"; None: the first that fits.
        save: The ONNX file to write, with a file of weights beside it from 1.9 GB on; None: it
            stays in the cache.
        trust: SHA-256 of a file whose pickle may be run.
        dynamic_shapes: Refused: a network has one size.
        leave: Paths (globs) of the modules that stay in PyTorch, of a module: their calls are nodes
            ``edgekit.pytorch::Module`` of the file.

    Raises:
        EnvironmentLack: ``torch.missing``: PyTorch is not installed.
        UsageError: Arguments that make no sense; ``torch.dynamic_shapes``; ``torch.leave``.
        ModelError: ``torch.control_flow``, ``torch.operator`` or ``torch.export``: what cannot be
            exported, by module path, class and source line; ``torch.untrusted``.
        GateError: ``torch.differs``: the file computes something else.
    """
    return export_with_network(
        source, args, kwargs, release=release, inputs=inputs, exporter=exporter, save=save,
        trust=trust, dynamic_shapes=dynamic_shapes, leave=leave,
    )[0]  # fmt: skip


def export_with_network(
    source: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    release: str,
    inputs: Mapping[str, str] | None = None,
    exporter: str | None = None,
    save: Path | None = None,
    trust: str | None = None,
    dynamic_shapes: object = None,
    leave: Sequence[str] = (),
) -> tuple[Exported, Network | None]:
    """Exports as :func:`export` does, and returns what was exported, too.

    The network is None where a process of its own loaded it.
    """
    if exporter not in (None, "dynamo", "legacy"):
        raise UsageError(
            f"there is no exporter {exporter!r}", code="torch.exporter",
            hint="the exporters are dynamo and legacy",
        )  # fmt: skip
    need_torch()
    given = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    chosen = cast("Exporter | None", exporter)
    if isinstance(source, str | Path):
        from edgekit.pytorch.outside import export_outside

        if dynamic_shapes:
            raise _dynamic((), given, kwargs, inputs)
        if leave:
            raise UsageError(
                "modules of a file or factory cannot stay in PyTorch", code="torch.leave",
                where="leave", hint="give the torch.nn.Module itself",
            )  # fmt: skip
        outside = export_outside(
            source, given, kwargs or {}, inputs or {}, release=release, exporter=chosen,
            save=save, trust=trust,
        )  # fmt: skip
        return outside, None
    if dynamic_shapes:
        raise _dynamic(parameter_names(getattr(source, "forward", source)), given, kwargs, inputs)
    network = network_of(source, given, kwargs or {}, inputs or {}, leave=leave)
    return export_network(network, release, chosen, save), network


def release_for(target: str, tensorrt: str | None, jetpack: str | None) -> str:
    """Returns the TensorRT release that a network is exported for: the given one, or the board's.

    Raises:
        UsageError: An unknown board or release.
    """
    from edgekit.targets import releases
    from edgekit.targets.jetpack import tensorrt_of_jetpack
    from edgekit.targets.loader import get

    board = get(target)
    if jetpack is not None:
        tensorrt = tensorrt_of_jetpack(board, jetpack)
    return releases.release_for(board, tensorrt)


def need_torch() -> None:
    """Raises the error of a machine without PyTorch.

    Raises:
        EnvironmentLack: ``torch.missing``.
    """
    from importlib.util import find_spec

    lacking = [name for name in ("torch", "onnxscript") if find_spec(name) is None]
    if lacking:
        raise EnvironmentLack(
            f"{' and '.join(lacking)} must be installed to export a PyTorch network",
            code="torch.missing",
            hint="pip install 'edgekit[torch]'",
        )


def _dynamic(
    parameters: Sequence[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    inputs: Mapping[str, str] | None,
) -> UsageError:
    sizes = listed(f"{name} {text}" for name, text in (inputs or {}).items())
    with contextlib.suppress(UsageError):  # without an example
        call = call_of(parameters, args, kwargs or {})
        sizes = sizes or size_words(dict(zip(call.names, call.tensors, strict=True)))
    return UsageError(
        "a network for TensorRT has one size: dynamic_shapes is refused",
        code="torch.dynamic_shapes",
        hint="leave dynamic_shapes out and give inputs of the size that you need"
        + (f" (the example's: {sizes})" if sizes else "")
        + "; export once for each size",
    )
