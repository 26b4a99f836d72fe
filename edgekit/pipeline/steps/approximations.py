"""What each approximate rewrite changes in the network's outputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from edgekit.network.model import Model
from edgekit.pipeline.steps.accuracy import Work
from edgekit.rewriting.graph import APPROXIMATE


def approximations(work: Work) -> list[dict[str, Any]]:
    """Returns what each approximate rewrite that was applied changes on the calibration data.

    Each is applied to the original network alone: ``max_error`` is the largest difference of any
    output, ``rms_error`` the root of the mean square, both over the output's largest value; None
    where infinities and NaNs of the original are not those of the other. ``note`` says it in words.
    """
    from edgekit.rewriting.rewrite import rewrite

    names = dict.fromkeys(item["rewrite"] for item in work.rewrites if _is_approximate(item))
    if not names:
        return []

    def compute() -> list[dict[str, Any]]:
        found = []
        for number, name in enumerate(names):
            work.update(number, len(names), f"error of {name}")
            alone = rewrite(
                work.source, work.target, precision=work.file.precision, tensorrt=work.tensorrt,
                enable="none", allow_approx=[name], lowers=work.lowers,
            ).model  # fmt: skip
            # where it applies only after others, what all of them change is the nearest answer
            model = work.model if alone is work.source else alone
            found.append(
                {"rewrite": name, **_approximation_error(work.source, model, work.inputs())}
            )
        return found

    result: list[dict[str, Any]] = work.stored(
        "approximate", compute, work.source.digest, work.model_digest, list(names),
        work.inputs_identity, *work._rules,
    )  # fmt: skip
    work.read = result[0]["inputs"]
    return [
        {**item, "data": work.inputs_text, "note": _approximation_note(item, work)}
        for item in result
    ]


def _approximation_note(item: Mapping[str, Any], work: Work) -> str:
    if item["max_error"] is None:
        return (
            f"{item['rewrite']} changes results beyond comparison: what it gives is not finite "
            f"where the original's is, or the other way round ({work.inputs_text})"
        )
    return (
        f"{item['rewrite']} changes results: by up to {item['max_error']:.1e} of an output's "
        f"largest value ({work.inputs_text})"
    )


def _is_approximate(applied: Mapping[str, Any]) -> bool:
    return str(applied["rewrite"]).startswith(APPROXIMATE)


def _approximation_error(
    before: Model, after: Model, inputs: Iterable[Mapping[str, np.ndarray]]
) -> dict[str, Any]:
    from edgekit.network.session import session

    outputs = [value.name for value in before.proto.graph.output]
    old, new = session(before), session(after)
    worst, squares, count = 0.0, 0.0, 0
    for sample in inputs:
        feeds = dict(sample)
        for a, b in zip(old.run(outputs, feeds), new.run(outputs, feeds), strict=True):
            difference = _difference(a.astype(np.float64), b.astype(np.float64))
            worst = max(worst, float(difference.max(initial=0.0)))
            squares += float((difference**2).mean()) if difference.size else 0.0
        count += 1
    known = math.isfinite(worst)
    return {
        "max_error": worst if known else None,
        "rms_error": (squares / max(1, count * len(outputs))) ** 0.5 if known else None,
        "inputs": count,
    }


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``|b-a|`` over the largest ``|a|``; infinite where NaNs and infinities are not the same."""
    sane = np.isfinite(a)
    if not np.array_equal(b[~sane], a[~sane], equal_nan=True):
        return np.full(1, np.inf)
    a, b = a[sane], b[sane]
    difference = np.abs(b - a) / (np.abs(a).max(initial=0.0) or 1.0)
    return np.where(np.isnan(difference), np.inf, difference)
