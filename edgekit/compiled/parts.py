"""The compiled parts of a network: each is an application with a configuration, and runs here or on
a board.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.bundles.files import write
from edgekit.bundles.sign import sign
from edgekit.compiled.document import CompiledPart
from edgekit.config.loader import Config, open_config
from edgekit.errors import BoardError, UsageError
from edgekit.network.layer_names import layers_matching, unmatched_error
from edgekit.network.module_names import fits_module
from edgekit.pipeline.boards.addresses import host_board
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.steps.deploy import Deployed
from edgekit.pipeline.steps.rewrite import network as layers_of
from edgekit.text import listed
from edgekit_device.arrays.npz import read_npz, write_npz
from edgekit_device.runtime.model import load

if TYPE_CHECKING:
    import numpy as np

    from edgekit.bundles.manifest import Bundle
    from edgekit.deployment.client import BoardClient
    from edgekit.network.left_modules import CompiledPart as Cut
    from edgekit.network.model import Network
    from edgekit.pipeline.progress import Progress
    from edgekit.pipeline.steps.deploy import ConnectedBoards


@dataclass(frozen=True)
class Building:
    """The build settings of all parts of a network.

    Attributes:
        options: The configuration's keys, target included.
        pins: Device by glob of layers or modules.
        board: Displayed name of the board that runs the parts; None for this machine.
        out: The folder of bundles and parts.
        progress: Called with the steps' progress.
        consents: Consents for ``Pipeline``: ``accept_host_key``, ``trust_key``, ``again``.
        left: Paths of the left-out modules.
    """

    options: Mapping[str, Any]
    pins: Mapping[str, str]
    board: str | None
    out: Path
    progress: Progress | None = None
    consents: Mapping[str, Any] = field(default_factory=dict)
    left: Sequence[str] = ()
    # a list in a frozen class: all parts share the connection, which opens at the first use
    _connected: list[ConnectedBoards] = field(default_factory=list)

    def pipeline(self, config: Config) -> Pipeline:
        """Returns the pipeline of a part, on the connected boards."""
        out = self.out / config.file.name
        pipeline = Pipeline(config, out=out, progress=self.progress, **self.consents)
        for boards in self._connected:
            pipeline.boards.use(boards.clients())
        return pipeline

    def connect(self, config: Config) -> BoardClient:
        """Returns the board that runs the parts; the connection stays open until ``close``.

        Args:
            config: A part's configuration.
        """
        if not self._connected:
            self._connected.append(Pipeline(config, progress=self.progress, **self.consents).boards)
        return self._connected[0].clients()[0]

    def close(self) -> None:
        """Closes the connection."""
        while self._connected:
            self._connected.pop().close()

    def configurations(self, files: Mapping[str, Path], data: Sequence[Path]) -> list[Config]:
        """Returns the configurations of parts, with the pins of each.

        Args:
            files: The ONNX file by the part's name.
            data: Calibration data of each part; empty without calibration.

        Raises:
            UsageError: "plan.pin": a pin matches no layer of any part.
        """
        given: list[dict[str, Any]] = [{**self.options, "name": name} for name in files]
        # no data without calibration
        for options, path in zip(given, data, strict=False):
            options["calibration"] = {**options.get("calibration", {}), "data": str(path)}
        if self.pins:
            self._pin(files, given)
        return [open_config(path, **o) for path, o in zip(files.values(), given, strict=True)]

    def _pin(self, files: Mapping[str, Path], given: Sequence[dict[str, Any]]) -> None:
        networks = []
        for path, options in zip(files.values(), given, strict=True):
            # pins name layers of the rewritten network
            with self.pipeline(open_config(path, **options)) as pipeline:
                pipeline.check_result()
                networks.append(layers_of(pipeline.context))
        for glob in self.pins:
            # one part with such a layer is enough
            if not any(layers_matching(network, glob) for network in networks):
                left = [
                    module
                    for module in self.left
                    if fits_module(module, glob) or glob.startswith(f"{module}.")
                ]
                if left:
                    raise UsageError(
                        f"pin {glob!r} matches no compiled layer: {listed(left)} "
                        f"{'is' if len(left) == 1 else 'are'} left out",
                        code="plan.pin",
                        where="pin",
                        hint="drop the pin, or take the module out of leave",
                    )
                raise unmatched_error(glob, *networks, what="pin", code="plan.pin", where="pin")
        for network, options in zip(networks, given, strict=True):
            own = [
                {"layers": glob, "device": device.upper()}
                for glob, device in self.pins.items()
                if layers_matching(network, glob)
            ]
            placement = options.get("placement", {})
            options["placement"] = {**placement, "pin": [*placement.get("pin", []), *own]}


class Part:
    """A compiled part, built and ready to run.

    Attributes:
        document: Its row in the report.
        layers: Its placed layers.
        bundle: The file of its signed bundle, with weights; its name has the content's digest,
            since other compilations of the same name write to the same folder.
    """

    def __init__(
        self, building: Building, config: Config, cut: Cut, weights: Path | None = None
    ) -> None:
        """Places and builds a part; ``weights`` is the ONNX file with the engines' weights."""
        self._building, self._config, self._weights = building, config, weights
        if building.board is not None:
            # before the build, so that it uses this connection
            building.connect(config)
        with building.pipeline(config) as pipeline:
            if weights is None:
                pipeline.bundle()
                self._open(pipeline.packed())
                if building.board is not None:
                    self._release = pipeline.deploy().releases[0].release
            else:
                self._refit_pipeline(pipeline, weights)
            # the plan of the build: an earlier plan has no measured scales
            plan = pipeline.plan()
            self.layers: Network = layers_of(pipeline.context)
        self.document = CompiledPart(
            name=config.file.name,
            file=config.path,
            inputs=list(cut.inputs),
            outputs=list(cut.outputs),
            digest=self._model.digest,
            backend=self._model.backend,
            plan=plan,
        )

    @property
    def refitted(self) -> bool:
        """True if it was refitted with other weights after the build."""
        return self._weights is not None

    def _open(self, bundle: Bundle) -> None:
        folder = self._building.out / self._config.file.name
        self.bundle = write(bundle, folder / f"network-{bundle.digest[:12]}.ekb", stripped=False)
        # just signed by this machine
        self._model = load(self.bundle, trust_unsigned=True)

    def run(self, feed: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Runs the part once, on its board or this machine."""
        if self._building.board is None:
            return self._model(feed)
        data = write_npz(feed)
        try:
            return self._run_on_board(data)
        except BoardError as error:
            if error.code != "board.connection-lost":
                raise
        self._building.close()  # the board was away meanwhile: retry with a new connection
        return self._run_on_board(data)

    def _run_on_board(self, data: bytes) -> Mapping[str, np.ndarray]:
        client, app = self._building.connect(self._config), self._config.file.name
        # another network with the same name may serve by now
        return read_npz(client.infer(app, data, release=self._release))

    def signed(self, bundle: Bundle) -> Bundle:
        """Returns a bundle with the signature of the configuration's key."""
        with self._building.pipeline(self._config) as pipeline:
            return bundle.signed(sign(bundle.manifest_bytes, pipeline.signing.key))

    def deploy(self, board: str | None) -> Deployed:
        """Installs the part on a board, or on the board of the compilation."""
        building, config = self._building, self._config
        if board is not None:
            config = open_config(config, deploy={"boards": [board_section(board)]})
            # another board: the open connection stays with the compilation's
            building = dataclasses.replace(building, _connected=[])
        with building.pipeline(config) as pipeline:
            if self._weights is None:
                return pipeline.deploy()
            found = pipeline.refit(self._weights)
            return Deployed(False, found.steps, found.releases)

    def _refit_pipeline(self, pipeline: Pipeline, weights: Path) -> None:
        if self._building.board is not None:
            self._release = pipeline.refit(weights).releases[0].release
        self._open(pipeline.refit_bundle(weights))

    def refit(self, weights: Path) -> None:
        """Takes the weights from another file of the same network.

        Raises:
            DataError: "refit.mismatch": the networks differ.
        """
        with self._building.pipeline(self._config) as pipeline:
            self._refit_pipeline(pipeline, weights)
        self._weights = weights
        self.document = self.document.model_copy(update={"digest": self._model.digest})


def board_section(board: str) -> dict[str, str | int]:
    """Returns the configuration section of the board "USER@HOST:PORT"."""
    here = host_board(board)
    row = {"name": "board", "host": here.host, "port": here.port, "user": here.user}
    return {key: value for key, value in row.items() if value is not None}
