"""``load``: from a path to a callable model, with checks of signature, manifest and digests. Inputs
are checked against the shapes and types that the network was built for.
"""

from __future__ import annotations

import difflib
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from edgekit_device.errors import DeviceError
from edgekit_device.files import check_kept
from edgekit_device.protocol.codec import parse_json, read
from edgekit_device.protocol.detection import Options
from edgekit_device.protocol.manifest import (
    CPU,
    Engines,
    Lane,
    Manifest,
    SegmentEntry,
    ShapeValues,
    TensorEntry,
    Variant,
)
from edgekit_device.release.changed import refuse_changed
from edgekit_device.release.releases import check_release
from edgekit_device.runtime.pipeline import (
    LaneRun,
    OnSegmentEvent,
    Turn,
    list_devices,
    run_alone,
    run_on_devices,
    run_stream,
    run_turns,
    share_frames,
)
from edgekit_device.runtime.variants import (
    OpenEngines,
    OpenVariants,
    Route,
    Router,
    need_loadables,
)
from edgekit_device.store.root import check_root, default_root
from edgekit_device.trust.bundle import (
    Checked,
    check_blobs,
    check_bundle,
    open_bundle,
    read_checked,
)
from edgekit_device.trust.signature import revoked_file

if TYPE_CHECKING:
    import numpy as np

    from edgekit_device.cuda.memory import DeviceTensor, Feeder
    from edgekit_device.detection.head import Head
    from edgekit_device.detection.results import Found


Inputs = Union["Mapping[str, np.ndarray]", "np.ndarray"]
#: Module by the manifest's "backend"; it has ``plan_memory(manifest, device_memory)`` and
#: ``open_engines(checked, threads, profile, segments, memory)``, which returns an object with
#: ``run(segment, feeds)`` by engine digest and device.
BACKENDS = {
    "reference": "edgekit_device.runtime.reference",
    "tensorrt": "edgekit_device.tensorrt.backend",
}


def _refuse_opening(segments: Sequence[SegmentEntry]) -> Engines:
    raise AssertionError("a variant alone has all of its engines")


class Model:
    """A loaded bundle; call it with inputs by name.

    Attributes:
        name: The bundle's name.
        digest: SHA-256 of its manifest.
        signer: Identity of its signer; None if accepted without a trusted signature.
        backend: Name of its backend; "reference" times are this CPU's, never a board's prediction.
        inputs: Name, dtype and shape of each input of the first variant.
        outputs: Name, dtype and shape of each output.
        variants: Its parts for each shape, or for a range of shapes (``sizes``, ``profiles``).
        lanes: The first variant's lanes.
        head: Decodes the outputs of a detector; None without.
    """

    def __init__(
        self, checked: Checked, engines: Engines, open_engines: OpenEngines = _refuse_opening
    ) -> None:
        manifest = checked.manifest
        self.name = manifest.name
        self.digest = manifest.digest
        self.signer = checked.signer
        self.backend = manifest.backend
        self.inputs = manifest.inputs
        self.outputs = manifest.outputs
        self.variants: Tuple[Variant, ...] = manifest.every_variant
        self._checked = checked
        # not a method: a reference cycle would keep engines until the next collection
        lanes = partial(_make_lanes, manifest)
        self._open = OpenVariants(self.variants, self.name, engines, open_engines, lanes)
        self.lanes = self._open.take(0)
        self._router = None
        if len(self.variants) > 1 or manifest.profiles or manifest.padding:
            self._router = Router(manifest.name, self.variants, manifest.padding)
        self._values = {n: values for v in self.variants for n, values in v.values.items()}
        # all TensorRT engines of a backend share one device; CPU segments have none
        cuda = next((e.cuda for e in engines.values() if hasattr(e, "cuda")), None)
        self._feeder = None
        if cuda is not None:
            from edgekit_device.cuda.memory import Feeder

            self._feeder = Feeder(cuda)
        self._main = _busiest_lane(self.lanes)
        self.head = _detection_head(checked)

    @property
    def is_static(self) -> bool:
        """True if its inputs and outputs have only one shape."""
        return self._router is None and all(-1 not in tensor.shape for tensor in self.outputs)

    @property
    def engines(self) -> Engines:
        """The open engines, by digest and device."""
        return dict(self._open.engines)

    @property
    def notes(self) -> Tuple[str, ...]:
        """Sentences about possible problems of its engines on this board."""
        engines = self.engines.values()
        return tuple(dict.fromkeys(n for engine in engines for n in getattr(engine, "notes", ())))

    @property
    def devices(self) -> List[str]:
        """The devices that its segments name."""
        return list_devices(variant.lanes for variant in self.variants)

    @contextmanager
    def variant(self, number: int) -> Iterator[Model]:
        """Yields a variant as a separate model without padding; it stays open during the block.

        Raises:
            DeviceError: As for a call.
        """
        if len(self.variants) == 1 and not self._checked.manifest.padding:
            yield self
            return
        alone = replace(self._checked.manifest.select_variant(number), padding=())
        with self._open.hold(number):
            yield Model(replace(self._checked, manifest=alone), self._open.variant_engines(number))

    def planned(self, sizes: Mapping[str, Tuple[int, ...]]) -> int:
        """Returns the number of the variant that was built for these shapes of all inputs.

        Raises:
            DeviceError: "input.shape", with the nearest shape.
        """
        router = self._router or Router(self.name, self.variants, ())
        return router.planned(sizes)

    def __call__(self, inputs: Inputs) -> Dict[str, np.ndarray]:
        """Runs one frame.

        Args:
            inputs: Arrays by input name; a single array for a model with one input. NaN is
                allowed. Tensors of PyTorch and CuPy on the GPU are read without a copy.

        Returns:
            Arrays by output name.

        Raises:
            DeviceError: "input.unknown", "input.missing", "input.dtype", "input.shape",
                "input.values", "input.strides", "input.device", or "engine.failed"; errors of
                opening a variant of ``load: demand``.
        """
        checked, route = self._route_inputs(inputs)
        if self._router is None:
            # a static bundle has nothing to open or close: no lock, no count of users
            return run_alone(self.lanes[self._main], checked)
        with self._open.hold(route.variant) as lanes:
            lane = lanes[_busiest_lane(lanes)]
            return route.results(run_alone(lane, route.pad_inputs(checked)))

    def detect(
        self,
        inputs: Inputs,
        *,
        score: float = 0.25,
        iou: float = 0.45,
        most: int = 300,
        agnostic: bool = False,
    ) -> List[List[Found]]:
        """Runs a batch of prepared pictures and decodes the network's outputs.

        The outputs are decoded on the GPU with CuPy, if that is imported and the engines run there;
        otherwise with NumPy.

        Args:
            inputs: As for a call.
            score: Least score of an object.
            iou: Intersection over union above which the object with the lower score is removed.
            most: Largest number of objects per picture.
            agnostic: True if objects of different classes suppress each other.

        Returns:
            For each picture its objects, the best first, in pixels of the input.
            ``Placing.back`` converts these to pixels of the picture.

        Raises:
            DeviceError: As for a call; "model.no-head" for a bundle without a head.
        """
        if self.head is None:
            raise DeviceError(
                "this bundle has no head: its outputs are the network's own",
                code="model.no-head",
                where=self.name,
                hint="build it with model.head: auto, or call the model and decode its outputs",
            )
        from edgekit_device.detection.detect import detect

        # sys.modules, not import: only a program that uses CuPy itself gets the path on the GPU
        cupy = sys.modules.get("cupy")
        outputs: Mapping[str, Any]
        if cupy is not None and self._feeder is not None:
            outputs = {name: cupy.asarray(tensor) for name, tensor in self.on_gpu(inputs).items()}
        else:
            outputs = self(inputs)
        return detect(self.head, outputs, Options(score, iou, most, agnostic))

    def on_gpu(self, inputs: Inputs) -> Dict[str, DeviceTensor]:
        """Runs a frame like a call, but leaves its results on the GPU.

        Returns:
            Tensors by output name, in the output's own type and shape, for PyTorch
            (``torch.as_tensor(tensor, device="cuda")``) and CuPy without a copy. A tensor keeps its
            memory alive.

        Raises:
            DeviceError: As for a call; "model.no-gpu" for a bundle that runs on the CPU.
        """
        if self._feeder is None:
            raise DeviceError(
                "this bundle's engines run on the CPU (backend {})".format(self.backend),
                code="model.no-gpu",
                where=self.name,
                hint="call the model itself: it returns arrays",
            )
        checked, route = self._route_inputs(inputs)
        found = {}
        with self._open.hold(route.variant) as lanes:
            lane = lanes[_busiest_lane(lanes)]
            for name, value in run_on_devices(lane, route.pad_inputs(checked)).items():
                # engines may write vectorised formats or INT8 steps: PyTorch cannot read these
                found[name] = self._feeder.as_linear(value, lane.dtypes[name])
        return route.crop_on_device(found)

    def stream(
        self, frames: Iterable[Inputs], depth: int = 0, timeout_s: Optional[float] = None
    ) -> Iterator[Dict[str, np.ndarray]]:
        """Runs many frames, several in flight over the devices; results come in order.

        Args:
            frames: Each as for a call; read only as far as frames fit in flight.
            depth: Frames in flight; 0 for two per device.
            timeout_s: Longest wait for a result in seconds; None for no limit.

        Raises:
            DeviceError: As for a call, at the frame's place in the order; "engine.stuck" if a
                device does not answer in time.
        """
        routed = (self._route_inputs(frame) for frame in frames)
        if self._router is None:
            checked = (frame for frame, _ in routed)
            # without variants the lanes are fixed, so frames need no begin and end
            return run_stream(self.lanes, checked, depth, timeout_s=timeout_s)
        return run_turns(self._turns(routed), self.devices, depth, timeout_s=timeout_s)

    def _turns(self, frames: Iterable[Tuple[Dict[str, Any], Route]]) -> Iterator[Turn]:
        """Yields each frame with its lane, by its shapes; a variant's lanes take turns."""
        shared: Dict[int, Iterator[int]] = {}

        def begin(route: Route) -> LaneRun:
            lanes = self._open.take(route.variant)
            if route.variant not in shared:
                # numbers, not lanes: a lane would keep the engines of a closed variant
                shared[route.variant] = share_frames([lane.share for lane in lanes])
            return lanes[next(shared[route.variant])]

        for frame, route in frames:
            yield Turn(
                values=route.pad_inputs(frame),
                begin=partial(begin, route),
                # it requires closing another variant, which earlier frames may use
                waits=not self._open.is_free(route.variant),
                results=route.results,
                end=partial(self._open.give, route.variant),
            )

    def run_lane(
        self,
        lane: int,
        inputs: Dict[str, np.ndarray],
        record: Optional[OnSegmentEvent] = None,
        number: int = 0,
    ) -> Dict[str, np.ndarray]:
        """Runs a frame on a lane of the first variant, without checks of ``inputs``."""
        return run_alone(
            self.lanes[lane], {**_optimal_values(self.variants[0]), **inputs}, record, number
        )

    def check(self, inputs: Inputs) -> Dict[str, Any]:
        """Checks names, dtypes and shapes; returns contiguous arrays by name, and tensors on the
        GPU as ``DeviceTensor``.
        """
        return self._route_inputs(inputs)[0]

    def _route_inputs(self, inputs: Inputs) -> Tuple[Dict[str, Any], Route]:
        """Returns the checked inputs, and their route."""
        values: Dict[str, np.ndarray] = {}
        # shape tensors stay on the host: TensorRT reads their values before it enqueues
        if self._values and isinstance(inputs, Mapping):
            values = {
                n: _read_shape_values(n, inputs[n], self._values[n])
                for n in inputs
                if n in self._values
            }
            inputs = {name: value for name, value in inputs.items() if name not in values}
        found = check_inputs(
            self.name, self.inputs, inputs, self._feeder, static=self._router is None
        )
        if self._router is None:
            return found, Route(0)
        plain = {name: tuple(value.reshape(-1).tolist()) for name, value in values.items()}
        sizes = {name: tuple(value.shape) for name, value in found.items()}
        route = self._router.route(sizes, plain)
        if self._values and self.variants[route.variant].values:
            found = {**_optimal_values(self.variants[route.variant]), **values, **found}
        return found, route


def _detection_head(checked: Checked) -> Optional[Head]:
    digest = checked.manifest.head
    if digest is None:
        return None
    from edgekit_device.detection.head import Head

    data = bytes(read_checked(checked, digest))
    return read(Head, parse_json(data, "head"), "head")


def _make_lanes(manifest: Manifest, lanes: Sequence[Lane], engines: Engines) -> List[LaneRun]:
    names = tuple(tensor.name for tensor in manifest.outputs)
    dtypes = {tensor.name: tensor.dtype for tensor in manifest.outputs}
    found = []
    for place, lane in enumerate(lanes):
        runs: List[Any] = [_SegmentRun(engines[s.engine, s.device], s) for s in lane.segments]
        found.append(LaneRun(place, lane, runs, names, dtypes))
    return found


def _busiest_lane(lanes: Sequence[LaneRun]) -> int:
    """Returns the lane for a single frame: the lane with the largest share."""
    return max(range(len(lanes)), key=lambda i: (lanes[i].share, -i))


def _optimal_values(variant: Variant) -> Dict[str, np.ndarray]:
    """Returns the optimal values of the shape tensors."""
    if not variant.values:
        return {}
    import numpy as np

    return {
        name: np.array(shape_values.opt, shape_values.dtype).reshape(shape_values.shape)
        for name, shape_values in variant.values.items()
    }


def _read_shape_values(name: str, value: Any, known: ShapeValues) -> np.ndarray:
    """Returns a frame's values of a shape tensor.

    Raises:
        DeviceError: "input.dtype" or "input.shape".
    """
    import numpy as np

    array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    if array.dtype.kind not in "iu":
        raise DeviceError(
            "{!r} is {}, not {}".format(name[:80], array.dtype, known.dtype),
            code="input.dtype",
            where=name[:80],
        )
    if array.shape != known.shape:
        raise DeviceError(
            "{!r} has shape {}, not {}".format(name[:80], list(array.shape), list(known.shape)),
            code="input.shape",
            where=name[:80],
        )
    # sizes are often plain Python integers (int64), so any integer type is converted
    return np.ascontiguousarray(array.astype(known.dtype))


def load(
    path: Union[str, "os.PathLike[str]"],
    *,
    allowed_signers: Union[str, "os.PathLike[str]", None] = None,
    verify: Union[bool, str] = True,
    trust_unsigned: bool = False,
    threads: int = 0,
    device_memory: Any = None,
) -> Model:
    """Loads a model; checks its signature before it parses any part.

    Args:
        path: A bundle folder, an .ekb file, a release folder, or an app folder (its current
            release).
        allowed_signers: OpenSSH's file of keys that may sign; by default the file of the release's
            installation, or of ``$EDGEKIT_ROOT`` or ``~/.edgekit``.
        verify: "full" checks every digest of the bundle first, also of blobs that loading does
            not read. The signature is always checked, and every engine and weight is hashed while
            it is read, so that the hashed bytes are the used bytes.
        trust_unsigned: Accepts a bundle without a signature, or signed by an unknown key.
        threads: Threads of each engine; 0 for the backend's default.
        device_memory: A tensor on the GPU (PyTorch, CuPy) that the engines use while they run,
            instead of their own memory; threads that call the model at once take turns.
            ``edgekit_device memory`` shows its least size. The model keeps it alive.

    Raises:
        DeviceError: "bundle.*", "manifest.*", "blob.*", "release.*", "engine.*", "board.*",
            "memory.*".
    """
    signers = None if allowed_signers is None else Path(os.path.expanduser(allowed_signers))
    checked = check_path(Path(os.path.expanduser(path)), signers, trust_unsigned)
    if verify == "full":
        check_blobs(checked, checked.manifest.sizes())
    return open_model(checked, threads, device_memory=device_memory)


def check_path(path: Path, allowed_signers: Optional[Path], trust_unsigned: bool) -> Checked:
    """Opens and checks the bundle or release at ``path``, as in ``load``."""
    files = open_bundle(path)
    if allowed_signers is not None:
        for file in (allowed_signers, revoked_file(allowed_signers)):
            with suppress(FileNotFoundError):
                # resolved: the user's own file may be a link, but its target must be protected
                check_kept(file.resolve())
    check_root(default_root() if files.root is None else files.root.folder, loads=True)
    if files.root is not None and files.release is not None:
        return check_release(
            files.root,
            files.release,
            allowed_signers=allowed_signers,
            trust_unsigned=trust_unsigned,
        )
    signers = allowed_signers or default_root() / "allowed_signers"
    return check_bundle(files, signers, trust_unsigned)


def open_model(
    checked: Checked,
    threads: int = 0,
    profile: Optional[Path] = None,
    *,
    untested: bool = False,
    device_memory: Any = None,
) -> Model:
    """Opens a checked bundle's engines with the manifest's backend.

    Args:
        checked: The bundle.
        threads: Threads of each engine; 0 for the backend's default.
        profile: A folder for ONNX Runtime's profiles; if not None, TensorRT's times by layer are
            recorded.
        untested: True to open it for a new test, even if it was tested on another board state.
        device_memory: As in ``load``.

    Raises:
        DeviceError: "board.changed" if the board has changed since the release was tested;
            "engine.*", "blob.*", "board.*", "backend.unknown".
    """
    if checked.files.release is not None and not untested:
        # before any engine is loaded: another TensorRT cannot load it, another ONNX Runtime may
        # round differently
        refuse_changed(checked)
    manifest = checked.manifest
    need_loadables(manifest)
    backend = import_backend(manifest)
    memory = backend.plan_memory(manifest, device_memory)

    def open_segments(segments: Sequence[SegmentEntry]) -> Engines:
        found = backend.open_engines(
            checked,
            threads,
            profile,
            [segment for segment in segments if segment.device != CPU],
            memory=memory,
        )
        # modules that were left out of compilation run beside any backend's engines
        on_cpu = [segment for segment in segments if segment.device == CPU]
        if on_cpu:
            reference = import_module(BACKENDS["reference"])
            found.update(reference.open_on_cpu(checked, threads, profile, on_cpu))
        engines: Engines = found
        return engines

    at_start = [variant for variant in manifest.every_variant if variant.load == "start"]
    # variants with load: demand are opened by ``open_segments`` at their first frame
    segments = [s for variant in at_start for lane in variant.lanes for s in lane.segments]
    return Model(checked, open_segments(segments), open_segments)


class _SegmentRun:
    """Runs a segment and records the device's own time."""

    def __init__(self, engine: Any, segment: SegmentEntry) -> None:
        self.engine = engine
        self.segment = segment
        #: Milliseconds of this thread's last run by the device's clock; None without a clock.
        self.device_ms = getattr(engine, "gpu_ms", None)

    def __call__(self, feeds: Dict[str, Any]) -> Dict[str, Any]:
        return dict(self.engine.run(self.segment, feeds))


def import_backend(manifest: Manifest) -> Any:
    """Returns the module of the manifest's backend.

    Raises:
        DeviceError: "backend.unknown".
    """
    module = BACKENDS.get(manifest.backend)
    if module is None:
        raise DeviceError(
            "this edgekit_device has no backend {!r}".format(manifest.backend[:80]),
            code="backend.unknown",
            where=manifest.name,
            hint="available: {}".format(", ".join(sorted(BACKENDS))),
        )
    return import_module(module)


def check_inputs(
    model: str,
    tensors: Sequence[TensorEntry],
    inputs: Union[Mapping[str, np.ndarray], np.ndarray],
    feeder: Optional[Feeder] = None,
    *,
    static: bool = True,
) -> Dict[str, Any]:
    """Checks names, dtypes and shapes.

    Args:
        model: The model's name, for errors.
        tensors: The model's inputs.
        inputs: Arrays by name; a single array for a model with one input.
        feeder: The GPU's feeder, if GPU tensors are allowed; None for a model on the CPU.
        static: True if their shapes are the only shapes; else shapes are not checked.

    Returns:
        Contiguous arrays by name, and tensors on the GPU as ``DeviceTensor``.

    Raises:
        DeviceError: "input.unknown", "input.missing", "input.dtype", "input.shape",
            "input.strides" or "input.device".
    """
    import numpy as np

    def check_input(value: Any, tensor: TensorEntry) -> Any:
        if not hasattr(value, "__cuda_array_interface__"):
            array = np.asarray(value)
            check_kind(array.dtype, array.shape if static else None, tensor)
            # reshape: ascontiguousarray gives a scalar one axis
            return np.ascontiguousarray(array).reshape(array.shape)
        if feeder is None:
            raise DeviceError(
                "{!r} is on the GPU, but this bundle's engines run on the CPU".format(tensor.name),
                code="input.device",
                where=tensor.name,
                hint="pass tensor.cpu() (CuPy: cupy.asnumpy(tensor))",
            )
        found = feeder.borrow(value)
        check_kind(np.dtype(found.dtype), found.shape if static else None, tensor)
        return found

    if not isinstance(inputs, Mapping):
        if len(tensors) != 1:
            raise DeviceError(
                "the model has {} inputs, so give them by name".format(len(tensors)),
                code="input.missing",
                where=model,
                hint="pass a dict of {}".format(_names(tensors, static)),
            )
        inputs = {tensors[0].name: inputs}
    known = {tensor.name: tensor for tensor in tensors}
    for name in inputs:
        if name not in known:
            folded = {each.casefold(): each for each in known}
            near = difflib.get_close_matches(str(name).casefold(), list(folded), n=1)
            raise DeviceError(
                "the model has no input {!r}".format(str(name)[:80]),
                code="input.unknown",
                where=model,
                hint="did you mean {!r}?".format(folded[near[0]])
                if near
                else _names(tensors, static),
            )
    missing = [name for name in known if name not in inputs]
    if missing:
        raise DeviceError(
            "missing: {}".format(", ".join(map(repr, missing))),
            code="input.missing",
            where=model,
            hint="the model's inputs are {}".format(_names(tensors, static)),
        )
    return {name: check_input(inputs[name], tensor) for name, tensor in known.items()}


def _names(tensors: Sequence[TensorEntry], static: bool) -> str:
    """Returns a text about the inputs; without shapes if there are several variants."""
    return ", ".join(
        "{!r} ({}{})".format(
            tensor.name, tensor.dtype, " {}".format(list(tensor.shape)) if static else ""
        )
        for tensor in tensors
    )


def check_kind(dtype: np.dtype, shape: Optional[Sequence[int]], tensor: TensorEntry) -> None:
    """Checks a type, and a shape if given.

    Raises:
        DeviceError: "input.dtype" or "input.shape".
    """
    import numpy as np

    if dtype != np.dtype(tensor.dtype):
        raise DeviceError(
            "{!r} is {}, but the model needs {}".format(tensor.name, dtype, tensor.dtype),
            code="input.dtype",
            where=tensor.name,
            hint="convert it with .astype({!r})".format(tensor.dtype),
        )
    if shape is not None and tuple(shape) != tensor.shape:
        raise DeviceError(
            "{!r} has shape {}, but the model needs {}".format(
                tensor.name, list(shape), list(tensor.shape)
            ),
            code="input.shape",
            where=tensor.name,
            hint="the network was built for this shape only; resize or reshape the array",
        )
