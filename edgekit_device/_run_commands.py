"""Commands that run a release's engines: refit, selftest and infer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, List, Tuple

from ._errors import DeviceError
from ._refit_release import need_numpy, refit_release
from ._release import check_release, need_ready
from ._root import Root
from ._verify import Checked

if TYPE_CHECKING:
    import numpy as np

    from ._model import Model

__all__ = ["do_infer", "do_refit", "do_selftest"]


def do_refit(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Checks a release's weights, loads its engines with them once, and calls it ready.

    With ``--onnx`` the weights that were not sent are taken from an ONNX file on the board.
    """
    from ._refit_source import fill_from_onnx

    app = root.app(arguments.app)
    folder = app.release(arguments.release)
    if arguments.onnx is not None:
        need_numpy()
        fill_from_onnx(root, check_release(root, folder).manifest, arguments.onnx)
    return refit_release(root, app, folder, arguments.threads)[0]


def do_selftest(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Runs the golden cases."""
    from ._golden import need_golden

    folder, checked, model = _open(root, arguments)
    results = need_golden(model, checked, "{}/{}".format(arguments.app, folder.name))
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


def _open(root: Root, arguments: argparse.Namespace) -> Tuple[Path, Checked, Model]:
    from ._model import open_model

    need_numpy()
    folder = root.app(arguments.app).release(arguments.release)
    checked = check_release(root, folder)
    need_ready(arguments.app, folder)
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
