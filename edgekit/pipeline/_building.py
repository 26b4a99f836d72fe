"""Who builds the engines, and what they built: this machine, or the boards that will run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgekit.errors import BoardError, EnvironmentLack
from edgekit.pipeline._board_checks import check_runs

if TYPE_CHECKING:
    from edgekit.build import Artefacts
    from edgekit.deploy import BoardClient
    from edgekit.pipeline._boards import Boards
    from edgekit.pipeline._work import Work

__all__ = ["Building", "Built", "alike", "backend_of"]


@dataclass(frozen=True, eq=False)
class Built:
    """Engines, and what is known of them.

    Attributes:
        key: What tells this build from others.
        artefacts: The engines and the weights that they lack.
        golden: What they answered where they were built, as ``golden_of`` returns it; None where
            this machine can run them.
        comparison: The plan beside the build (``edgekit.built/1``), None for the reference.
        board: The board that built them, empty for this machine.
        job: The board's job, empty for this machine.
        result: The board's ``edgekit.build.result/1``, None for this machine.
        notes: What a person should know of the board's build.
    """

    key: str
    artefacts: Artefacts
    golden: tuple[Mapping[str, Any], ...] | None = None
    comparison: Mapping[str, Any] | None = None
    board: str = ""
    job: str = ""
    result: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()


class Building:
    """The builds of one configuration, one for each kind of board.

    Args:
        work: The configuration's work.
        boards: Its boards; they are connected when the backend is not known without them.

    Attributes:
        deploys: Whether the boards are to run what they build.
    """

    deploys = False

    def __init__(self, work: Work, boards: Boards) -> None:
        self.work = work
        self._boards = boards
        self._built: dict[tuple[str, ...], Built] = {}
        self._probes: dict[int, dict[str, Any]] = {}

    @cached_property
    def backend(self) -> str:
        """ "reference", "tensorrt" or "trtexec".

        Raises:
            EnvironmentLack: "build.no-tensorrt": what the configuration asks for is on no board.
        """
        wish = self.work.file.build.backend
        boards = self.work.file.deploy.boards
        if wish == "reference" or (wish == "auto" and not boards):
            return "reference"
        if not boards:
            raise EnvironmentLack(
                f"the {wish} backend builds on a board that has TensorRT, and none is named",
                code="build.no-tensorrt",
                where=self.work.config.document.where(("build", "backend")),
                hint="name one under deploy.boards, or use build.backend: reference",
            )
        clients = self._boards.clients()
        for backend in ("tensorrt", "trtexec") if wish == "auto" else (wish,):
            have = [client for client in clients if _has(self.probe(client), backend)]
            if have and (lacking := [c.name for c in clients if c not in have]):
                raise EnvironmentLack(
                    f"{have[0].name} has what the {backend} backend needs, {lacking[0]} has not",
                    code="build.no-tensorrt",
                    where=lacking[0],
                    hint=f"edgekit doctor shows what is missing; or use {_FALLBACK}",
                )
            if have:
                return backend
        if wish != "auto":
            raise EnvironmentLack(
                f"the board lacks {_NEEDS[wish]}",
                code="build.no-tensorrt",
                where=clients[0].name,
                hint=f"edgekit doctor shows what is there; or use {_FALLBACK}",
            )
        return "reference"

    def probe(self, client: BoardClient) -> dict[str, Any]:
        """Returns what a board is (``edgekit.probe/1``), asked once."""
        if id(client) not in self._probes:
            self._probes[id(client)] = client.probe()
        return self._probes[id(client)]

    def first(self) -> Built:
        """Returns the build for the first board, or this machine's."""
        if self.backend == "reference":
            return self.reference
        return self.for_board(self._boards.clients()[0])

    def every(self) -> list[Built]:
        """Returns the different builds, in the order of the boards."""
        if self.backend == "reference":
            return [self.reference]
        found = {b.key: b for b in map(self.for_board, self._boards.clients())}
        return list(found.values())

    @property
    def reference(self) -> Built:
        """What this machine built."""
        from edgekit.pipeline._wishes import check_opaque

        check_opaque(self.work, on_board=False)
        return Built(self.work.build_key, self.work.artefacts)

    def for_board(self, client: BoardClient) -> Built:
        """Returns the build that a board runs: its own, or that of a board that is like it.

        Raises:
            BoardError: The board is another than planned for, or its build failed.
            EnvironmentLack: The board lacks what the engines need.
        """
        if self.backend == "reference":
            return self.reference
        from edgekit.pipeline._board_build import build_on

        same = alike(self.probe(client)["fingerprint"]) or (client.name,)
        key = (*same, self.work.build_key)
        if key not in self._built:
            self._built[key] = build_on(
                self.work, client, self.probe(client), self.backend, deploys=self.deploys
            )
        return self._built[key]

    def check_bundle(self, client: BoardClient, manifest: Mapping[str, Any]) -> None:
        """Refuses a bundle of TensorRT engines that were built on another kind of board.

        Raises:
            BoardError: "deploy.other-board".
            EnvironmentLack: The board lacks what the engines need.
        """
        if manifest["backend"] == "reference":
            return
        built, here = manifest["fingerprint"], self.probe(client)["fingerprint"]
        wrong = [
            f"{key} {built.get(key) or 'unknown'}, here {here.get(key) or 'unknown'}"
            for key in ALIKE
            if built.get(key) != here.get(key)
        ]
        if wrong:
            raise BoardError(
                f"the bundle's engines were built on another kind of board: {'; '.join(wrong)}",
                code="deploy.other-board",
                where=client.name,
                hint="engines are not portable: deploy the configuration, which builds for this "
                "board",
            )
        check_runs(client, self.probe(client), manifest.get("engines", {}))


#: What two boards must share to run each other's engines.
ALIKE = ("module", "l4t", "tensorrt")
_NEEDS = {
    "tensorrt": "TensorRT's Python module with its builder",
    "trtexec": "trtexec",
}
_FALLBACK = "build.backend: reference"


def alike(fingerprint: Mapping[str, str]) -> tuple[str, ...]:
    """Returns what boards share that run each other's engines; nothing where that is unknown."""
    found = tuple(str(fingerprint.get(key, "")) for key in ALIKE)
    return found if all(found) else ()


def backend_of(wish: str, probe: Mapping[str, Any], where: str) -> str:
    """Returns who builds for one board of a fleet, whatever the others have.

    Args:
        wish: ``build.backend`` of the configuration.
        probe: What the board is.
        where: Its name.

    Raises:
        EnvironmentLack: "build.no-tensorrt".
    """
    for backend in ("tensorrt", "trtexec") if wish == "auto" else (wish,):
        if backend == "reference" or _has(probe, backend):
            return backend
    if wish == "auto":
        return "reference"
    raise EnvironmentLack(
        f"the board lacks {_NEEDS[wish]}",
        code="build.no-tensorrt",
        where=where,
        hint=f"edgekit doctor shows what is there; or use {_FALLBACK}",
    )


def _has(probe: Mapping[str, Any], backend: str) -> bool:
    if backend == "trtexec":
        return bool(probe.get("trtexec"))
    from edgekit.pipeline._board_request import has_module

    return has_module(probe)
