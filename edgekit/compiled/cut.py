"""``Cut``: an exported network, cut at the modules that stay in PyTorch."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from edgekit.bundles.manifest import tensor_io
from edgekit.compiled.calls import bind_tensors, convert_outputs
from edgekit.errors import DataError, ModelError, UsageError
from edgekit.files import read_file, write_atomically
from edgekit.network.left_modules import CompiledPart, LeftModule, parts
from edgekit.network.model import Tensor as NetworkTensor
from edgekit.network.protos import reads
from edgekit.pytorch.chain import Step, array, open_steps, run_steps, session_step, torch_step
from edgekit.pytorch.signature import rebuild
from edgekit.text import listed
from edgekit_device.arrays.npz import write_npz
from edgekit_device.runtime.golden import golden_inputs

if TYPE_CHECKING:
    from edgekit.pytorch.document import Exported, Tensor
    from edgekit.pytorch.left import LeftOut
    from edgekit.pytorch.networks import Network
    from edgekit.pytorch.signature import Values
    from edgekit_device.protocol.manifest import TensorEntry

#: Most calibration inputs that are read from an iterable, which may be endless.
_MOST_BATCHES = 512
_LARGEST = 1 << 31  # bytes of an ONNX file
#: Seed of generated inputs.
SEED = 7
# runs of a left-out module after a warm-up; the shortest counts, since other work only adds time
_LEAST_RUNS, _MOST_RUNS, _SECONDS = 10, 200, 0.5


def entries(tensors: Sequence[Tensor]) -> list[TensorEntry]:
    """Returns inputs or outputs of an export as manifest entries."""
    return [
        tensor_io(NetworkTensor(tensor.name, tuple(tensor.shape), tensor.type))
        for tensor in tensors
    ]


def ranges(inputs: Sequence[Tensor]) -> dict[str, tuple[float, float]]:
    """Returns the smallest and the largest value of each input's example; 0 and 1 without an
    example.
    """
    return {tensor.name: tensor.range or (0.0, 1.0) for tensor in inputs}


class Cut:
    """An exported network, cut at the modules that stay in PyTorch.

    Attributes:
        exported: The export.
        network: The exported network; None for an ONNX file, or if a separate process loaded it.
        name: The application's name, from which the parts' names are derived.
        out: The folder for files.
        parts: Compiled parts and calls of left-out modules, in the order of the network.
        files: The ONNX file of each compiled part by the part's name.
    """

    def __init__(self, exported: Exported, network: Network | None, name: str, out: Path) -> None:
        self.exported, self.network, self.name, self.out = exported, network, name, out
        # parts are written as files of their own, so only a cut needs the weights
        model = onnx.load(exported.file, load_external_data=bool(exported.left))
        if not exported.left:
            # a build drops unused inputs
            read = {name for node in model.graph.node for name in reads(node)}
            inputs = tuple(tensor.name for tensor in exported.inputs if tensor.name in read)
            outputs = tuple(tensor.name for tensor in exported.outputs)
            self.parts: list[CompiledPart | LeftModule] = [CompiledPart(model, inputs, outputs)]
            self.files = {name: Path(exported.file)}
            return
        self.parts, self.files = parts(model), {}
        for number, part in enumerate(self.compiled, 1):
            # beside the export: other weights for these engines have other files
            path = Path(exported.file).with_name(f"part-{number}.onnx")
            with write_atomically(path) as temporary:
                temporary.write_bytes(part.model.SerializeToString())
            self.files[f"{name}-{number}"] = path

    @property
    def compiled(self) -> list[CompiledPart]:
        """The compiled parts."""
        return [part for part in self.parts if isinstance(part, CompiledPart)]

    @property
    def left(self) -> LeftOut | None:
        """The modules that stay in PyTorch; None if there are none, or ONNX Runtime runs them."""
        return None if self.network is None else self.network.left

    def example(self) -> dict[str, Values]:
        """Returns the example's inputs by name; if unknown, values in its ranges."""
        if self.network is not None:
            call = self.network.call
            return dict(zip(call.names, call.tensors, strict=True))
        inputs = self.exported.inputs
        return dict(golden_inputs(entries(inputs), SEED, ranges(inputs)))

    def times(self) -> dict[int, float]:
        """Measures left-out modules on this machine's CPU, on the example.

        Returns:
            Microseconds by call, the shortest of 10 to 200 runs after a warm-up. Modules on another
            device, or that fail on values in the example's ranges, are omitted.
        """
        if not self.exported.left:
            return {}
        # timed runs must not change a stateful module
        left = None if self.left is None else self.left.with_own_state()
        found: dict[int, float] = {}

        def time_part(part: LeftModule) -> Step:
            step = self.left_step(part) if left is None else torch_step(part, left)

            def run(values: Sequence[Values]) -> Sequence[Values]:
                made, seconds = step.run(values), list[float]()
                while len(seconds) < _LEAST_RUNS or (
                    len(seconds) < _MOST_RUNS and sum(seconds) < _SECONDS
                ):
                    start = time.perf_counter()
                    step.run(values)
                    seconds.append(time.perf_counter() - start)
                device = None if left is None else left.calls[part.call].device
                # the clock does not see the asynchronous work of a GPU
                if device is None or device.type == "cpu":
                    found[part.call] = 1e6 * min(seconds)
                return made

            return Step(step.inputs, step.outputs, run)

        # a module may refuse values that are not from the example
        with contextlib.suppress(ModelError):
            run_steps(open_steps(Path(self.exported.file), time_part), self.example())
        return found

    def left_step(self, part: LeftModule) -> Step:
        """Returns the step of a left-out module, run by PyTorch or from its ONNX file."""
        if self.left is not None:
            return torch_step(part, self.left)
        return session_step(self.left_file(part), part.module)

    def left_file(self, part: LeftModule) -> bytes:
        """Returns the ONNX file of a left-out module that does not stay in PyTorch."""
        return read_file(Path(self.exported.left[part.call].file), _LARGEST)

    def calibration(self, batches: Iterable[Any]) -> list[Path]:
        """Writes the inputs of each compiled part as an .npz, computed in FP32.

        Raises:
            DataError: "calibration.empty": there are no inputs.
            UsageError: "torch.inputs": they do not fit, or are no iterable.
        """
        sizes = listed(
            f"{tensor.name} {'x'.join(map(str, tensor.shape))}:{tensor.torch_type}"
            for tensor in self.exported.inputs
        )
        hint = f"give an iterable of inputs, each like one call: {sizes}"
        if isinstance(batches, str | Path):
            hint = f'a path is a key of the configuration: calibration={{"data": "{batches}"}}'
        if isinstance(batches, str | Path) or not hasattr(batches, "__iter__"):
            raise UsageError(
                f"calibration is a {type(batches).__name__}, and no iterable of inputs",
                code="torch.inputs",
                where="calibration",
                hint=hint,
            )
        steps = open_steps(Path(self.exported.file), self.left_step)
        found: list[dict[str, list[np.ndarray]]] = [
            {name: [] for name in part.inputs} for part in self.compiled
        ]
        for number, batch in enumerate(itertools.islice(batches, _MOST_BATCHES)):
            args, kwargs = ((), batch) if isinstance(batch, Mapping) else (batch, {})
            # data loaders give lists
            args = tuple(args) if isinstance(args, list) else args
            try:
                given = bind_tensors(self.exported, args, kwargs)
            except UsageError as error:
                raise UsageError(
                    f"calibration input {number}: {error.message}",
                    code=error.code,
                    where=f"calibration[{number}]",
                    hint=hint,
                ) from error
            known = run_steps(steps, given)
            for rows in found:
                for name, values in rows.items():
                    values.append(array(known[name]))
        # calibration is no call: a stateful module forgets its inputs
        if self.left is not None:
            self.left.reset()
        if not any(values for rows in found for values in rows.values()):
            raise DataError(
                "there are no calibration inputs",
                code="calibration.empty",
                hint="an iterator that was read to its end has none left: give a list",
            )
        paths = []
        for name, rows in zip(self.files, found, strict=True):
            data = write_npz({key: np.stack(values) for key, values in rows.items()})
            # another compilation with the same name has other inputs
            digest = hashlib.sha256(data).hexdigest()
            path = self.out / name / f"calibration-{digest[:12]}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(path) as temporary:
                temporary.write_bytes(data)
            paths.append(path)
        return paths

    def result(self, known: Mapping[str, Values], device: Any) -> Any:
        """Returns the module's result, made from its outputs by name; NumPy arrays if ``device`` is
        None.
        """
        outputs = convert_outputs(self.exported.outputs, known, device)
        if self.network is not None:
            return self.network.result.like(outputs.values())
        return rebuild(self.exported.result, outputs)
