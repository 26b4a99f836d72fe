"""``Cut``: an exported network, cut at the modules that stay in PyTorch."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from edgekit.errors import DataError
from edgekit.files import read_file, write_atomically
from edgekit.network.left_modules import CompiledPart, LeftModule, parts
from edgekit.network.protos import reads
from edgekit.pytorch.chain import Step, array, run_steps, session_step, steps_of_file, torch_step
from edgekit.pytorch.signature import outputs_of, rebuild, tensors_of
from edgekit_device.arrays.npz import write_npz

if TYPE_CHECKING:
    from torch import Tensor

    from edgekit.pytorch.document import Exported
    from edgekit.pytorch.left import LeftOut
    from edgekit.pytorch.networks import Network

#: How much is read of an iterable of calibration inputs, which may be endless.
_MOST_BATCHES = 512
_LARGEST = 1 << 31  # bytes of an ONNX file


class Cut:
    """An exported network, cut at the modules that stay in PyTorch.

    Attributes:
        exported: The export.
        network: What was exported; None where a process of its own loaded it.
        name: The application's, of which the parts' names are made.
        out: The folder for files.
        parts: Compiled parts and calls of left-out modules, in the order of the network.
        files: The ONNX file of each compiled part by the part's name.
    """

    def __init__(self, exported: Exported, network: Network | None, name: str, out: Path) -> None:
        self.exported, self.network, self.name, self.out = exported, network, name, out
        model = onnx.load(exported.file, load_external_data=bool(exported.left))
        if not exported.left:
            # a build drops an input that nothing reads
            read = {name for node in model.graph.node for name in reads(node)}
            inputs = tuple(one.name for one in exported.inputs if one.name in read)
            outputs = tuple(one.name for one in exported.outputs)
            self.parts: list[CompiledPart | LeftModule] = [CompiledPart(model, inputs, outputs)]
            self.files = {name: Path(exported.file)}
            return
        self.parts, self.files = parts(model), {}
        for number, part in enumerate(self.compiled, 1):
            # beside the export: other weights, which take these engines, have other files
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
        """The modules that stay in PyTorch; None without any, or where ONNX Runtime runs them."""
        return None if self.network is None else self.network.left

    def left_step(self, part: LeftModule) -> Step:
        """Returns the step of a left-out module: PyTorch's, or that of its ONNX file."""
        if self.left is not None:
            return torch_step(part, self.left)
        return session_step(self.left_file(part), part.module)

    def left_file(self, part: LeftModule) -> bytes:
        """Returns the ONNX file of a left-out module that does not stay in PyTorch."""
        return read_file(Path(self.exported.left[part.call].file), _LARGEST)

    def calibration(self, batches: Iterable[Any]) -> list[Path]:
        """Writes the inputs of each compiled part as an .npz; modules run in FP32 for them.

        Raises:
            DataError: "calibration.empty": there are none.
            UsageError: "torch.inputs": they do not fit.
        """
        steps = steps_of_file(Path(self.exported.file), self.left_step)
        found: list[dict[str, list[np.ndarray]]] = [
            {name: [] for name in part.inputs} for part in self.compiled
        ]
        for batch in itertools.islice(batches, _MOST_BATCHES):
            args, kwargs = ((), batch) if isinstance(batch, Mapping) else (batch, {})
            args = tuple(args) if isinstance(args, list) else args
            known = run_steps(steps, tensors_of(self.exported, args, kwargs))
            for rows in found:
                for name, values in rows.items():
                    values.append(array(known[name]))
        if self.left is not None:
            self.left.reset()
        if not any(values for rows in found for values in rows.values()):
            raise DataError(
                "there are no calibration inputs", code="calibration.empty",
                hint="an iterator that was read to its end has none left: give a list",
            )  # fmt: skip
        paths = []
        for name, rows in zip(self.files, found, strict=True):
            data = write_npz({key: np.stack(values) for key, values in rows.items()})
            # another compilation of the same name has other inputs
            digest = hashlib.sha256(data).hexdigest()
            path = self.out / name / f"calibration-{digest[:12]}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(path) as temporary:
                temporary.write_bytes(data)
            paths.append(path)
        return paths

    def result(self, known: Mapping[str, Tensor], device: Any) -> Any:
        """Returns what the module returns, of tensors by name."""
        outputs = outputs_of(self.exported.outputs, known, device)
        if self.network is not None:
            return self.network.result.like(outputs.values())
        return rebuild(self.exported.result, outputs)
