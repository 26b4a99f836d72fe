"""Makes a release ready: hashes its weights or takes them from an ONNX file on the board, and loads
its engines with these once. Also the commands refit, selftest and infer.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Dict, Iterable, List, Tuple

from edgekit_device.arrays.npz import read_npz, receive_npz, write_npz
from edgekit_device.errors import DeviceError, listed, map_os_errors
from edgekit_device.files import fsync_folder, map_file, write_durably
from edgekit_device.protocol.codec import dump, write
from edgekit_device.protocol.manifest import Manifest, WeightEntry
from edgekit_device.release.journal import RefitReport, timestamp
from edgekit_device.release.releases import REFIT, check_release, is_ready, need_ready
from edgekit_device.runtime.golden import ReleaseSelfTest, need_golden
from edgekit_device.runtime.model import Model, open_model
from edgekit_device.store.partial import BlobWriter
from edgekit_device.store.root import App, Root, sha256
from edgekit_device.tensorrt.weights import named_weights
from edgekit_device.trust.bundle import Checked, check_blobs

if TYPE_CHECKING:
    import numpy as np

_BY_NODE = ("batch-norm-", "constant-of-shape:")


def refit_release(
    root: Root, app: App, folder: Path, threads: int = 0
) -> Tuple[RefitReport, Model]:
    """Checks a release's weights, loads its engines with them, and calls it ready.

    Args:
        root: The installation.
        app: The app.
        folder: The release's folder.
        threads: Threads of each engine; 0 for the backend's default.

    Returns:
        The answer of the command ``refit``, and the loaded release.

    Raises:
        DeviceError: "board.no-numpy", "blob.*", "engine.*", "weights.*", "board.*".
    """
    need_numpy()
    with root.lock(shared=True):
        checked = check_release(root, folder)
        digests = {weight.digest for weight in checked.manifest.weights.values()}
        total = check_blobs(checked, sorted(digests))
        for digest in checked.manifest.sizes():
            # a collection keeps new blobs, so none disappears before the release is ready
            root.store.renew(digest)
        _make_durable(root, app, folder, checked.manifest.sizes())
        model = open_model(checked, threads, untested=True)
        for number, variant in enumerate(model.variants):
            if variant.load == "demand":
                with model.variant(number):
                    pass  # it is opened, too, so that its errors show now
        reused = is_ready(folder)
        found = RefitReport(
            release=folder.name,
            weights=len(checked.manifest.weights),
            bytes=total,
            engines=len({segment.engine for segment in checked.manifest.segments()}),
        )
        # the record keeps the time of the first refit; a repeated refit changes nothing
        if not reused:
            with app.lock(), map_os_errors(str(folder)):
                write_durably(folder / REFIT, dump(dict(write(found), at=timestamp())))
    return replace(found, reused=reused, notes=tuple(model.notes)), model


def _make_durable(root: Root, app: App, folder: Path, digests: Iterable[str]) -> None:
    """Makes the names of the release and its blobs durable.

    Their writer may have been killed before it did that: the bytes are durable, the names are not.
    A release is marked ready only after this.
    """
    blobs = {root.store.path(digest).parent for digest in digests}
    above = [root.store.folder, app.releases_folder, app.folder, app.folder.parent, root.folder]
    with map_os_errors(str(root.folder)):
        for each in (folder, *sorted(blobs), *above):
            fsync_folder(each)


def need_numpy() -> None:
    """Raises DeviceError "board.no-numpy" if NumPy is not installed."""
    try:
        import numpy as np
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise  # it is installed, but broken
        raise DeviceError(
            "NumPy is needed to run a model and is not installed",
            code="board.no-numpy",
            hint="python3 -m pip install numpy, or apt-get install python3-numpy",
        ) from error
    del np


# From any file, only values with the digests of the (signed) manifest are taken: an engine built
# with REFIT_IDENTICAL cannot get other values, and other weights need another bundle.
def fill_from_onnx(root: Root, manifest: Manifest, path: Path) -> int:
    """Takes the weights that the store lacks from an ONNX file, by their refit names.

    Returns:
        The number of weights taken.

    Raises:
        DeviceError: "model.not-found", "refit.mismatch" for weights that the file lacks,
            "refit.other-weights" for values that differ from the manifest's, or as
            ``named_weights``.
    """
    lacking = {
        name: weight
        for name, weight in manifest.weights.items()
        # verified: a damaged blob counts as missing and is taken from the file again
        if root.store.missing([weight.digest], verify=True)
    }
    if not lacking:
        return 0
    if not path.is_file():
        raise DeviceError(
            "the ONNX file does not exist",
            code="model.not-found",
            where=str(path),
            hint="the path must be one on the board",
        )
    with map_os_errors(str(path)):
        model = map_file(path)
    named = {name: _name_in_file(name, weight) for name, weight in lacking.items()}
    found = named_weights(model, path.resolve().parent, named.values())
    arrays = {name: found[key] for name, key in named.items() if key in found}
    missing = [name for name in lacking if name not in arrays]
    if missing:
        raise _refusal("lacks weights of the bundle", "refit.mismatch", path, missing)
    # the manifest's blobs are little-endian and dense, like arrays on every Jetson
    values = {name: array.tobytes() for name, array in arrays.items()}
    other = [name for name, data in values.items() if sha256(data) != lacking[name].digest]
    if other:
        raise _refusal("has other weights than the bundle", "refit.other-weights", path, other)
    with root.lock(shared=True), BlobWriter(root) as writer:
        for name, data in values.items():
            writer.add(lacking[name].digest, data)
    return len(values)


def _name_in_file(name: str, weight: WeightEntry) -> str:
    """Returns a weight's name in the user's file.

    Names with an importer's counter ("tmp_batch_norm_weight") count the nodes of another engine or
    of a part of the file: for these the stable name by node is used.
    """
    if weight.transform in ("", "none"):
        return weight.source or name
    return weight.transform if weight.transform.startswith(_BY_NODE) else name


def _refusal(what: str, code: str, path: Path, names: List[str]) -> DeviceError:
    return DeviceError(
        "the ONNX file {}: {}".format(what, listed([repr(name[:80]) for name in names])),
        code=code,
        where=str(path),
        hint="give the file that the bundle was built from, or deploy the weights",
    )


def do_refit(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> RefitReport:
    """Checks a release's weights, loads its engines with them once, and calls it ready.

    With ``--onnx`` the weights that were not sent are taken from an ONNX file on the board.
    """
    app = root.app(arguments.app)
    folder = app.release(arguments.release)
    if arguments.onnx is not None:
        need_numpy()
        fill_from_onnx(root, check_release(root, folder).manifest, arguments.onnx)
    return refit_release(root, app, folder, arguments.threads)[0]


def do_selftest(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> ReleaseSelfTest:
    """Runs the golden cases."""
    folder, checked, model = _open_release(root, arguments)
    results = need_golden(model, checked, "{}/{}".format(arguments.app, folder.name))
    return ReleaseSelfTest(**vars(results), release=folder.name, notes=tuple(model.notes))


def do_infer(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> bytes:
    """Runs one frame, or many with ``--frames``, from .npz to .npz."""
    import numpy as np

    _, _, model = _open_release(root, arguments)
    arrays = read_npz(receive_npz(stdin))
    if not arguments.frames:
        return write_npz(model(arrays))
    count = _frame_count(arrays)
    frames = ({name: array[i] for name, array in arrays.items()} for i in range(count))
    results: List[Dict[str, np.ndarray]] = list(model.stream(frames))
    for tensor in model.outputs:
        # numpy.stack would raise a ValueError
        if len({each[tensor.name].shape for each in results}) > 1:
            raise DeviceError(
                "{!r} has another shape in each frame, because it depends on values".format(
                    tensor.name[:80]
                ),
                code="input.shape",
                where=tensor.name[:80],
                hint="run the frames one by one, without --frames",
            )
    return write_npz(
        {tensor.name: np.stack([each[tensor.name] for each in results]) for tensor in model.outputs}
    )


def _open_release(root: Root, arguments: argparse.Namespace) -> Tuple[Path, Checked, Model]:
    need_numpy()
    folder = root.app(arguments.app).release(arguments.release)
    checked = check_release(root, folder)
    need_ready(arguments.app, folder)
    return folder, checked, open_model(checked, arguments.threads)


def _frame_count(arrays: Dict[str, np.ndarray]) -> int:
    counts = {array.shape[0] if array.ndim else -1 for array in arrays.values()}
    if len(counts) != 1 or min(counts) < 1:
        raise DeviceError(
            "with --frames every array needs the same number of frames",
            code="input.shape",
            hint="stack the frames with numpy.stack",
        )
    return int(counts.pop())
