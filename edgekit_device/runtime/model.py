"""``load``: from a path to a callable model, through signature, manifest and digests. Inputs are
checked against what the network was built for.
"""

from __future__ import annotations

import difflib
import os
from contextlib import suppress
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
    Union,
)

from edgekit_device.errors import DeviceError
from edgekit_device.files import check_kept
from edgekit_device.protocol.manifest import Engines, Manifest, SegmentEntry, TensorEntry
from edgekit_device.release.changed import need_unchanged
from edgekit_device.release.releases import check_release
from edgekit_device.runtime.pipeline import (
    LaneRun,
    OnSegmentEvent,
    run_alone,
    run_on_devices,
    run_stream,
)
from edgekit_device.store.root import check_root, default_root
from edgekit_device.trust.bundle import Checked, check_blobs, check_bundle, open_bundle
from edgekit_device.trust.signature import revoked_file

if TYPE_CHECKING:
    import numpy as np

    from edgekit_device.cuda.memory import DeviceTensor, Feeder


Inputs = Union["Mapping[str, np.ndarray]", "np.ndarray"]
#: Module by the manifest's "backend"; it has ``memory_of(manifest, device_memory)`` and
#: ``open_engines(checked, threads, profile, memory)``, which returns an object with
#: ``run(segment, feeds)`` by engine digest and device.
BACKENDS = {
    "reference": "edgekit_device.runtime.reference",
    "tensorrt": "edgekit_device.tensorrt.backend",
}


class Model:
    """A loaded bundle; call it with inputs by name.

    Attributes:
        name: The bundle's name.
        digest: SHA-256 of its manifest.
        signer: Who signed it, None when it was trusted without.
        backend: What runs it; "reference" times are this CPU's, never a board's prediction.
        inputs: Name, dtype and shape of each input.
        outputs: The same of each output.
        notes: What is doubtful about how its engines run here.
    """

    def __init__(self, checked: Checked, engines: Engines) -> None:
        manifest = checked.manifest
        self.name = manifest.name
        self.digest = manifest.digest
        self.signer = checked.signer
        self.backend = manifest.backend
        self.inputs = manifest.inputs
        self.outputs = manifest.outputs
        self.engines = dict(engines)
        notes = [note for engine in engines.values() for note in getattr(engine, "notes", ())]
        self.notes = tuple(dict.fromkeys(notes))
        names = tuple(tensor.name for tensor in manifest.outputs)
        dtypes = {tensor.name: tensor.dtype for tensor in manifest.outputs}
        runs: List[List[Any]] = [
            [_SegmentRun(engines[s.engine, s.device], s) for s in lane.segments]
            for lane in manifest.lanes
        ]
        self.lanes = [
            LaneRun(number, lane, runs[number], names, dtypes)
            for number, lane in enumerate(manifest.lanes)
        ]
        cuda = next((e.cuda for e in engines.values() if hasattr(e, "cuda")), None)
        self._feeder = None
        if cuda is not None:
            from edgekit_device.cuda.memory import Feeder

            self._feeder = Feeder(cuda)
        # a single frame takes the plan that most frames take
        self._main = max(range(len(self.lanes)), key=lambda i: (self.lanes[i].share, -i))

    @property
    def devices(self) -> List[str]:
        """The devices that its segments name."""
        return sorted({segment.device for lane in self.lanes for segment in lane.segments})

    def __call__(self, inputs: Inputs) -> Dict[str, np.ndarray]:
        """Runs one frame.

        Args:
            inputs: An array by input name; an array alone for a model of one input. NaN is
                allowed. Tensors of PyTorch and CuPy on the GPU are read where they lie.

        Returns:
            An array by output name.

        Raises:
            DeviceError: "input.unknown", "input.missing", "input.dtype", "input.shape",
                "input.strides", "input.device", or "engine.failed".
        """
        return run_alone(self.lanes[self._main], self.check(inputs))

    def on_gpu(self, inputs: Inputs) -> Dict[str, DeviceTensor]:
        """Runs one frame as a call does, and leaves its results on the GPU.

        Returns:
            A tensor by output name, in the output's own type and shape, for PyTorch
            (``torch.as_tensor(tensor, device="cuda")``) and CuPy without a copy. It keeps its
            memory.

        Raises:
            DeviceError: As for a call; "model.no-gpu" for a bundle that runs on the CPU.
        """
        lane = self.lanes[self._main]
        if self._feeder is None:
            raise DeviceError(
                "this bundle's engines run on the CPU (backend {})".format(self.backend),
                code="model.no-gpu",
                where=self.name,
                hint="call the model itself: it returns arrays",
            )
        found = {}
        for name, value in run_on_devices(lane, self.check(inputs)).items():
            found[name] = self._feeder.plain(value, lane.dtypes[name])
        return found

    def stream(
        self, frames: Iterable[Inputs], depth: int = 0, timeout_s: Optional[float] = None
    ) -> Iterator[Dict[str, np.ndarray]]:
        """Runs many frames, several in flight over the devices; results come in order.

        Args:
            frames: Each as for a call; read only as far as frames fit in flight.
            depth: Frames in flight; 0 takes two for each device.
            timeout_s: Seconds that one result may be waited for; None waits for ever.

        Raises:
            DeviceError: As for a call, at the frame's place in the order; "engine.stuck" when a
                device does not answer in time.
        """
        checked = (self.check(frame) for frame in frames)
        return run_stream(self.lanes, checked, depth, timeout_s=timeout_s)

    def run_lane(
        self,
        lane: int,
        inputs: Dict[str, np.ndarray],
        record: Optional[OnSegmentEvent] = None,
        number: int = 0,
    ) -> Dict[str, np.ndarray]:
        """Runs one frame on one lane (plan variant); ``inputs`` are not checked."""
        return run_alone(self.lanes[lane], inputs, record, number)

    def check(self, inputs: Inputs) -> Dict[str, Any]:
        """Checks names, dtypes and shapes; returns contiguous arrays by name, and tensors on the
        GPU as ``DeviceTensor``.
        """
        return check_inputs(self.name, self.inputs, inputs, self._feeder)


def load(
    path: Union[str, "os.PathLike[str]"],
    *,
    allowed_signers: Union[str, "os.PathLike[str]", None] = None,
    verify: Union[bool, str] = True,
    trust_unsigned: bool = False,
    threads: int = 0,
    device_memory: Any = None,
) -> Model:
    """Loads a model; nothing of it is parsed before its signature is checked.

    Args:
        path: A bundle folder, an .ekb file, a release folder, or an app folder (its current
            release).
        allowed_signers: OpenSSH's file of keys that may sign; by default the one of the release's
            installation, or of ``$EDGEKIT_ROOT`` or ``~/.edgekit``.
        verify: "full" checks every digest of the bundle first, also of blobs that loading does
            not read. The signature is checked in any case, and every engine and weight is hashed
            as it is read: those bytes are the ones that are used.
        trust_unsigned: Accepts a bundle without a signature, or signed by an unknown key.
        threads: Threads of each engine; 0 takes the backend's default.
        device_memory: A tensor on the GPU (PyTorch, CuPy) that the engines use while they run, in
            the place of memory of their own; threads that call the model at once take turns. How
            large it must be: ``edgekit_device memory``. The model keeps it.

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
    """Opens and checks what lies at ``path``, as ``load`` does."""
    files = open_bundle(path)
    if allowed_signers is not None:
        for file in (allowed_signers, revoked_file(allowed_signers)):
            with suppress(FileNotFoundError):
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
    """Opens a checked bundle's engines with the backend that its manifest names.

    Args:
        checked: The bundle.
        threads: Threads of each engine; 0 takes the backend's default.
        profile: A folder for ONNX Runtime's profiles; not None keeps TensorRT's layers' times.
        untested: Whether it is opened to be tested here anew, whatever it was tested on before.
        device_memory: As of ``load``.

    Raises:
        DeviceError: "board.changed" for a release that was tested on what the board is no longer;
            "engine.*", "blob.*", "board.*", "backend.unknown".
    """
    if checked.files.release is not None and not untested:
        need_unchanged(checked)
    backend = import_backend(checked.manifest)
    memory = backend.memory_of(checked.manifest, device_memory)
    engines = backend.open_engines(checked, threads, profile, memory=memory)
    if checked.manifest.on_cpu():
        reference = import_module(BACKENDS["reference"])
        engines.update(reference.open_on_cpu(checked, threads, profile))
    return Model(checked, engines)


class _SegmentRun:
    """One segment's run, and how long the device said it took."""

    def __init__(self, engine: Any, segment: SegmentEntry) -> None:
        self.engine = engine
        self.segment = segment
        #: Milliseconds of this thread's last run by the device's clock; None where it has none.
        self.device_ms = getattr(engine, "gpu_ms", None)

    def __call__(self, feeds: Dict[str, Any]) -> Dict[str, Any]:
        return dict(self.engine.run(self.segment, feeds))


def import_backend(manifest: Manifest) -> Any:
    """The module of the manifest's backend.

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
) -> Dict[str, Any]:
    """Checks names, dtypes and shapes.

    Args:
        model: Its name, for errors.
        tensors: What it takes.
        inputs: An array by name; an array alone where it takes one.
        feeder: The GPU's, whose tensors may be inputs too; None for a model on the CPU.

    Returns:
        Contiguous arrays by name, and tensors on the GPU as ``DeviceTensor``.

    Raises:
        DeviceError: "input.unknown", "input.missing", "input.dtype", "input.shape",
            "input.strides" or "input.device".
    """
    import numpy as np

    def checked(value: Any, tensor: TensorEntry) -> Any:
        if not hasattr(value, "__cuda_array_interface__"):
            return check_array(np.asarray(value), tensor)
        if feeder is None:
            raise DeviceError(
                "{!r} lies on the GPU, but this bundle's engines run on the CPU".format(
                    tensor.name
                ),
                code="input.device",
                where=tensor.name,
                hint="pass tensor.cpu() (CuPy: cupy.asnumpy(tensor))",
            )
        found = feeder.borrowed(value)
        check_kind(np.dtype(found.dtype), found.shape, tensor)
        return found

    if not isinstance(inputs, Mapping):
        if len(tensors) != 1:
            raise DeviceError(
                "the model has {} inputs, so give them by name".format(len(tensors)),
                code="input.missing",
                where=model,
                hint="pass a dict of {}".format(_names(tensors)),
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
                hint="did you mean {!r}?".format(folded[near[0]]) if near else _names(tensors),
            )
    missing = [name for name in known if name not in inputs]
    if missing:
        raise DeviceError(
            "missing: {}".format(", ".join(map(repr, missing))),
            code="input.missing",
            where=model,
            hint="the model's inputs are {}".format(_names(tensors)),
        )
    return {name: checked(inputs[name], tensor) for name, tensor in known.items()}


def _names(tensors: Sequence[TensorEntry]) -> str:
    return ", ".join(
        "{!r} ({} {})".format(tensor.name, tensor.dtype, list(tensor.shape)) for tensor in tensors
    )


def check_array(array: np.ndarray, tensor: TensorEntry) -> np.ndarray:
    """Returns the array, contiguous.

    Raises:
        DeviceError: "input.dtype" or "input.shape".
    """
    import numpy as np

    check_kind(array.dtype, array.shape, tensor)
    return np.ascontiguousarray(array).reshape(tensor.shape)


def check_kind(dtype: np.dtype, shape: Sequence[int], tensor: TensorEntry) -> None:
    """Checks a type and a shape.

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
    if tuple(shape) != tensor.shape:
        raise DeviceError(
            "{!r} has shape {}, but the model needs {}".format(
                tensor.name, list(shape), list(tensor.shape)
            ),
            code="input.shape",
            where=tensor.name,
            hint="the network was built for this shape only; resize or reshape the array",
        )
