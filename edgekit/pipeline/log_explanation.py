"""The explanation of a build log, with its placement beside the verdicts of the built model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit.buildlog.comparison import LogComparison, compare
from edgekit.buildlog.explanation import explain_whole, likely_board, matching_boards
from edgekit.buildlog.facts import BuildLog
from edgekit.buildlog.log_document import ExplainedLog
from edgekit.buildlog.reading import read_whole
from edgekit.network.source import is_config_file


def explain_log(
    path: str | Path,
    *,
    name: str | None = None,
    model: str | None = None,
    on_note: Callable[[str], object] = str,
    **options: Any,
) -> ExplainedLog:
    """Explains a log of trtexec, Ultralytics, DeepStream or TensorRT's API.

    Args:
        path: The log.
        name: Name of the log in the answer, instead of its path.
        model: The model that was built, for a comparison with its verdicts ("compare").
        on_note: Called with a line of text when a part of the work begins.
        options: As for a check: ``target`` and so on. The log's values are the default.

    Raises:
        UsageError: The file is no such log, or a model without a board that the log does not name.
        EdgekitError: As raised by a check of the model.
    """
    on_note("reading the log")
    whole = read_whole(path)
    found = explain_whole(whole, name or str(path))
    if model is None:
        return found
    notes = list(found.notes)
    given = {key: value for key, value in options.items() if value is not None}
    if "target" not in given and not is_config_file(model):
        boards = matching_boards(whole.log)
        given["target"] = likely_board(boards)
        if len(boards) > 1:
            notes.append(
                f"the log fits several boards; the verdicts are those of {given['target']}: "
                "--target names another"
            )
    return replace(
        found, compare=_compare_with_model(model, whole.log, on_note, **given), notes=tuple(notes)
    )


def _compare_with_model(
    model: str,
    log: BuildLog,
    on_note: Callable[[str], object],
    **given: Any,
) -> LogComparison:
    from edgekit.pipeline.named_check import check_named

    # a build that allows INT8 allows FP16, too: the lowest is the user's choice
    precision = next((name for name in ("int8", "fp16") if name in log.precisions), None)
    given.setdefault("precision", precision)
    given.setdefault("tensorrt", log.tensorrt or None)
    result = check_named(model, on_note=on_note, **given)
    return compare(result.network, result.judgement, log, target=result.target)
