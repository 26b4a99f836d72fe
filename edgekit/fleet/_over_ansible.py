"""A rollout's boards through Ansible: what several threads ask at a time becomes one run.

A rollout drives boards one by one (``Driver``); Ansible works on many in lockstep. So requests of
one kind that come together are one playbook's boards, and each gets its answer from the run's
events. Waves, budgets, states and taking back stay the rollout's own.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.fleet._ansible import claim, lay_out, put_bundle
from edgekit.fleet._ansible_files import inventory, playbooks, to_yaml
from edgekit.fleet._driver import Deployed, Found
from edgekit.fleet._heard import Request, hear, unheard
from edgekit.fleet._runner import Runner

if TYPE_CHECKING:
    from edgekit.bundle import Bundle
    from edgekit.fleet._types import Member

__all__ = ["AnsibleDriver"]

_GATHER_S = 0.3
_INVENTORY = "boards.yml"


class AnsibleDriver:
    """Boards through ``ansible-runner``; see ``Driver``.

    Args:
        app: The application.
        bundle_for: Returns a board's bundle.
        folder: A private folder for the export; kept, so that the next run writes only what is new.
        forks: Boards at a time.
        terms_of: Returns ``keep``, ``policy`` and ``source`` for a board.
        signers: Lines of allowed_signers that boards are to trust from now on.
        known_hosts: edgekit's own file of known host keys.
        operator: For boards' histories.
        again: Whether boards put back what was taken back on them.
    """

    def __init__(
        self,
        app: str,
        bundle_for: Callable[[Member], Bundle],
        *,
        folder: Path,
        forks: int,
        terms_of: Callable[[Member], Mapping[str, Any]] = lambda member: {},
        signers: Sequence[str] = (),
        known_hosts: str = "",
        operator: str = "ansible",
        again: bool = False,
    ) -> None:
        self._app = app
        self._bundle_for = bundle_for
        self._folder = folder
        self._terms_of = terms_of
        self._forks = forks
        self._shared: dict[str, Any] = {
            "edgekit_board_signers": list(signers),
            "edgekit_board_operator": operator,
            "edgekit_board_again": again,
        }
        self._known_hosts = known_hosts
        self._runner = Runner(folder, forks)
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._put: set[str] = set()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def deploy(self, member: Member, found: Found) -> Deployed:
        """See ``Driver.deploy``."""
        bundle = self._bundle_for(member)
        found(self._serving(member, bundle.digest), bundle.digest)
        terms = self._terms_of(member)
        sources = (terms.get("source") or "").splitlines()
        with self._lock:
            if bundle.digest not in self._put:
                self._prepare()
                put_bundle(bundle, self._folder, copied=not sources)
                self._put.add(bundle.digest)
        facts = {
            "edgekit_board_digest": bundle.digest,
            "edgekit_board_sources": sources,
            "edgekit_board_policy": {"keep": terms.get("keep", 3), **(terms.get("policy") or {})},
        }
        release, changed = self._ask("deploy.yml", member, facts)
        return Deployed(release, bundle.digest, changed=changed)

    def serving(self, member: Member) -> str:
        """See ``Driver.serving``."""
        return self._serving(member, "")

    def back(self, member: Member, digest: str, before: str) -> bool:
        """See ``Driver.back``."""
        facts = {"edgekit_board_digest": digest, "edgekit_board_before": before or "nothing"}
        return bool(self._ask("rollback.yml", member, facts))

    def close(self) -> None:
        """See ``Driver.close``."""
        self._requests.put(None)
        self._runner.close()
        if self._thread is not None:
            self._thread.join(10)

    def _serving(self, member: Member, digest: str) -> str:
        return str(self._ask("serving.yml", member, {"edgekit_board_digest": digest}))

    def _ask(self, play: str, member: Member, facts: dict[str, Any]) -> Any:
        request = Request(play, member, {"edgekit_board_app": self._app, **facts})
        with self._lock:
            self._prepare()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
        self._requests.put(request)
        return request.answer.result()

    def _prepare(self) -> None:
        """Writes what all runs share, once."""
        if "edgekit_board_loader" in self._shared:
            return
        claim(self._folder)
        self._folder.chmod(0o700)
        self._shared["edgekit_board_loader"] = lay_out(self._folder, self._known_hosts)
        for name, text in playbooks([self._forks], 100).items():
            (self._folder / name).write_text(text, encoding="utf-8")

    # the one thread that runs Ansible

    def _work(self) -> None:
        while (first := self._requests.get()) is not None:
            batch, ended = [first], False
            while len(batch) < self._forks and not ended:
                try:
                    more = self._requests.get(timeout=_GATHER_S)
                except queue.Empty:
                    break
                if more is None:
                    ended = True
                else:
                    batch.append(more)
            plays: dict[str, list[Request]] = defaultdict(list)
            for request in batch:
                plays[request.play].append(request)
            for play, requests in plays.items():
                self._answer(play, requests)
            if ended:
                return

    def _answer(self, play: str, requests: list[Request]) -> None:
        by_name = {request.member.name: request for request in requests}
        try:
            document = inventory(
                [request.member for request in requests],
                {name: request.facts for name, request in by_name.items()},
                self._shared,
            )
            text = to_yaml(document, "The boards of this run.")
            (self._folder / _INVENTORY).write_text(text, encoding="utf-8")
            for event in self._runner.events(play, _INVENTORY):
                request = by_name.get(event.host)
                if request is not None and not request.answer.done():
                    hear(request, event)
            for request in requests:
                if not request.answer.done():
                    unheard(request, self._runner.last)
        except BaseException as error:
            for request in requests:
                if not request.answer.done():
                    request.answer.set_exception(error)
