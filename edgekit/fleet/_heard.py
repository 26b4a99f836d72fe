"""What the events of an Ansible run say of a board, as a rollout's answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgekit.errors import BoardError, EdgekitError, EnvironmentLack
from edgekit.fleet._driver import serving_of
from edgekit.fleet._hints import ACCEPT_KEY
from edgekit.fleet._runner import Event

if TYPE_CHECKING:
    from edgekit.fleet._types import Member

__all__ = ["Request", "hear", "unheard"]

# the role's tasks whose results are answers
_SERVING = ("What serves", "What serves, with the loader")
_OFFER = "What it lacks of the bundle"
_INSTALLED, _BACK = "The bundle is installed", "What served before serves again"


@dataclass(slots=True)
class Request:
    """What is wanted of one board: a playbook, the board's variables, and the answer to come."""

    play: str
    member: Member
    facts: dict[str, Any]
    answer: Future[Any] = field(default_factory=Future)
    offered: str = ""


def hear(request: Request, event: Event) -> None:
    """Answers a request where an event is its answer."""
    answer = request.answer
    told = _json(event.result.get("stdout"))
    if event.what == "unreachable":
        why = " ".join(str(event.result.get("msg") or "Ansible cannot reach it").split())
        answer.set_exception(
            # as OpenSSH says it
            BoardError(why, code="board.unknown-host-key", where=event.host, hint=ACCEPT_KEY)
            if "host key is known for" in why
            else EnvironmentLack(
                why,
                code="board.unreachable",
                where=event.host,
                hint=f"try it: ssh {request.member.board.host}",
            )
        )
    elif event.what == "failed":
        answer.set_exception(_failure(event, told))
    elif event.task == _BACK:
        answer.set_result(event.what == "ok")
    elif event.what == "skipped":
        return
    elif event.task in _SERVING and "apps" in told and request.play == "serving.yml":
        state = told["apps"].get(request.facts["edgekit_board_app"], {})
        answer.set_result(serving_of(state)[1])
    elif event.task == _OFFER and told.get("serving"):
        request.offered = str(told["serving"])
    elif event.task == _INSTALLED and "release" in told:
        answer.set_result((str(told["release"]), bool(told["changed"])))


def unheard(request: Request, last: str) -> None:
    """Answers a request after its run."""
    if request.offered:  # it serves already: nothing was to be done
        request.answer.set_result((request.offered, False))
        return
    request.answer.set_exception(
        BoardError(
            f"ansible-runner ended without an answer{': ' + last if last else ''}",
            code="fleet.ansible",
            where=request.member.name,
            hint="run ansible-playbook in the rollout's folder of the state by hand: it says more",
        )
    )


def _failure(event: Event, told: Mapping[str, Any]) -> EdgekitError:
    error = told.get("error")
    if isinstance(error, dict):
        return BoardError(
            str(error.get("message")),
            code=str(error.get("code")),
            where=event.host,
            hint=str(error.get("hint") or ""),
        )
    said = event.result.get("stderr") or event.result.get("msg") or "no reason was told"
    return BoardError(
        f"{event.task}: {' '.join(str(said).split())[:500]}",
        code="board.failed",
        where=event.host,
        hint="Ansible's task failed before edgekit's loader could answer",
    )


def _json(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
