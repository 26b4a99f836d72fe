"""Commands that run a release's engines: refit, selftest, infer and bench."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, List, Tuple

from ._errors import DeviceError, map_os_errors
from ._files import write_durably
from ._release import REFIT, check_release, is_ready, to_bytes
from ._root import Root
from ._verify import Checked, check_blobs

if TYPE_CHECKING:
    import numpy as np

    from ._model import Model

__all__ = ["do_bench", "do_infer", "do_refit", "do_selftest"]

_SHOWN = 3


def do_refit(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Checks a release's weights, loads its engines with them once, and calls it ready.

    With ``--onnx`` the weights that were not sent are taken from an ONNX file on the board.
    """
    from ._model import open_model
    from ._refit_source import fill_from_onnx

    _need_numpy()
    app = root.app(arguments.app)
    folder = app.release(arguments.release)
    if arguments.onnx is not None:
        fill_from_onnx(root, check_release(root, folder).manifest, arguments.onnx)
    with root.lock(shared=True):
        checked = check_release(root, folder)
        digests = {weight.digest for weight in checked.manifest.weights.values()}
        total = check_blobs(checked, sorted(digests))
        for digest in checked.manifest.sizes():
            root.store.renew(digest)
        model = open_model(checked, arguments.threads)
        reused = is_ready(folder)
        document = {
            "release": folder.name,
            "weights": len(checked.manifest.weights),
            "bytes": total,
            "engines": len({digest for digest, _ in model.engines}),
        }
        if not reused:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            with app.lock(), map_os_errors(str(folder)):
                write_durably(folder / REFIT, to_bytes(dict(document, at=stamp)))
    return dict(document, reused=reused, notes=list(model.notes))


def do_selftest(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Runs the golden cases."""
    from ._golden import self_test

    folder, checked, model = _open(root, arguments)
    results = self_test(model, checked)
    if not results["ok"]:
        bad = [
            "{!r} of seed {} is off by {:.3g} (tolerance {:.3g})".format(
                name, case["seed"], facts["relative"], facts["tolerance"]
            )
            for case in results["cases"]
            for name, facts in case["outputs"].items()
            if not facts["ok"]
        ]
        raise DeviceError(
            "outputs differ from the golden ones: {}".format("; ".join(bad[:_SHOWN])),
            code="selftest.failed",
            where="{}/{}".format(arguments.app, folder.name),
            hint="do not switch to this release; build it again for this board",
        )
    return dict(results, release=folder.name, notes=list(model.notes))


def do_infer(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> bytes:
    """Runs one frame, or many with ``--frames``, from .npz to .npz."""
    import numpy as np

    from ._npz import read_npz, write_npz

    _, _, model = _open(root, arguments)
    arrays = read_npz(stdin.read())
    if not arguments.frames:
        return write_npz(model(arrays))
    count = _frame_count(arrays)
    frames = ({name: array[i] for name, array in arrays.items()} for i in range(count))
    results: List[Dict[str, np.ndarray]] = list(model.stream(frames))
    return write_npz(
        {tensor.name: np.stack([each[tensor.name] for each in results]) for tensor in model.outputs}
    )


def do_bench(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Measures a release on this machine's clock."""
    from ._golden import golden_inputs
    from ._measure import Settings, bench
    from ._measure_nodes import profile

    folder, checked, model = _open(root, arguments)
    manifest = checked.manifest
    if manifest.golden:
        seed, ranges = manifest.golden[0].seed, dict(manifest.golden[0].ranges)
    else:
        seed, ranges = 0, {tensor.name: (0.0, 1.0) for tensor in manifest.inputs}
    inputs = golden_inputs(manifest.inputs, seed, ranges)
    settings = Settings(arguments.warmup_ms, arguments.duration_s, arguments.iterations)
    result = bench(model, inputs, settings)
    result["release"] = folder.name
    result["nodes"] = None
    if arguments.profile:
        result["nodes"] = profile(checked, inputs, arguments.threads, arguments.iterations)
    return result


def _open(root: Root, arguments: argparse.Namespace) -> Tuple[Path, Checked, Model]:
    from ._model import open_model

    _need_numpy()
    folder = root.app(arguments.app).release(arguments.release)
    checked = check_release(root, folder)
    if not is_ready(folder):
        raise DeviceError(
            "the release's weights were not checked yet",
            code="release.not-ready",
            where="{}/{}".format(arguments.app, folder.name),
            hint="run refit first",
        )
    return folder, checked, open_model(checked, arguments.threads)


def _frame_count(arrays: Dict[str, np.ndarray]) -> int:
    counts = {array.shape[0] if array.ndim else -1 for array in arrays.values()}
    if len(counts) != 1 or min(counts) < 1:
        raise DeviceError(
            "with --frames every array needs the same leading number of frames",
            code="input.shape",
            hint="stack the frames with numpy.stack",
        )
    return int(counts.pop())


def _need_numpy() -> None:
    try:
        import numpy as np
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise  # it is there, and broken
        raise DeviceError(
            "NumPy is not installed, and running a model needs it",
            code="board.no-numpy",
            hint="python3 -m pip install numpy, or apt-get install python3-numpy",
        ) from error
    del np
