"""The boards of a configuration, connected when they are first needed; their installation as steps
of the run; and the key that signs the bundles.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import field
from functools import cached_property
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING

from edgekit.benchmark.document import BoardName
from edgekit.deployment.board import DescribedBoard
from edgekit.error_document import FinishedStep
from edgekit.errors import BoardError, BundleError, ConfigError, EdgekitError, Problem
from edgekit.pipeline.boards.addresses import config_boards, fill_hint, job_command
from edgekit.pipeline.boards.changes import taken_back_note
from edgekit.pipeline.boards.requests import describe_board
from edgekit.reference.accuracy import Accuracy
from edgekit.removed import FormerDict
from edgekit.text import counted
from edgekit_device.board.identity import Hello
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    digest,
    document,
    flag,
    member,
    nullable,
    read,
    record,
    records,
    release_name,
    text,
)
from edgekit_device.release.journal import DeploymentFacts, TakenBack

if TYPE_CHECKING:
    from edgekit.bundles.manifest import Bundle
    from edgekit.config.loader import Config
    from edgekit.deployment.board import Board
    from edgekit.deployment.client import BoardClient
    from edgekit.pipeline.cache import Cache
    from edgekit.pipeline.context import Session
    from edgekit.pipeline.progress import StepLog, StepRecord
    from edgekit_device.board.probe import Probe
    from edgekit_device.release.journal import DeploymentStep
    from edgekit_device.release.releases import AppReleases
    from edgekit_device.trust.keys import TrustAnswer


# the steps of a deployment, in their order in the output
_STEPS = ("deploy", "refit", "self-test")
# phases of an installation by the step they belong to; the others belong to the step before
_STEP_OF = {"hello": "deploy", "refit": "refit", "selftest": "self-test"}
# phases that count bytes
_BYTES = {"loader": "sending edgekit_device", "send": "sending the bundle"}
# phases in which the board works without sending bytes
_PHASE_TEXTS = {
    "stage": "the board checks the bundle",
    "soak": "the board monitors the new release",
    "switch": "the board switches to the new release",
}
# the phases after the self-test that belong to its step
_DOING = {"switch": "after the self-test, switching", "soak": "after the self-test, soak"}


@document(frozen=True)
class ServedRelease:
    """The release that a board serves.

    Attributes:
        board: The board.
        release: The release; in a dry run None if the bundle would be installed.
        digest: SHA-256 of the bundle's manifest; None if the board has to build first.
        bytes_sent: Bytes that were or would be sent; None if unknown.
        previous: The release that served before.
        notes: For people.
    """

    board: DescribedBoard = member(record(DescribedBoard))
    release: str | None = member(nullable(release_name))
    digest: str | None = member(nullable(digest))
    bytes_sent: int | None = member(nullable(fields.count))
    previous: str | None = member(nullable(release_name))
    notes: tuple[str, ...] = member(array(text(most=1 << 18)))


@document(frozen=True)
class DeployedRelease(ServedRelease):
    """A board's row of ``edgekit.deploy/1``.

    Attributes:
        reused: True if the board served the bundle already.
    """

    reused: bool = member(flag)


@document(frozen=True)
class Deployed(FormerDict):
    """``edgekit.deploy/1``: the releases after a deployment; with ``dry_run`` they would serve."""

    dry_run: bool = member(flag)
    steps: tuple[FinishedStep, ...] = member(records(FinishedStep))
    releases: tuple[DeployedRelease, ...] = member(records(DeployedRelease))
    schema: str = member(choice("edgekit.deploy/1"), default="edgekit.deploy/1")


@document(frozen=True)
class Refitted(FormerDict):
    """``edgekit.refit/1``: the same engines with other weights.

    Attributes:
        tensors: Number of weights in the bundle.
        changed: Number of weights that differ from the configuration's own.
        accuracy: The error against the other model in FP32.
        figures: The accuracy in one line, for people; not in JSON.
        digest: SHA-256 of the first bundle's manifest.
        releases: The releases that boards serve.
    """

    steps: tuple[FinishedStep, ...] = member(records(FinishedStep))
    tensors: int = member(fields.count)
    changed: int = member(fields.count)
    accuracy: Accuracy = member(record(Accuracy))
    digest: str = member(digest)
    releases: tuple[DeployedRelease, ...] = member(records(DeployedRelease))
    schema: str = member(choice("edgekit.refit/1"), default="edgekit.refit/1")
    figures: str = field(default="", compare=False)


@document(frozen=True)
class InstalledRelease(DeployedRelease):
    """The release that a board serves after a deployment.

    Attributes:
        bit_equal: True if the golden outputs had the bits of the build.
        hello: The board's facts; None if unknown.
        taken_back: The bundle's own release, if it was rolled back and another release serves.
        backend: The backend of the release that serves instead; "" for the bundle's own.
        refitted: True if it is a refit of the bundle.
    """

    bit_equal: bool = member(flag, absent=False)
    hello: Hello | None = member(record(Hello), absent=None)
    taken_back: TakenBack | None = member(record(TakenBack), absent=None)
    backend: str = member(text(), absent="")
    refitted: bool = member(flag, absent=False)

    def row(self) -> DeployedRelease:
        """Returns the document's row."""
        return DeployedRelease(
            board=self.board,
            release=self.release,
            digest=self.digest,
            bytes_sent=self.bytes_sent,
            previous=self.previous,
            notes=self.notes,
            reused=self.reused,
        )


def board_name(board: DescribedBoard) -> BoardName:
    """Returns a board's name in documents of measurements."""
    return BoardName(name=board.name, kind=board.kind, note=board.note)


class SigningKey:
    """The key of a configuration."""

    def __init__(self, config: Config, cache: Cache) -> None:
        self._config = config
        self._cache = cache

    @cached_property
    def key(self) -> Path:
        """The private key that signs: the configuration's, or edgekit's own."""
        from edgekit.bundles.sign import ensure_key

        chosen = self._config.file.deploy.sign_with
        if chosen is None:
            return ensure_key(self._cache.folder / "keys" / "ed25519")
        self.check()
        return self._config.resolve(chosen)

    def check(self) -> None:
        """Raises ConfigError, "config.no-key", if the configuration's key does not exist."""
        chosen = self._config.file.deploy.sign_with
        if chosen is not None and not (path := self._config.resolve(chosen)).is_file():
            hint = "create one with: ssh-keygen -t ed25519"
            problem = Problem(f"the signing key {path} does not exist", self._config.path, hint)
            raise ConfigError([problem], code="config.no-key")

    @cached_property
    def public_key(self) -> Path:
        """The public half of ``key``, which boards trust."""
        return self.key if self.key.suffix == ".pub" else self.key.with_name(self.key.name + ".pub")


class InstallSteps:
    """The steps deploy, refit and self-test of one board, from the phases of ``install``."""

    def __init__(self, client: BoardClient, bundle: Bundle, steps: StepLog) -> None:
        self._client = client
        self._steps = steps
        self._stack = contextlib.ExitStack()
        self._begun: list[StepRecord] = []
        self._details = {
            "deploy": f"board {client.name}: {client.note}",
            "refit": f"{counted(len(bundle.manifest.weights), 'tensor')} from the board's store",
            "self-test": "outputs match those of the build with weights",
        }

    def __enter__(self) -> InstallSteps:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def progress(self, phase: str, done: int, total: int) -> None:
        """Receives the progress of ``install``."""
        from edgekit.reports.text import size

        name = _STEP_OF.get(phase)
        # a phase reports often; its step begins once, with the first report
        if name and done == 0 and (not self._begun or self._begun[-1].name != name):
            self._begin(name)
        elif phase in _DOING and self._begun:
            self._begun[-1].doing = _DOING[phase]
        if phase in _BYTES and total > 1:
            self._steps.progress.update(done, total, f"{_BYTES[phase]}, {size(total)}")
        elif phase == "soak" and total > 1:
            self._steps.progress.update(done, total, _PHASE_TEXTS[phase])
        elif phase in _PHASE_TEXTS and done == 0:
            self._steps.progress.update(0, 0, _PHASE_TEXTS[phase])

    def reused(self, release: str, *, other: bool = False) -> None:
        """Reports that the board serves the bundle already; ``other``: another release instead."""
        detail = f"{self._client.name} serves {release}"
        if other:
            detail += ", which is not this configuration's release"
        for name in _STEPS:
            if all(step.name != name for step in self._begun):
                self._begin(name)
            self._begun[-1].reuse(detail)

    def _begin(self, name: str) -> None:
        # every step has its line, even a step that the board skips
        for before in _STEPS[: _STEPS.index(name)]:
            if all(step.name != before for step in self._begun):
                self._begin(before)
                self._begun[-1].reuse("nothing to do")
        self._stack.close()  # ends the step before
        step = self._stack.enter_context(self._steps.step(name))
        step.detail = self._details[name]
        self._begun.append(step)


class BoardTimes:
    """Reports the times of a board's commands, if a command is verbose."""

    def __init__(self, name: str, session: Session) -> None:
        self._name, self._session = name, session
        self._began = time.monotonic()
        self._commands = 0
        self._seconds = 0.0
        # held back while a thread connects: its lines would appear between those of another step
        self._held: list[str] | None = []

    def show(self) -> None:
        """Reports from now on, beginning with the times that a thread has collected."""
        held, self._held = self._held or (), None
        for line in held:
            self._report(line)

    def command(self, name: str, seconds: float) -> None:
        """Receives the commands of ``BoardClient.on_command``."""
        self._commands += 1
        self._seconds += seconds
        self._report(f"command {self._commands}: {name}: {seconds:.3f} s")

    def connected(self) -> None:
        """Reports the time of connecting, without that of commands meanwhile."""
        self._report(f"connecting: {time.monotonic() - self._began - self._seconds:.3f} s")

    def ended(self, job: Iterable[DeploymentStep]) -> None:
        """Reports the times of the states of the board's job, and of all commands so far."""
        for step in job:
            if step.seconds is not None:
                self._report(f"the board's job: {step.state}: {step.seconds:.3f} s")
        self._report(f"{counted(self._commands, 'command')}, {self._seconds:.3f} s")

    def _report(self, text: str) -> None:
        if self._held is None:
            self._session.detail(f"{self._name}: {text}")
        else:
            self._held.append(text)


class DetachedJobNote:
    """The note at a Ctrl-C that the board continues, once it works alone."""

    def __init__(self, config: Config, session: Session, client: BoardClient) -> None:
        self._config = config
        self._session = session
        self._client = client
        self._job = ""

    def begins(self, job: str) -> None:
        """Marks that the board works alone from now on."""
        self._job = job

    def __enter__(self) -> DetachedJobNote:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # before the job began nothing continues on the board
        if not self._job or kind is None or not issubclass(kind, KeyboardInterrupt):
            return
        name, config = self._client.name, self._config
        if not config.file.deploy.boards:
            return  # edgekit's own board, which needs only the same command
        attach = job_command("attach", self._job, config, name)
        cancel = job_command("cancel", self._job, config, name)
        self._session.progress.note(
            f"{name} continues in the background: run the same command or `{attach}` to "
            f"follow it, `{cancel}` to roll it back"
        )


class ConnectedBoards:
    """Connections to every board of a configuration; its own board when it names none.

    Args:
        config: The configuration.
        cache: Its folder holds edgekit's own board, and the accepted host keys.
        session: Collects notes and progress.
        accept_host_key: Accept unknown host keys for this call.
        trust_key: Let boards trust the signing key from now on.
        allow_older: The reason to install a bundle that the counters or times of bundles forbid;
            without a reason boards refuse it.

    Attributes:
        signing: The key that signs bundles, which the boards are to trust.
    """

    def __init__(
        self,
        config: Config,
        cache: Cache,
        session: Session,
        *,
        accept_host_key: bool = False,
        trust_key: bool = False,
        allow_older: str | None = None,
    ) -> None:
        self.session = session
        self.cache = cache
        self.signing = SigningKey(config, cache)
        self._config = config
        self._accept_host_key = accept_host_key
        self._trust_key = trust_key
        self._allow_older = allow_older
        self._stack = contextlib.ExitStack()
        self._begun: list[Future[BoardClient]] = []
        self._clients: list[BoardClient] | None = None
        self._times: dict[int, BoardTimes] = {}
        self._trusted: dict[int, TrustAnswer] = {}
        self._probes: dict[int, Probe] = {}

    def close(self) -> None:
        """Closes every connection; edgekit's own board stops."""
        for begun in self._begun:
            # it may not be connected yet: a board that is switched off is not waited for
            begun.add_done_callback(lambda begun: self._stack.close())
        self._begun = []
        self._clients = None
        self._stack.close()

    def use(self, clients: Iterable[BoardClient]) -> None:
        """Uses boards that the caller has connected, and closes, instead of its own."""
        self._clients = list(clients)

    def begin(self) -> None:
        """Starts to connect to the configuration's boards while the host does other work.

        A board's error is raised by ``clients``. Boards are not changed before the host has
        checked the configuration.
        """
        if self._begun or self._clients is not None or not self._config.file.deploy.boards:
            return
        try:
            key = self.signing.public_key
        except ConfigError:
            return  # the error is raised by ``look``
        from edgekit.bundles.files import build_board_loader

        # before the threads: beside imports, reading its hundred files takes ten times as long
        loader = build_board_loader(self.cache.folder / "loader")
        for board in self._wanted_boards():
            begun: Future[BoardClient] = Future()
            self._begun.append(begun)
            given = (board, key, loader, begun)
            # daemons, so that a board that does not answer does not keep the process alive
            Thread(target=self._open_in_thread, args=given, daemon=True).start()

    def _open_in_thread(
        self, board: Board, key: Path, loader: Path, begun: Future[BoardClient]
    ) -> None:
        try:
            client = self._open(board, key, loader)
            # `look` needs this answer: it is fetched while the host works
            self._trusted[id(client)] = client.trust()
        except BaseException as error:
            # whatever it is: a future without a result would block `clients` forever
            begun.set_exception(error)
        else:
            begun.set_result(client)

    def clients(self) -> list[BoardClient]:
        """Returns the boards, connected."""
        if self._clients is None:
            if self._begun:
                clients = [begun.result() for begun in self._begun]
            else:
                clients = [
                    self._open(board, self.signing.public_key) for board in self._wanted_boards()
                ]
            for client in clients:
                self._times[id(client)].show()
            self._clients = clients
        return self._clients

    def probe(self, client: BoardClient) -> Probe:
        """Returns a board's facts, requested once."""
        if id(client) not in self._probes:
            self._probes[id(client)] = client.probe()
        return self._probes[id(client)]

    def _open(self, board: Board | None, key: Path, loader: Path | None = None) -> BoardClient:
        from edgekit.deployment.connection import open_board

        times = BoardTimes("board" if board is None else board.name, self.session)
        client = self._stack.enter_context(
            open_board(
                board,
                state_folder=self.cache.folder,
                signer_public_key=key,
                accept_host_key=self._accept_host_key,
                on_command=times.command,
                loader=loader,
            )
        )
        times.connected()
        self._times[id(client)] = times
        return client

    def look(self) -> None:
        """Connects to the configuration's boards and checks whether they trust the signing key.

        This happens before long work, whose result a board would refuse. A key that the board is to
        trust from now on is only compared with the keys that it has revoked.

        Raises:
            EdgekitError: As raised by ``open_board``.
            BundleError: "bundle.unknown-signer" or "bundle.revoked-signer".
        """
        from edgekit.bundles.sign import public_key

        if not self._config.file.deploy.boards:
            return  # edgekit's own board trusts its key
        path = self.signing.public_key
        clients = self.clients()
        key = public_key(path)
        for client in clients:
            # used once: after `trust_signer` the answer is outdated
            known = self._trusted.pop(id(client), None) or client.trust()
            # a KRL, and keys signed by an authority, are judged by the board
            certain = "-cert-" not in key.kind and not any(
                trusted.authority for trusted in known.keys
            )
            if key.fingerprint in known.revocations.fingerprints:
                raise BundleError(
                    f"the signing key {key.fingerprint} is revoked on the board",
                    code="bundle.revoked-signer",
                    where=client.name,
                    hint="sign with another key (deploy.sign_with)",
                )
            if self._trust_key:
                continue  # ``trust_signer`` adds it
            if certain and all(trusted.fingerprint != key.fingerprint for trusted in known.keys):
                where = shlex.quote(self._config.path)
                raise BundleError(
                    f"the board does not trust the signing key {key.fingerprint} ({path})",
                    code="bundle.unknown-signer",
                    where=client.name,
                    hint=f"trust it with --trust-key, or with: edgekit trust {where} --add {path}",
                )

    def trust_signer(self) -> None:
        """Lets the boards trust the signing key, if the user has asked for it."""
        from edgekit.bundles.sign import allowed_signers_line
        from edgekit_device.trust.keys import TrustRequest

        if self._trust_key:
            line = allowed_signers_line(self.signing.public_key)
            for client in self.clients():
                client.trust(TrustRequest(new=(line,)))
            # once is enough for all releases of a run
            self._trust_key = False

    def identity(self, client: BoardClient) -> list[str]:
        """Returns the identity of a board in the keys of its results."""
        board = client.board
        if client.kind != "remote":  # its port and keys change each time
            return [client.kind, client.name, board.root]
        return [
            client.kind,
            client.name,
            board.host,
            str(board.port),
            str(board.user),
            str(board.host_key),
            board.root,
        ]

    def refuse_taken_back(self, client: BoardClient, app: str, digest: str) -> AppReleases:
        """Refuses a bundle that a board has rolled back; returns the board's releases of the app.

        Raises:
            BoardError: "install.taken-back".
        """
        from edgekit.deployment.install import taken_back_error

        state = client.app_releases(app)
        for release in state.releases:
            if release.digest == digest and release.taken_back is not None:
                with self.hinting(client):
                    raise taken_back_error(release.taken_back, client.name)
        return state

    def would_install(
        self,
        client: BoardClient,
        digest: str | None,
        bundle: Bundle | None,
        *,
        always: bool = False,
        put_back: bool = False,
    ) -> InstalledRelease:
        """Returns the result that ``install`` would have on a board, without a change there.

        Args:
            client: The board.
            digest: The bundle's; None if the board has to build its engines first.
            bundle: The bundle, if it is packed.
            always: Install even if the board serves the bundle already.
            put_back: Install even if the bundle was rolled back.

        Returns:
            As a release of ``install``: "release" serves the bundle already, None if it would be
            installed; "bytes_sent" is None if unknown.

        Raises:
            BundleError: The board cannot run the bundle.
            BoardError: "install.taken-back" or "board.disk-full".
        """
        from edgekit.deployment.install import check_fits, check_space

        app = self._config.file.name
        state = (
            client.app_releases(app)
            if put_back or digest is None
            else self.refuse_taken_back(client, app, digest)
        )
        serving = state.current_release
        reused = serving is not None and serving.digest == digest and not always
        lacking: int | None = 0 if reused else None
        if bundle is not None:
            sizes = bundle.manifest.sizes()
            # as an installation would: damaged blobs are sent again
            lacking = sum(sizes[missing] for missing in client.missing(sizes, verify=True))
            # a release that lacks blobs is installed again
            reused = reused and not lacking
        if bundle is not None and lacking is not None and not reused:
            hello = client.hello()
            check_fits(bundle.manifest, hello, client.name)
            check_space(lacking, hello, client.name)
        notes = [f"{client.name} would trust the signing key"] if self._trust_key else []
        return self._add_notes(
            InstalledRelease(
                board=describe_board(client),
                release=serving.id if serving is not None and reused else None,
                digest=digest,
                bytes_sent=lacking,
                previous=None if serving is None else serving.id,
                reused=reused,
                notes=tuple(notes),
            )
        )

    def install(
        self,
        bundle_for: Callable[[BoardClient], Bundle],
        steps: StepLog,
        *,
        always: bool = False,
        put_back: bool = False,
        or_serving: bool = False,
    ) -> list[InstalledRelease]:
        """Brings every board to its bundle; a board that serves it already is unchanged.

        Args:
            bundle_for: Returns a board's bundle: engines are not portable between kinds of boards.
            steps: Called with the steps' progress.
            always: Install even if the board serves the bundle already.
            put_back: Install even if the bundle was rolled back.
            or_serving: If the bundle was rolled back, return the release that serves instead.

        Raises:
            BoardError: Among others "install.taken-back".
        """
        self.trust_signer()
        return [
            self._install(client, bundle_for(client), steps, always, put_back, or_serving)
            for client in self.clients()
        ]

    def _install(
        self,
        client: BoardClient,
        bundle: Bundle,
        steps: StepLog,
        always: bool,
        put_back: bool,
        or_serving: bool,
    ) -> InstalledRelease:
        from edgekit.deployment.install import install

        cache = self.cache
        key = cache.key("release", self.identity(client), bundle.digest)
        with self.hinting(client), InstallSteps(client, bundle, steps) as shown:
            job = DetachedJobNote(self._config, self.session, client)
            try:
                with job:
                    release = install(
                        bundle,
                        client,
                        signature=bundle.signature,
                        progress=shown.progress,
                        keep=self._config.file.deploy.keep,
                        policy=self._config.file.deploy.health.policy(),
                        again=always,
                        put_back=put_back,
                        on_purpose=self._allow_older or None,
                        on_start=job.begins,
                        # what the deployment found then, for a board that serves this bundle
                        # already
                        passed=cache.find(DeploymentFacts, "deployed", key),
                    )
            except BoardError as error:
                # `infer` and `bench` can use the release that the board serves
                if not or_serving or "taken_back" not in error.extra:
                    raise
                return self._serving_release(client, bundle.name, error, shown)
            if release.reused:
                shown.reused(release.id)
        health = release.deployment.health
        result = InstalledRelease(
            board=describe_board(client),
            release=release.id,
            digest=release.digest,
            bytes_sent=release.bytes_sent,
            previous=release.previous,
            reused=release.reused,
            notes=() if health is None else tuple(f"{client.name}: {x}" for x in health.notes),
            bit_equal=health is not None and health.golden.bit_equal,
            hello=release.hello,
        )
        if id(client) in self._times:
            self._times[id(client)].ended(() if release.reused else release.deployment.steps)
        cache.keep("release", key, result)
        cache.keep("deployed", key, release.deployment)
        return self._add_notes(result)

    def _serving_release(
        self, client: BoardClient, app: str, error: BoardError, shown: InstallSteps
    ) -> InstalledRelease:
        """Returns the release that the board serves instead of a bundle that it rolled back."""
        state = client.app_releases(app)
        serving = state.current_release
        if serving is None:
            error.message += "; no release is running now"
            raise error
        back = read(TakenBack, error.extra["taken_back"])
        shown.reused(serving.id, other=True)
        note = taken_back_note(client.name, serving.id, back, self._config.path)
        key = self.cache.key("release", self.identity(client), serving.digest)
        # known if this machine installed it: its self-test had a result then
        known = self.cache.find(InstalledRelease, "release", key)
        return self._add_notes(
            InstalledRelease(
                board=describe_board(client),
                release=serving.id,
                digest=serving.digest,
                bytes_sent=0,
                previous=state.previous,
                reused=True,
                notes=(note,),
                bit_equal=known is not None and known.bit_equal,
                hello=None if known is None else known.hello,
                taken_back=back,
                backend=serving.backend,
            )
        )

    @contextlib.contextmanager
    def hinting(self, client: BoardClient) -> Iterator[None]:
        """Puts the user's name for the board into its hints."""
        try:
            yield
        except EdgekitError as error:
            config = self._config
            fill_hint(error, config.path, client.board, len(config.file.deploy.boards) > 1)
            raise

    def _add_notes(self, result: InstalledRelease) -> InstalledRelease:
        """Returns the result; adds the board's notes to the run's."""
        self.session.note(*result.notes)
        return result

    def _wanted_boards(self) -> list[Board | None]:
        return list(config_boards(self._config)) or [None]
