"""``compile_network``: export, plan and build composed; the result is called like the module."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from edgekit.compiled.document import Compiled, PlacedModule
from edgekit.compiled.parts import Building, Part, board_section
from edgekit.compiled.table import PYTORCH, placed_modules
from edgekit.config.loader import name_of
from edgekit.errors import DataError, UsageError
from edgekit.files import write_atomically
from edgekit.network.left_modules import CompiledPart, LeftPart, parts
from edgekit.pytorch.agreement import array
from edgekit.pytorch.chain import array_step, left_step, run_steps, steps_of_file
from edgekit.pytorch.export import export_with_network, release_for
from edgekit.pytorch.signature import call_of, rebuild, size_of, torch_type
from edgekit.text import listed
from edgekit_device.arrays.npz import write_npz

if TYPE_CHECKING:
    from torch import Tensor

    from edgekit.pipeline.progress import Progress
    from edgekit.pipeline.steps.deploy import Deployed
    from edgekit.placement.plan import Plan
    from edgekit.pytorch.document import Exported
    from edgekit.pytorch.left import LeftOut
    from edgekit.pytorch.networks import Network

#: How much is read of an iterable of calibration inputs, which may be endless.
_MOST_BATCHES = 512
# a part's number follows
_LONGEST_NAME = 60


def compile_network(
    source: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    target: str,
    leave: Sequence[str] = (),
    pin: Mapping[str, str] | None = None,
    calibration: Iterable[Any] | Mapping[str, Any] | None = None,
    board: str | None = None,
    inputs: Mapping[str, str] | None = None,
    exporter: str | None = None,
    trust: str | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
    consents: Mapping[str, bool] | None = None,
    **options: Any,
) -> CompiledNetwork:
    """Exports, places and builds a network, and returns something that is called like it.

    Args:
        source: As for ``export``.
        args: The example's positional arguments.
        kwargs: The example's keyword arguments.
        target: The board's kind.
        leave: Globs of the modules that stay in PyTorch.
        pin: Device by glob of modules or layers: ``{"model.10.*": "gpu"}``.
        calibration: Inputs for INT8 scales, each like a call: a tensor, a tuple of arguments, or a
            dict of keyword arguments. Or the configuration's section.
        board: "USER@HOST", where it is built and run; None: the first of ``deploy.boards``, or this
            machine's CPU without any.
        inputs: Sizes in the place of an example.
        exporter: "dynamo" or "legacy".
        trust: SHA-256 of a file whose pickle may be run.
        out: The folder for parts and bundles; ``edgekit-out`` when None.
        progress: Called with the steps' progress.
        consents: Of ``Pipeline``: ``accept_host_key``, ``trust_key``, ``again``.
        options: Other keys of the configuration.

    Raises:
        EdgekitError: As of ``export``, ``plan``, ``bundle`` and ``deploy``.
    """
    release = release_for(target, options.get("tensorrt"), None)

    def export(module: Any) -> tuple[Exported, Network | None]:
        return export_with_network(
            module, args, kwargs, release=release, inputs=inputs, exporter=exporter, trust=trust,
            leave=leave,
        )  # fmt: skip

    exported, network = export(source)
    # of a module its class, without the package
    made_of = str(source) if network is None else exported.source.rpartition(".")[2]
    name = str(options.pop("name", "")) or name_of(made_of)[:_LONGEST_NAME]
    cut = Cut(exported, network, name, out or Path("edgekit-out"))
    if isinstance(calibration, Mapping):
        options["calibration"] = calibration
    deploy = dict(options.pop("deploy", None) or {})
    if board is not None:
        deploy["boards"] = [board_section(board)]
    boards = deploy.get("boards")
    building = Building(
        options={**options, "target": target, "deploy": deploy}, pins=pin or {},
        board=(board or str(boards[0]["host"])) if boards else None, out=cut.out,
        progress=progress, consents=consents or {},
    )  # fmt: skip
    batches = None if calibration is None or isinstance(calibration, Mapping) else calibration
    data = [] if batches is None else cut.calibration(batches)
    configs = building.configurations(cut.files, data)
    built = [
        Part(building, config, part) for config, part in zip(configs, cut.compiled, strict=True)
    ]
    return CompiledNetwork(source, cut, built, building, export)


class Cut:
    """An exported network, cut at the modules that stay in PyTorch.

    Attributes:
        exported: The export.
        network: What was exported; None where a process of its own loaded it.
        out: The folder for files.
        parts: Compiled parts and calls of left-out modules, in the order of the network.
        files: The ONNX file of each compiled part by the part's name.
    """

    def __init__(self, exported: Exported, network: Network | None, name: str, out: Path) -> None:
        self.exported, self.network, self.out = exported, network, out
        model = onnx.load(exported.file, load_external_data=bool(exported.left))
        if not exported.left:
            inputs = tuple(one.name for one in exported.inputs)
            outputs = tuple(one.name for one in exported.outputs)
            self.parts: list[CompiledPart | LeftPart] = [CompiledPart(model, inputs, outputs)]
            self.files = {name: Path(exported.file)}
            return
        self.parts, self.files = parts(model), {}
        for number, part in enumerate(self.compiled, 1):
            path = out / f"{name}-{number}" / "network.onnx"
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(path) as temporary:
                temporary.write_bytes(part.model.SerializeToString())
            self.files[f"{name}-{number}"] = path

    @property
    def compiled(self) -> list[CompiledPart]:
        """The compiled parts."""
        return [part for part in self.parts if isinstance(part, CompiledPart)]

    @property
    def left(self) -> LeftOut | None:
        """The modules that stay in PyTorch; None without any."""
        return None if self.network is None else self.network.left

    def tensors(self, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
        """Returns the tensors of a call by input name.

        Raises:
            UsageError: "torch.inputs": other arguments, sizes or types than the example's.
        """
        given = args if isinstance(args, tuple) else (args,)
        known = {one.name: one for one in self.exported.inputs}
        if self.network is None:
            spare = [name for name in known if name not in kwargs][: len(given)]
            names = [*spare, *(name for name in kwargs if name in known)]
            call = call_of((), given, kwargs, names)
        else:
            call = self.network.bind(given, kwargs)
            if dict(call.constants) != dict(self.network.call.constants):
                raise UsageError(
                    f"the network was compiled with {dict(self.network.call.constants)}, and "
                    f"called with {dict(call.constants)}",
                    code="torch.inputs", hint="compile it again for other arguments",
                )  # fmt: skip
        found = dict(zip(call.names, call.tensors, strict=True))
        for name in [*known, *found]:
            wanted, tensor = known.get(name), found.get(name)
            if wanted is None:
                problem, hint = f"there is no input {name!r}", f"the inputs are {listed(known)}"
            else:
                size = f"{'x'.join(map(str, wanted.shape))}:{wanted.torch_type}"
                hint = f"it was compiled for {size}; compile it again for another size or type"
                if tensor is None:
                    problem = f"input {name!r} is missing"
                elif size_of(tensor) != size:
                    problem = f"input {name!r} is {size_of(tensor)}"
                else:
                    continue
            raise UsageError(problem, code="torch.inputs", where=name, hint=hint)
        return {name: found[name] for name in known}

    def calibration(self, batches: Iterable[Any]) -> list[Path]:
        """Writes the inputs of each compiled part as an .npz; modules run in FP32 for them.

        Raises:
            DataError: "calibration.empty": there are none.
            UsageError: "torch.inputs": they do not fit.
        """
        steps = steps_of_file(Path(self.exported.file), self.left)
        found: list[dict[str, list[np.ndarray]]] = [
            {name: [] for name in part.inputs} for part in self.compiled
        ]
        for batch in itertools.islice(batches, _MOST_BATCHES):
            args, kwargs = ((), batch) if isinstance(batch, Mapping) else (batch, {})
            args = tuple(args) if isinstance(args, list) else args
            known = run_steps(steps, self.tensors(args, kwargs))
            for rows in found:
                for name, values in rows.items():
                    values.append(array(known[name]))
        if not any(values for rows in found for values in rows.values()):
            raise DataError(
                "there are no calibration inputs", code="calibration.empty",
                hint="an iterator that was read to its end has none left: give a list",
            )  # fmt: skip
        paths = []
        for name, rows in zip(self.files, found, strict=True):
            path = self.out / name / "calibration.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(path) as temporary:
                temporary.write_bytes(
                    write_npz({key: np.stack(values) for key, values in rows.items()})
                )
            paths.append(path)
        return paths

    def result(self, known: Mapping[str, Tensor], device: Any) -> Any:
        """Returns what the module returns, of tensors by name."""
        outputs = {
            one.name: known[one.name].to(device=device, dtype=torch_type(one.torch_type))
            for one in self.exported.outputs
        }
        if self.network is not None:
            return self.network.result.like(outputs.values())
        return rebuild(self.exported.result, outputs)


class CompiledNetwork:
    """A compiled network; call it as the module is called.

    Without a board it runs on this machine's CPU, with the values of the target's precisions and
    not its times. With one, the compiled parts run there, and the modules left out run here.

    Attributes:
        report: Parts, modules and their places.
    """

    def __init__(
        self,
        source: Any,
        cut: Cut,
        built: Sequence[Part],
        building: Building,
        export: Callable[[Any], tuple[Exported, Network | None]],
    ) -> None:
        self._source, self._cut, self._built = source, cut, tuple(built)
        self._building, self._export = building, export
        self._weights = _versions(source)
        self._link()

    def _link(self) -> None:
        steps, rows = [], []
        built, left = iter(self._built), self._cut.left
        for part in self._cut.parts:
            if isinstance(part, CompiledPart):
                made = next(built)
                steps.append(array_step(part.inputs, part.outputs, made.run))
                rows += placed_modules(made.layers, made.document.plan)
            else:
                assert left is not None  # an export with such nodes has them
                steps.append(left_step(part, left))
                rows.append(
                    PlacedModule(
                        module=part.module, where=PYTORCH, us=None, clock="unknown",
                        bytes=part.bytes,
                    )
                )  # fmt: skip
        self._steps = steps
        documents = [part.document for part in self._built]
        notes = [*self._cut.exported.notes, *(note for one in documents for note in one.plan.notes)]
        self.report = Compiled(
            schema="edgekit.compiled/1", target=str(self._building.options["target"]),
            board=self._building.board, exported=self._cut.exported, parts=documents, modules=rows,
            notes=list(dict.fromkeys(notes)),
        )  # fmt: skip

    @property
    def plan(self) -> Plan:
        """The placement of the network; of its first part, where it has several."""
        return self.report.parts[0].plan

    @property
    def plans(self) -> list[Plan]:
        """The placements of the compiled parts, in order."""
        return [part.plan for part in self.report.parts]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the network once, with the module's own arguments.

        Returns:
            What the module returns: tensors in its types, on the device of the first input.

        Raises:
            UsageError: "torch.inputs": other arguments, sizes or types than the example's.
        """
        if _versions(self._source) != self._weights:
            self._weights = _versions(self._source)
            warnings.warn(
                "the module's weights changed after it was compiled, and the old ones are used: "
                "refit() takes the new ones",
                stacklevel=2,
            )
        tensors = self._cut.tensors(args, kwargs)
        device = next(iter(tensors.values())).device
        return self._cut.result(run_steps(self._steps, tensors), device)

    def save(self, path: str | Path) -> None:
        """Writes the signed bundle with its weights, for ``edgekit_device.load``.

        Raises:
            UsageError: "compile.save": modules stay in PyTorch.
        """
        if self._cut.exported.left:
            raise UsageError(
                "modules of this network stay in PyTorch, and a bundle holds none of these",
                code="compile.save",
                hint="the compiled parts' bundles are "
                + listed(str(part.bundle) for part in self._built),
            )
        with write_atomically(Path(path)) as temporary:
            temporary.write_bytes(self._built[0].bundle.read_bytes())

    def deploy(self, board: str | None = None) -> list[Deployed]:
        """Installs the compiled parts on a board: "USER@HOST", or that of the compilation.

        Raises:
            UsageError: "compile.board": there is none.
        """
        if board is None and self._building.board is None:
            raise UsageError(
                "there is no board to deploy to", code="compile.board",
                hint='name one: net.deploy("user@host")',
            )  # fmt: skip
        return [part.deploy(board) for part in self._built]

    def refit(self, model: Any = None) -> None:
        """Takes the weights of a module of the same structure; engines and scales stay.

        Args:
            model: The module; the compiled one as it is now when None.

        Raises:
            UsageError: "compile.structure": its network is another one.
        """
        source = self._source if model is None else model
        exported, network = self._export(source)
        if exported.structure != self._cut.exported.structure:
            raise UsageError(
                "the module's network is another one than the compiled one",
                code="compile.structure",
                hint="compile it: edgekit.compile(model, ...)",
            )
        name = next(iter(self._cut.files)).removesuffix("-1" if exported.left else "")
        cut = Cut(exported, network, name, self._cut.out)
        for part, path in zip(self._built, cut.files.values(), strict=True):
            part.refit(path)
        self._source, self._cut, self._weights = source, cut, _versions(source)
        self._link()


def _versions(source: Any) -> tuple[tuple[int, int], ...]:
    """What changes when a module's weights do: the tensors, and how often each was written."""
    if isinstance(source, str | Path):
        return ()
    every = itertools.chain(source.parameters(), source.buffers())
    return tuple((id(one), one._version) for one in every)
