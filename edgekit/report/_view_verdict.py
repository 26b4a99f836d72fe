"""The view of what stands first: the verdict, its reasons with their remedies, and the gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.report import _text as text

__all__ = ["CLOCKS", "clock_tag", "verdict_view"]

CLOCKS = {
    "cpu-measured": "measured on a CPU with the reference backend: not a board time",
    "board-measured": "measured on the board",
    "predicted": "nothing was measured; all times are predictions of the cost model",
}
_PASSED = {True: ("passed", "yes"), False: ("failed", "no"), None: ("not judged", "soft")}


def clock_tag(clock: str) -> dict[str, str]:
    """Returns the word and the style of a clock's tag."""
    return {"text": text.clean(clock), "css": "predicted" if clock == "predicted" else "measured"}


def verdict_view(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Returns status, reasons and gates as words."""
    status = verdict["status"]
    on_board = verdict["clock"] == "board-measured"
    return {
        "status": status,
        "css": {"VALID": "valid", "INVALID": "invalid"}.get(status, "none"),
        # a CPU's time answers nothing that was asked of a board: its verdict is a footnote
        "leads": on_board and status in ("VALID", "INVALID"),
        "command": text.clean(verdict.get("command") or ""),
        "clock": CLOCKS.get(verdict["clock"], text.clean(verdict["clock"])),
        "reasons": [
            {
                "code": text.clean(reason.get("code", "")),
                "message": text.clean(reason["message"]),
                "remedy": text.clean(reason.get("remedy", "")),
            }
            for reason in verdict["reasons"]
        ],
        "unchecked": [text.clean(_told(one)) for one in verdict["unchecked"]],
        "gates": [_gate(gate) for gate in verdict["gates"]],
    }


def _told(one: Any) -> str:
    """Returns the words of something that was not checked: a sentence, or an object with one."""
    return str(one.get("message") or one.get("code") or one) if isinstance(one, Mapping) else one


def _gate(gate: Mapping[str, Any]) -> dict[str, str]:
    answer, css = _PASSED[gate.get("passed")]
    return {
        "name": _NAMES.get(gate["gate"], text.clean(gate["gate"])),
        "answer": answer,
        "css": css,
        "link": "baseline" if gate["gate"] == "baseline" else "",
        "told": text.clean(_words(gate)),
    }


_NAMES = {
    "accuracy": "Accuracy", "refit": "Refit on the board", "memory": "DLA memory",
    "steps": "Steps", "baseline": "Against the baseline",
}  # fmt: skip


def _metric(gate: Mapping[str, Any]) -> str:
    """Returns what an accuracy gate found; a passed one without an SNR found no error."""
    from edgekit.build import decibels

    found, passed = gate.get("found"), gate.get("passed")
    if gate.get("metric") == "snr_db":
        return decibels(found, found is None and passed is True, "{:.5g}")
    return "not known" if found is None else f"{found:.5g}"


def _words(gate: Mapping[str, Any]) -> str:
    found, limit = gate.get("found"), gate.get("limit")
    match gate["gate"]:
        case "accuracy":
            value = _metric(gate)
            least = text.ABSENT if limit is None else f"{limit:g}"
            on = f" ({gate['on']})" if gate.get("on") else ""
            return f"{gate.get('metric', 'cosine')} {value}, at least {least} wanted{on}"
        case "memory":
            pool = text.POOLS.get(str(gate.get("pool")), str(gate.get("pool")))
            return f"fullest pool: {text.size(found)} of {text.size(limit)} {pool}"
        case "refit":
            words = {True: "outputs equal bit for bit", False: "outputs differ"}
            return words.get(gate.get("passed"), "")  # type: ignore[arg-type]
        case "steps":
            return "all done" if gate.get("passed") else f"{found} failed"
        case "baseline":
            words = {
                True: "no regression past the threshold",
                False: str(gate.get("told") or "a regression"),
            }
            return words.get(gate.get("passed"), "")  # type: ignore[arg-type]
    return ""
