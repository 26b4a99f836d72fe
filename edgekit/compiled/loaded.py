"""``load_network``: loads a saved network that is called like its module, without the module."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from typing_extensions import Self

from edgekit.bundles.files import read
from edgekit.bundles.manifest import Bundle, blob_view
from edgekit.bundles.sign import LARGEST_KEY, ensure_key, known_signers
from edgekit.compiled.calls import (
    bind_tensors,
    bind_values,
    convert_outputs,
    first_device,
    run_on_gpu,
)
from edgekit.errors import BundleError, UsageError
from edgekit.files import cache_folder, read_file
from edgekit.pipeline.boards.addresses import host_board
from edgekit.pytorch.chain import RunArrays, array_step, run_steps
from edgekit.pytorch.document import Exported
from edgekit.pytorch.signature import rebuild
from edgekit_device.arrays.npz import read_npz, write_npz
from edgekit_device.runtime.model import load
from edgekit_device.store.root import default_root
from edgekit_device.trust.signature import revoked_file


class LoadedNetwork:
    """A saved network; call it as the module is called.

    Results are the module's tensors in Python's lists, tuples and dicts; if TensorRT runs the
    network on this machine, tensors on the GPU stay there. On a machine without PyTorch, or if all
    arguments are arrays, arguments and results are NumPy arrays: inputs in order or by name.

    Attributes:
        name: The application's name.
        digest: SHA-256 of the bundle's manifest.
        exported: The document of its export.
    """

    def __init__(
        self,
        bundle: Bundle,
        exported: Exported,
        run: RunArrays,
        close: Callable[[], object] = lambda: None,
        on_gpu: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        self.name, self.digest, self.exported = bundle.name, bundle.digest, exported
        self._run, self._on_gpu = run, on_gpu
        self._read = {tensor.name for tensor in bundle.manifest.inputs}
        # also closes the connection of a network that is dropped without ``close``
        self._close = weakref.finalize(self, close)

    def __repr__(self) -> str:
        return f"<LoadedNetwork {self.name}, bundle {self.digest[:12]}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection to the board; the network cannot be called after that."""
        self._close()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the network once, with the module's own arguments.

        Returns:
            The module's result: tensors in its types, on the device of the first input; NumPy
            arrays if all arguments are arrays.

        Raises:
            UsageError: "torch.inputs": other arguments, sizes or types than the example's.
        """
        about = self.exported
        arrays = all(isinstance(value, np.ndarray) for value in (*args, *kwargs.values()))
        # without PyTorch there are no modules' arguments, only inputs in order or by name
        by_name = bind_values if arrays or find_spec("torch") is None else bind_tensors
        given = by_name(about, args, kwargs)
        device = first_device(given.values())
        # its engines have no unused inputs
        values = {name: value for name, value in given.items() if name in self._read}
        if self._on_gpu is not None and device is not None and device.type == "cuda":
            known = run_on_gpu(about.inputs, self._on_gpu, values)
        else:
            outputs = tuple(tensor.name for tensor in about.outputs)
            known = run_steps([array_step(tuple(values), outputs, self._run)], values)
        return rebuild(about.result, convert_outputs(about.outputs, known, device))


def load_network(
    path: Path,
    *,
    allowed_signers: Path | None = None,
    trust_unsigned: bool = False,
    board: str | None = None,
    accept_host_key: bool = False,
    trust_key: bool = False,
    root: str = "~/.edgekit",
    python: str = "python3",
) -> LoadedNetwork:
    """Loads a bundle of ``CompiledNetwork.save``; checks its signature before parsing.

    Args:
        path: The ``.ekb`` file, or a folder.
        allowed_signers: OpenSSH's file of keys that may sign; None: edgekit's own key and those of
            the installation on this machine.
        trust_unsigned: Accepts a bundle without a signature, or signed by an unknown key.
        board: "USER@HOST" on which it is installed and run; None: this machine.
        accept_host_key: Accepts the board's unknown host key this once.
        trust_key: Lets the board trust edgekit's own key from now on.
        root: The board's folder.
        python: The board's interpreter.

    Raises:
        BundleError: "bundle.*": the file is no bundle, damaged, or not signed by a known key.
        UsageError: "bundle.no-call": the bundle is not of a compiled PyTorch network.
        BoardError: The board failed.
        DeviceError: This machine cannot run it: "engine.*", "board.*".
    """
    path = path.expanduser()
    signers = known_signers() if allowed_signers is None else _lines(allowed_signers.expanduser())
    bundle = read(path, signers=signers, trust_unsigned=trust_unsigned)
    exported = _read_export(bundle, str(path))
    if board is None:
        with _signers_file(allowed_signers, signers) as file:
            model = load(path, allowed_signers=file, trust_unsigned=trust_unsigned)
        # both reads must have seen the same file
        if model.digest != bundle.digest:
            raise BundleError(
                "the bundle was exchanged while it was loaded",
                code="bundle.changed",
                where=str(path),
                hint="load it again",
            )
        on_gpu = model.on_gpu if model.backend == "tensorrt" else None
        return LoadedNetwork(bundle, exported, model, on_gpu=on_gpu)
    from edgekit.deployment.connection import open_board
    from edgekit.deployment.install import install

    key = ensure_key(cache_folder() / "keys" / "ed25519")
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(
            open_board(
                host_board(board, root=root, python=python),
                state_folder=cache_folder(),
                signer_public_key=key.with_name(f"{key.name}.pub"),
                trust_key=trust_key,
                accept_host_key=accept_host_key,
            )
        )
        install(bundle, client, again=False)

        def run(feed: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            return read_npz(client.infer(bundle.name, write_npz(feed)))

        # from here on the network owns the connection; an error before closes it
        return LoadedNetwork(bundle, exported, run, stack.pop_all().close)


@contextlib.contextmanager
def _signers_file(given: Path | None, lines: list[str]) -> Iterator[Path]:
    """Yields a file of allowed signers in the same folder as this machine's list of revoked
    keys.
    """
    if given is not None:
        yield given
        return
    # the lines come from several files, and the reader takes one
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "allowed_signers")
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        revoked = revoked_file(default_root() / "allowed_signers")
        if revoked.exists():
            # the reader looks for revoked keys beside the list of signers
            shutil.copyfile(revoked, revoked_file(file))
        yield file


def _lines(allowed_signers: Path) -> list[str]:
    try:
        return read_file(allowed_signers, LARGEST_KEY).decode("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the list of signers cannot be read: {error}",
            code="sign.no-key",
            where=str(allowed_signers),
            hint="give an allowed_signers file of OpenSSH",
        ) from error


def _read_export(bundle: Bundle, where: str) -> Exported:
    digest = bundle.manifest.call
    if digest is None:
        raise UsageError(
            "the bundle has no call signature of a PyTorch network",
            code="bundle.no-call",
            where=where,
            hint="load it with edgekit_device.load, with inputs by name",
        )
    try:
        return Exported.model_validate_json(bytes(blob_view(bundle.blobs[digest])))
    except ValidationError as error:
        raise BundleError(
            "the bundle's call signature has a form that this edgekit does not know",
            code="bundle.invalid",
            where=where,
            hint="save the network again with this edgekit",
        ) from error
