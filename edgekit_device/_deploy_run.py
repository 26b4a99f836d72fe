"""One deployment, from its journal's state to its end: committed, rolled back or failed.

Every state is journaled before its work begins, and its work may be done again: so the same code
runs a new deployment and carries on one whose process died.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ._counters import count, issued_facts
from ._deploy_child import Progress, Turn, in_child
from ._deploy_end import Ending, as_device_error, error_of, told_back
from ._deploy_soak import soak
from ._deployment import BEFORE_SWITCH
from ._errors import DeviceError
from ._policy import read_policy
from ._refit_release import refit_release
from ._release import is_ready, stage, switch
from ._reserve import free_reserve, keep_reserve

__all__ = ["Deploying"]

_MOST_ATTEMPTS = 3


class Deploying(Ending):
    """A deployment under its app's lock.

    Args:
        root: The installation.
        app: The app; its ``deploying`` lock is held by this process.
        journal: The deployment.
        tell: Told of progress; phases are the states.
        stopped: Raises when somebody has cancelled it or wants the release before back.
        held: The lock's descriptor.
    """

    def to_end(self) -> Dict[str, Any]:
        """Carries the deployment on from its state to its end.

        Returns:
            The journal's document, with "changed" and what the refit said as "refit".

        Raises:
            DeviceError: Why it failed or was rolled back; the journal has ended then.
        """
        facts = self.journal.facts
        attempts = int(facts.get("attempts") or 0) + 1
        if self.journal.state == "rolling-back":
            error = error_of(facts)
            self._back(error)
            raise error
        try:
            if attempts > _MOST_ATTEMPTS:
                raise DeviceError(
                    "it was cut off {} times, the last time while {}".format(
                        attempts - 1, self.journal.state
                    ),
                    code="deploy.cut-off",
                    hint="does the release crash the board? `dmesg` and the job's log may tell",
                )
            facts["attempts"] = attempts
            return self._forward()
        except (DeviceError, OSError, MemoryError) as error:
            known = as_device_error(error)
            self.give_up(known)
            if self.journal.state == "rolled-back":
                raise told_back(known, facts) from error
            raise known from error

    def _forward(self) -> Dict[str, Any]:
        facts = self.journal.facts
        if self.journal.state in BEFORE_SWITCH:
            self._prepare()
            keep_reserve(self.app)
            self._enter("switching")
        self.stopped()
        switch(self.app, facts["release"])
        self._told("switching")
        self._enter("soaking")
        soak(self)
        self._told("soaking")
        free_reserve(self.app, 1)
        # before it counts as done: a power cut in between soaks again, and counts again
        count(self.root, self.app.name, facts["digest"], facts.get("issued"))
        # from here on it serves for good: what follows costs space, not the deployment
        self._enter("committed", error=None)
        self._end()
        return {
            **facts,
            "refit": self._done["refit"],
            "changed": facts["previous"] != facts["release"],
        }

    def _prepare(self) -> None:
        """Everything before the switch."""
        facts = self.journal.facts
        limits = read_policy(facts["policy"])["timeouts"]
        if facts.get("source"):
            self.child(self._download, {"downloading": limits["download_s"]})
        self._enter("verifying")
        manifest, signature = self._offered()
        staged = stage(
            self.root,
            manifest,
            signature,
            app=self.app.name,
            trust_unsigned=bool(facts.get("trust_unsigned")),
        )
        facts["release"] = staged.release
        facts["issued"] = issued_facts(staged.checked)
        if not is_ready(self.app.releases_folder / staged.release):
            from ._requires import check_requires

            check_requires(self.root, staged.checked.manifest)
        self._told("verifying")
        found = self.child(
            self._test, {"refitting": limits["refit_s"], "testing": limits["test_s"]}
        )
        self._told("testing")
        self._done["refit"] = found["refit"]
        facts["health"] = found["health"]

    def _download(self, turn: Turn, tell: Progress) -> Dict[str, Any]:
        turn("downloading")
        from ._bundle import BundleFiles
        from ._source import fetch_from
        from ._verify import check_bundle

        facts, store = self.journal.facts, self.root.store
        manifest, signature = self._offered()
        files = BundleFiles("the offered bundle", manifest, signature, store.read, store.has)
        trust = bool(facts.get("trust_unsigned"))
        checked = check_bundle(files, self.root.allowed_signers, trust)

        def progress(phase: str, done: int, total: int) -> None:
            tell("downloading", done, total, "")

        fetch_from(facts["source"], checked.manifest, self.root, progress)
        return {}

    def _test(self, turn: Turn, tell: Progress) -> Dict[str, Any]:
        from ._health import examine

        facts = self.journal.facts
        turn("refitting")
        folder = self.app.release(facts["release"])
        refit, model = refit_release(self.root, self.app, folder)
        turn("testing")
        health = examine(self.root, self.app, folder, facts["policy"], model)
        return {"refit": refit, "health": health}

    def child(
        self,
        work: Callable[[Turn, Progress], Dict[str, Any]],
        limits: Dict[str, float],
        journaled: bool = True,
    ) -> Dict[str, Any]:
        """Runs work in a process of its own; each state is journaled before it begins there."""

        def on_turn(state: str) -> Optional[float]:
            if journaled:
                self._enter(state)
            return limits.get(state)

        return in_child(work, on_turn, self.tell, self.stopped, [self._held])

    def _enter(self, state: str, **facts: Any) -> None:
        self.journal.enter(state, **facts)
        self.tell(state, 0, 1, "")

    def _told(self, state: str) -> None:
        self.tell(state, 1, 1, "")
