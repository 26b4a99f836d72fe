"""The bundle of a compiled network: its parts, an ONNX file for each call of a left-out module, and
the call's signature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.bundles.files import read
from edgekit.bundles.join import CpuPart, join
from edgekit.bundles.manifest import Bundle, Golden, canonical
from edgekit.compiled.cut import SEED, entries, ranges
from edgekit.errors import UsageError
from edgekit.files import file_digest
from edgekit.network.left_modules import CompiledPart
from edgekit.network.module_names import fits_module
from edgekit.network.source import source_name
from edgekit.pytorch.chain import (
    Step,
    array,
    array_step,
    open_steps,
    run_steps,
    session_step,
    torch_step,
)
from edgekit.pytorch.left_parts import left_file, left_python
from edgekit.text import listed
from edgekit_device.protocol.codec import write
from edgekit_device.protocol.manifest import ModelSource, TensorEntry
from edgekit_device.runtime.golden import golden_inputs

if TYPE_CHECKING:
    from edgekit.compiled.cut import Cut
    from edgekit.compiled.parts import Part

# limits of max|a-b| / max|b|: ONNX Runtime rounds differently on other processors, INT8 in steps
_TOLERANCE = 0.02


def network_bundle(cut: Cut, built: Sequence[Part], python: Mapping[str, str]) -> Bundle:
    """Returns the unsigned bundle of a network.

    Args:
        cut: The network.
        built: Its compiled parts.
        python: "package.module:factory" by glob of the left-out modules that become Python parts;
            other modules become ONNX files.

    Raises:
        UsageError: "compile.left": a module that stays in PyTorch cannot become an ONNX file;
            "compile.python": a module cannot become a Python part; "compile.save": no part is
            compiled, or a glob of ``python`` matches no module.
        BundleError: "bundle.invalid": the parts do not fit together.
    """
    if not built:
        raise UsageError(
            "all of this network stays in PyTorch", code="compile.save", hint="leave out less"
        )
    exported = cut.exported
    factories = _python_factories(cut, python)
    # a build drops unused inputs, so the bundle may not ask for them
    read_by_parts = {name for part in cut.parts for name in part.inputs}
    inputs = entries([tensor for tensor in exported.inputs if tensor.name in read_by_parts])
    outputs = entries(exported.outputs)
    examples: dict[str, Any] = {}
    if cut.left is not None:
        # calling a stateful module would change the network's next results
        step = partial(torch_step, left=cut.left.with_own_state())
        examples = run_steps(open_steps(Path(exported.file), step), cut.example())
    parts: list[Bundle | CpuPart] = []
    steps: list[Step] = []
    made = iter(built)
    for part in cut.parts:
        if isinstance(part, CompiledPart):
            here = next(made)
            parts.append(read(here.bundle))
            steps.append(array_step(part.inputs, part.outputs, here.run))
        else:
            tensors = [examples[name] for name in part.inputs if cut.left is not None]
            if cut.left is not None and part.module in factories:
                code = left_python(cut.left.with_own_state(), part, tensors, factories[part.module])
                record = canonical(write(code.part))
                files = {"source": code.source, "state": code.state}
                parts.append(CpuPart(part.module, record, code.inputs, code.outputs, files))
                steps.append(array_step(code.inputs, code.outputs, code.run))
                continue
            data = (
                cut.left_file(part)
                if cut.left is None
                else left_file(cut.left, part, tensors, exported.tensorrt)
            )
            # a module may read one tensor twice, an ONNX graph declares it once
            unique = tuple(dict.fromkeys(part.inputs))
            parts.append(CpuPart(part.module, data, unique, part.outputs))
            steps.append(session_step(data, part.module))
    golden = []
    # a bundle of a single part has golden vectors of its own
    if len(parts) > 1:
        golden.append(_golden(steps, inputs, outputs, ranges(exported.inputs)))
    file = Path(exported.file)
    source = source_name(exported.source)
    # paths of this machine are no part of a bundle
    left = [replace(call, file="") for call in exported.left]
    document = exported.model_copy(
        update={"file": file.name, "source": source, "cached": False, "left": left}
    )
    return join(
        parts,
        name=cut.name,
        model=ModelSource(file_digest(file), source),
        inputs=inputs,
        outputs=outputs,
        golden=golden,
        call=document.model_dump(by_alias=True, exclude_unset=True, mode="json"),
    )


def _python_factories(cut: Cut, python: Mapping[str, str]) -> dict[str, str]:
    """Returns the factory of each module that becomes a Python part."""
    modules = list(dict.fromkeys(call.module for call in cut.exported.left))
    if python and modules and cut.left is None:
        raise UsageError(
            "a module of a program, file or factory cannot become a Python part",
            code="compile.python",
            where="python",
            hint="compile the torch.nn.Module itself, or save without python: it is an ONNX file",
        )
    found: dict[str, str] = {}
    for glob, factory in python.items():
        matched = [name for name in modules if fits_module(name, glob)]
        if not matched:
            raise UsageError(
                f"no module that stays in PyTorch matches {glob!r}",
                code="compile.save",
                where="python",
                hint=f"those that stay are {listed(modules) or 'none'}",
            )
        found |= dict.fromkeys(matched, factory)
    return found


def _golden(
    steps: Sequence[Step],
    inputs: Sequence[TensorEntry],
    outputs: Sequence[TensorEntry],
    within: Mapping[str, tuple[float, float]],
) -> Golden:
    """Returns a golden vector: the parts' current outputs for generated inputs."""
    known = run_steps(steps, golden_inputs(inputs, SEED, within))
    found = {tensor.name: array(known[tensor.name]) for tensor in outputs}
    return Golden(SEED, within, found, _TOLERANCE)
