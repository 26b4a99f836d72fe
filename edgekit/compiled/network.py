"""``compile_network``: export, plan and build composed; the result is called like the module."""

from __future__ import annotations

import warnings
import weakref
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import Self

from edgekit.benchmark.measurement import CPU_MEASURED
from edgekit.bundles.files import write
from edgekit.compiled import compilation_cache
from edgekit.compiled.calls import bind_tensors, first_device
from edgekit.compiled.cut import Cut
from edgekit.compiled.document import Compiled, PlacedModule
from edgekit.compiled.onnx_file import is_onnx, onnx_file
from edgekit.compiled.parts import Building, Part, board_section
from edgekit.compiled.same_structure import with_structure
from edgekit.compiled.saving import network_bundle
from edgekit.compiled.table import ONNX_RUNTIME, placed_modules
from edgekit.config.loader import config_name, open_config
from edgekit.errors import DataError, UsageError
from edgekit.network.left_modules import CompiledPart
from edgekit.pytorch.chain import array_step, run_steps
from edgekit.pytorch.export import export_with_network, release_for
from edgekit.text import PYTORCH, counted, listed
from edgekit_device.errors import family

if TYPE_CHECKING:
    from edgekit.pipeline.progress import Progress
    from edgekit.pipeline.steps.deploy import Deployed
    from edgekit.placement.plan import Plan
    from edgekit.pytorch.document import Exported
    from edgekit.pytorch.networks import Network

_Versions: TypeAlias = "tuple[tuple[int, ...], ...]"
# a part's number follows
_LONGEST_NAME = 60
_MOST_VALUES = 256  # values of a tensor in the checksum of each call, which must be cheap
_REFITTED = (
    "only the weights differ from those that it was placed and built with: its engines took the "
    "new ones"
)


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
    """Exports, places and builds a network, and returns an object that is called like it.

    Args:
        source: As for ``export``; or an ONNX file (without PyTorch), whose inputs are its
            arguments.
        args: The example's positional arguments.
        kwargs: The example's keyword arguments.
        target: The board's kind.
        leave: Globs of the modules that stay in PyTorch.
        pin: Device by glob of modules or layers: ``{"model.10.*": "gpu"}``.
        calibration: Inputs for INT8 scales, each like a call: a tensor, a tuple of arguments, or a
            dict of keyword arguments. Or the configuration's section.
        board: "USER@HOST" on which it is built and run; None: the first of ``deploy.boards``, or
            this machine's CPU if there is none.
        inputs: Sizes instead of an example.
        exporter: "dynamo" or "legacy".
        trust: SHA-256 of a file whose pickle may be executed.
        out: The folder for parts and bundles; ``edgekit-out`` if None.
        progress: Called with the steps' progress.
        consents: Consents for ``Pipeline``: ``accept_host_key``, ``trust_key``, ``again``.
        options: Other keys of the configuration.

    Raises:
        EdgekitError: As of ``export``, ``plan``, ``bundle`` and ``deploy``.
    """
    # the exporter's, not a key of the configuration
    sizes = options.pop("dynamic_shapes", None)

    # refuse a wrong key before the export; a built-in network replaces the parts here
    keys = {key: value for key, value in options.items() if key != "model"}
    _ = open_config("builtin:light_squeezenet", target=target, **keys)
    release = release_for(target, options.get("tensorrt"), None)

    def export(module: Any) -> tuple[Exported, Network | None]:
        if is_onnx(module):
            refused = {"exporter": exporter, "trust": trust, "dynamic_shapes": sizes}
            if unused := [key for key, value in refused.items() if value]:
                raise UsageError(
                    f"{unused[0]} is for PyTorch networks, and this is an ONNX file",
                    code="torch.source",
                    where=unused[0],
                    hint=f"leave {unused[0]} out",
                )
            globs = (leave,) if isinstance(leave, str) else leave
            return onnx_file(
                Path(module),
                args,
                kwargs or {},
                release=release,
                inputs=inputs or {},
                leave=globs,
            ), None
        return export_with_network(
            module,
            args,
            kwargs,
            release=release,
            inputs=inputs,
            exporter=exporter,
            trust=trust,
            leave=leave,
            dynamic_shapes=sizes,
        )

    exported, network = export(source)
    if exported.dimensions:
        given = listed(
            f"{tensor.name} {'x'.join(map(str, tensor.shape))}" for tensor in exported.inputs
        )
        raise UsageError(
            "a compiled network has one size, and sizes of this one vary",
            code="torch.dynamic_shapes",
            hint=f"leave dynamic_shapes and ranges out (the example's sizes: {given}), or plan it "
            "for its range with edgekit.plan",
        )
    batches = None if calibration is None or isinstance(calibration, Mapping) else calibration
    notes: list[str] = []
    if batches is not None and (precision := options.get("precision", "int8")) != "int8":
        batches = None
        notes = [f"calibration is not read: {precision} has no scales"]
    # a module's class name, without the package
    made_of = str(source) if network is None else exported.source.rpartition(".")[2]
    # the name of the whole; each part gets a name of its own
    name = str(options.pop("name", None) or "") or config_name(made_of)[:_LONGEST_NAME]
    cut = Cut(exported, network, name, out or Path("edgekit-out"))
    if isinstance(calibration, Mapping):
        options["calibration"] = calibration
    deploy = dict(options.pop("deploy", None) or {})
    if board is not None:
        deploy["boards"] = [board_section(board)]
    boards = deploy.get("boards")
    building = Building(
        options={**options, "target": target, "deploy": deploy},
        pins=pin or {},
        board=(board or str(boards[0]["host"])) if boards else None,
        out=cut.out,
        progress=progress,
        consents=consents or {},
        left=list(dict.fromkeys(call.module for call in exported.left)),
    )
    # inputs of a part are computed by the parts before it, so calibration needs the whole network
    data = [] if batches is None else cut.calibration(batches)
    configs = building.configurations(cut.files, data)
    key = compilation_cache.key(exported, name, building)
    before = (
        None
        # INT8 scales follow from the weights: other weights need another calibration
        if any(config.file.precision == "int8" for config in configs)
        else compilation_cache.find(key)
    )
    built = None
    # with equal weights the build below finds everything in the cache
    if before is not None and before.weights != exported.weights:
        built = _refit_parts(Cut(before, network, name, cut.out), cut, building)
    if built is None:
        compilation_cache.remember(key, exported)
        built = [
            Part(building, config, part) for config, part in zip(configs, cut.compiled, strict=True)
        ]
    return CompiledNetwork(source, cut, built, building, export, notes)


def _refit_parts(before: Cut, cut: Cut, building: Building) -> list[Part] | None:
    """Returns the parts of an earlier compilation with a network's weights; None if its engines
    cannot be refitted.
    """
    configs = building.configurations(before.files, [])
    try:
        return [
            Part(building, config, part, weights)
            for config, part, weights in zip(configs, cut.compiled, cut.files.values(), strict=True)
        ]
    except (DataError, UsageError) as error:
        # any other error would end a new build, too
        if family(error.code) != "refit":
            raise
        return None


class CompiledNetwork:
    """A compiled network; call it as the module is called.

    Without a board it runs on this machine's CPU, with the numerics of the target's precisions but
    not its times. With a board, the compiled parts run there and the left-out modules run here; the
    connection stays open until ``close``, or the end of a ``with`` block.

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
        notes: Sequence[str],
    ) -> None:
        self._source, self._cut, self._built = source, cut, tuple(built)
        self._building, self._export = building, export
        self._weights = self._noticed = _weight_versions(source)
        self._times, self._notes = cut.times(), tuple(notes)
        # not __del__: it would also run while the interpreter ends, when modules are gone
        weakref.finalize(self, building.close)
        self._link_parts()

    def __repr__(self) -> str:
        parts = counted(len(self._built), "compiled part")
        left = counted(len(self._cut.exported.left), "left-out call")
        where = self._building.board or "this machine's CPU"
        return (
            f"<CompiledNetwork {self._cut.name} for {self._building.options['target']}: {parts}, "
            f"{left}, on {where}>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection to the board; a later call opens another connection."""
        self._building.close()

    def _link_parts(self) -> None:
        steps, rows = [], []
        built = iter(self._built)
        where = ONNX_RUNTIME if self._cut.left is None else PYTORCH
        for part in self._cut.parts:
            if isinstance(part, CompiledPart):
                made = next(built)
                steps.append(array_step(part.inputs, part.outputs, made.run))
                # inputs that other parts compute cross a border; the network's own do not
                outside = set(part.inputs) - {tensor.name for tensor in self._cut.exported.inputs}
                rows += placed_modules(made.layers, made.document.plan, outside)
            else:
                steps.append(self._cut.left_step(part))
                us = self._times.get(part.call)
                rows.append(
                    PlacedModule(
                        module=part.module,
                        where=where,
                        us=us,
                        bytes=part.bytes,
                        clock="unknown" if us is None else CPU_MEASURED,
                    )
                )
        self._steps = steps
        documents = [part.document for part in self._built]
        notes = [*self._cut.exported.notes, *self._notes]
        if any(part.refitted for part in self._built):
            notes.append(_REFITTED)
        notes += [note for document in documents for note in document.plan.notes]
        self.report = Compiled(
            schema="edgekit.compiled/1",
            target=str(self._building.options["target"]),
            board=self._building.board,
            exported=self._cut.exported,
            parts=documents,
            modules=rows,
            notes=list(dict.fromkeys(notes)),
        )

    @property
    def plan(self) -> Plan:
        """The placement of a network with a single compiled part; see ``plans`` for several.

        Raises:
            UsageError: "compile.parts": there are several parts, or none.
        """
        if len(self.plans) != 1:
            raise UsageError(
                f"the network has {counted(len(self.plans), 'compiled part')}, each with a plan",
                code="compile.parts",
                where="plan",
                hint="net.plans has them in order",
            )
        return self.plans[0]

    @property
    def plans(self) -> list[Plan]:
        """The placements of the compiled parts, in order."""
        return [part.plan for part in self.report.parts]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the network once, with the module's own arguments.

        Returns:
            The module's result: tensors in its types, on the device of the first input. For an ONNX
            file its output, or a tuple of its outputs in order: tensors if an argument is a tensor,
            NumPy arrays otherwise.

        Raises:
            UsageError: "torch.inputs": other arguments, sizes or types than the example's.
        """
        # warns once for each change: the method updates ``_noticed``
        self._warn_of_changes(self._noticed)
        values = bind_tensors(self._cut.exported, args, kwargs)
        known = run_steps(self._steps, values)
        return self._cut.result(known, first_device(values.values()))

    def _warn_of_changes(self, known: _Versions) -> None:
        """Warns, at the caller of the public method, if the weights have changed."""
        self._noticed = _weight_versions(self._source)
        if self._noticed != known:
            warnings.warn(
                "the module's weights changed after it was compiled, and the old ones are used: "
                "refit() takes the new ones",
                stacklevel=3,
            )

    def save(self, path: str | Path, *, python: Mapping[str, str] | None = None) -> Path:
        """Writes a signed bundle of the whole network, for ``edgekit.load`` and
        ``edgekit_device.load``; returns its file (``.ekb``) or folder.

        A module that stays in PyTorch becomes an ONNX file in the bundle, which ONNX Runtime runs
        on the CPU of the machine that loads it. Weights that changed after the compilation are not
        included; a warning reports this, as in ``deploy``.

        Args:
            path: A name that ends in ``.ekb`` gives a file, any other name a folder.
            python: "package.module:factory" by glob of the modules that become Python parts
                instead: the factory's source file and the module's state, which PyTorch runs on
                the machine that loads the bundle, if a known key signed it.

        Raises:
            UsageError: "compile.left", "compile.python": a module cannot become an ONNX file, or a
                Python part; "compile.save": no part is compiled, or a glob matches no module.
        """
        self._warn_of_changes(self._weights)
        bundle = network_bundle(self._cut, self._built, python or {})
        return write(self._built[0].signed(bundle), path, stripped=False)

    def deploy(self, board: str | None = None) -> list[Deployed]:
        """Installs the compiled parts on a board: "USER@HOST", or the board of the compilation.

        Raises:
            UsageError: "compile.board": there is no board.
        """
        if board is None and self._building.board is None:
            raise UsageError(
                "there is no board to deploy to",
                code="compile.board",
                hint='name one: net.deploy("user@host")',
            )
        self._warn_of_changes(self._weights)
        return [part.deploy(board) for part in self._built]

    def refit(self, model: Any = None) -> None:
        """Takes the weights of a module with the same structure; engines and scales are kept.

        Args:
            model: A module, program, file or factory, of the compiled kind; for an ONNX file,
                another ONNX file. None: the current weights of the compiled module.

        Raises:
            UsageError: "compile.structure": the network's structure differs.
        """
        source = self._source if model is None else model
        if is_onnx(source) != (self._cut.exported.kind == "onnx"):
            known = {True: "an ONNX file", False: "a PyTorch network"}
            raise UsageError(
                f"{known[is_onnx(source)]} is given, and {known[not is_onnx(source)]} was compiled",
                code="compile.structure",
                hint="give the compiled network, with other weights",
            )
        try:
            exported, network = self._export(source)
        except UsageError as error:
            # if a glob of ``leave`` matches no module, this is another network
            if family(error.code) != "torch" or error.where != "leave":
                raise
            raise UsageError(
                "the network is another one than the compiled one, of which modules are left out: "
                f"{error.message}",
                code="compile.structure",
                hint="compile it: edgekit.compile(model, ...)",
            ) from error
        exported = with_structure(self._cut.exported, exported)
        cut = Cut(exported, network, self._cut.name, self._cut.out)
        for part, path in zip(self._built, cut.files.values(), strict=True):
            part.refit(path)
        # a module's time depends on the runtime (PyTorch or ONNX Runtime), not on its weights
        if (cut.left is None) != (self._cut.left is None):
            self._times = cut.times()
        self._source, self._cut = source, cut
        self._weights = self._noticed = _weight_versions(source)
        self._link_parts()


def _weight_versions(source: Any) -> _Versions:
    """Returns a state that changes with a module's weights: the tensors, their version counters,
    and checksums of some values, since PyTorch does not count writes through ``.data``.
    """
    # a file was read once: later changes have no effect
    if isinstance(source, str | Path):
        return ()
    import torch

    every = [*source.parameters(), *source.buffers()]
    samples = defaultdict(list)
    for tensor in every:
        flat = tensor.detach().reshape(-1)
        samples[tensor.dtype, tensor.device].append(flat[:: -(-len(flat) // _MOST_VALUES) or 1])
    # a single copy from each device: a call must not wait for each tensor
    read = [torch.cat(some).cpu().view(torch.uint8).numpy() for some in samples.values()]
    counts = ((id(item), item._version) for item in every)
    return (*counts, tuple(zlib.crc32(memoryview(array)) for array in read))
