"""The boards of a configuration, connected when they are first needed."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import BoardError, BundleError, EdgekitError
from edgekit.pipeline._hosts import boards_of_config, fill_hint
from edgekit.pipeline._installing import BoardTimes, Installing, Watched
from edgekit.pipeline._signing import Signing

if TYPE_CHECKING:
    from edgekit.bundle import Bundle
    from edgekit.deploy import Board, BoardClient
    from edgekit.pipeline._steps import Steps
    from edgekit.pipeline._work import Work

__all__ = ["Boards", "serving_of", "taken_back_note"]


class Boards:
    """Connections to every board of a configuration; its own board when it names none."""

    def __init__(
        self, work: Work, signing: Signing, *, accept_host_key: bool, trust_key: bool
    ) -> None:
        self._work = work
        self._signing = signing
        self._accept_host_key = accept_host_key
        self._trust_key = trust_key
        self._stack = contextlib.ExitStack()
        self._clients: list[BoardClient] | None = None
        self._times: dict[int, BoardTimes] = {}

    def close(self) -> None:
        """Closes every connection; edgekit's own board stops."""
        self._clients = None
        self._stack.close()

    def use(self, clients: Iterable[BoardClient]) -> None:
        """Takes boards that somebody else has connected, and closes, instead of its own."""
        self._clients = list(clients)

    def clients(self) -> list[BoardClient]:
        """Returns the boards, connected."""
        if self._clients is None:
            self._clients = [self._open(board) for board in self._wanted()]
        return self._clients

    def _open(self, board: Board | None) -> BoardClient:
        from edgekit.deploy import open_board

        times = BoardTimes("board" if board is None else board.name, self._work)
        client = self._stack.enter_context(
            open_board(
                board,
                state_folder=self._work.cache.folder,
                signer_public_key=self._signing.public_key,
                trust_key=self._trust_key,
                accept_host_key=self._accept_host_key,
                on_command=times.command,
            )
        )
        times.connected()
        self._times[id(client)] = times
        return client

    def look(self) -> None:
        """Connects to the configuration's boards and asks whether they believe who signs here.

        It is asked before long work, whose result a board would refuse.

        Raises:
            EdgekitError: As ``open_board``.
            BundleError: "bundle.unknown-signer" or "bundle.revoked-signer".
        """
        from edgekit.bundle import public_key

        if not self._work.file.deploy.boards:
            return  # edgekit's own board trusts its key
        path = self._signing.public_key
        clients = self.clients()
        key = public_key(path)
        for client in clients:
            known = client.trust()
            # a KRL, and what an authority has signed, are the board's to judge
            certain = "-cert-" not in key.kind and not any(
                one.get("authority") for one in known["keys"]
            )
            if key.fingerprint in known["revocations"]["fingerprints"]:
                raise BundleError(
                    f"the key that signs is revoked there, {key.fingerprint}",
                    code="bundle.revoked-signer",
                    where=client.name,
                    hint="sign with another key (deploy.sign_with)",
                )
            if certain and all(one["fingerprint"] != key.fingerprint for one in known["keys"]):
                where = shlex.quote(self._work.config.path)
                raise BundleError(
                    f"the board does not trust the key that signs, {key.fingerprint} ({path})",
                    code="bundle.unknown-signer",
                    where=client.name,
                    hint=f"--trust-key lets it, or edgekit trust {where} --add {path}",
                )

    def describe(self, client: BoardClient) -> dict[str, str]:
        """Returns the contract's ``board`` object."""
        return {"name": client.name, "kind": client.kind, "note": client.note}

    def identity(self, client: BoardClient) -> list[str]:
        """Returns what tells one board's results from another's."""
        board = client.board
        if client.kind != "remote":  # its port and keys are new each time
            return [client.kind, client.name, board.root]
        return [client.kind, client.name, board.host, str(board.port), str(board.user),
                str(board.host_key), board.root]  # fmt: skip

    def serves(self, client: BoardClient, app: str) -> tuple[str, str] | None:
        """Returns id and bundle digest of the release that serves, or None."""
        found = serving_of(client.releases(app)["apps"].get(app, {}))
        return None if found is None else (found["id"], found["digest"])

    def install(
        self,
        bundle_for: Callable[[BoardClient], Bundle],
        steps: Steps,
        *,
        always: bool = False,
        put_back: bool = False,
        or_serving: bool = False,
    ) -> list[dict[str, Any]]:
        """Brings every board to its bundle; one that serves it already is left alone.

        Args:
            bundle_for: Returns a board's bundle: engines are not portable between kinds of boards.
            steps: Where the steps are told.
            always: Install also where the bundle serves already.
            put_back: Install also where the bundle was taken back.
            or_serving: Where the bundle was taken back, return what serves instead.

        Returns:
            One object a board: board, release, digest, bytes sent and reused, refit and self-test,
            and "taken_back": None, or "release", "at" and "reason" of the bundle's own release
            where another one serves.

        Raises:
            BoardError: Among others "install.taken-back".
        """
        return [
            self._install(client, bundle_for(client), steps, always, put_back, or_serving)
            for client in self.clients()
        ]

    def _install(
        self,
        client: BoardClient,
        bundle: Bundle,
        steps: Steps,
        always: bool,
        put_back: bool,
        or_serving: bool,
    ) -> dict[str, Any]:
        from edgekit.deploy import install

        cache = self._work.cache
        key = cache.key("release", self.identity(client), bundle.digest)
        known = cache.get("release", key)
        with self.hinting(client), Installing(client, bundle, steps) as shown:
            job = Watched(self._work, client)
            try:
                with job:
                    release = install(
                        bundle,
                        client,
                        signature=bundle.signature,
                        progress=shown.progress,
                        keep=self._work.file.deploy.keep,
                        policy=self._work.file.deploy.health.policy(),
                        again=always,
                        put_back=put_back,
                        source="\n".join(self._work.file.deploy.mirror) or None,
                        on_start=job.begins,
                    )
            except BoardError as error:
                if not or_serving or "taken_back" not in error.extra:
                    raise
                return self._what_serves(client, bundle.name, error, shown)
            if release.reused:
                shown.reused(release.id)
        result = {
            "board": self.describe(client),
            "release": release.id,
            "digest": release.digest,
            "bytes_sent": release.bytes_sent,
            "bytes_reused": release.bytes_reused,
            "previous": release.previous,
            "refit": dict(release.refit),
            "selftest": dict(release.selftest),
            "hello": dict(release.hello) or (known or {}).get("hello") or {},
            "notes": [f"{client.name}: {text}" for text in release.selftest.get("notes", ())],
            "reused": release.reused,
            "taken_back": None,
        }
        if id(client) in self._times:
            self._times[id(client)].ended(() if release.reused else release.steps)
        cache.put("release", key, result)
        return self._told(result)

    def _what_serves(
        self, client: BoardClient, app: str, error: BoardError, shown: Installing
    ) -> dict[str, Any]:
        """What the board serves instead of a bundle that was taken back there."""
        state = client.releases(app)["apps"].get(app, {})
        serving = serving_of(state)
        if serving is None:
            error.message += "; nothing serves now"
            raise error
        back = error.extra["taken_back"]
        shown.reused(serving["id"], other=True)
        note = taken_back_note(client.name, serving["id"], back, self._work.config.path)
        key = self._work.cache.key("release", self.identity(client), serving["digest"])
        known = self._work.cache.get("release", key) or {}
        return self._told({
            "board": self.describe(client),
            "release": serving["id"],
            "digest": serving["digest"],
            "bytes_sent": 0,
            "bytes_reused": 0,
            "previous": state.get("previous"),
            "refit": known.get("refit") or {},
            "selftest": known.get("selftest") or {},
            "hello": known.get("hello") or {},
            "notes": [note],
            "reused": True,
            "taken_back": back,
            "backend": serving.get("backend"),
        })  # fmt: skip

    @contextlib.contextmanager
    def hinting(self, client: BoardClient) -> Iterator[None]:
        """A board's hints name the board as the user does."""
        try:
            yield
        except EdgekitError as error:
            config = self._work.config
            fill_hint(error, config.path, client.board, len(config.file.deploy.boards) > 1)
            raise

    def _told(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result; what its board notes is the run's, too."""
        notes = self._work.notes
        notes += [note for note in result.get("notes", ()) if note not in notes]
        return result

    def _wanted(self) -> list[Any]:
        return list(boards_of_config(self._work.config)) or [None]


def taken_back_note(board: str, serving: str | None, back: Mapping[str, str], config: str) -> str:
    """Says that another release serves than the one deployed last, and why.

    Args:
        board: The board's name.
        serving: The release that serves, None for none.
        back: "release", "at" and "reason" of the one that was taken back.
        config: The configuration's file.
    """
    return (
        f"{board} serves {serving or 'nothing'}: the configuration's release, {back['release']}, "
        f"was taken back at {back['at']}: {back['reason']} "
        f"(edgekit deploy {shlex.quote(config)} --again puts it back)"
    )


def serving_of(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the release that serves, None for none; ``state`` is of the board's "releases"."""
    return next((r for r in state.get("releases", ()) if r["id"] == state.get("current")), None)
