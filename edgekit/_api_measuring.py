"""Functions of the commands that measure again and again, or show what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.pipeline import TraceFiles, Wish

__all__ = ["compare", "history", "top", "trace", "tune"]


def tune(
    config: str | Path | Config,
    wish: Wish | None = None,
    *,
    out: str | Path | None = None,
    tables: Sequence[str | Path] = (),
    keep: bool = False,
    anew: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    accept_host_key: bool = False,
    trust_key: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Plans, builds and measures until nothing that is left can be better: an ``edgekit.tune/1``.

    ``wish`` is an ``edgekit.pipeline.Wish`` (objective, budget, rounds, turns); ``tables`` are
    tuned.profile.json files of earlier tunings; ``tell`` is told what happens.
    """
    from edgekit.config import open_config
    from edgekit.pipeline import tune

    return tune(
        open_config(config, **options), wish, out=None if out is None else Path(out),
        tables=[Path(table) for table in tables], keep=keep, anew=anew, tell=tell,
        accept_host_key=accept_host_key, trust_key=trust_key,
    )  # fmt: skip


def trace(
    files: TraceFiles, save: str | Path = "trace.json",
    config: str | Path | Config | None = None, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Lays measurements (``edgekit.pipeline.TraceFiles``) on one timeline in ``save``.

    Returns an ``edgekit.trace-summary/1``. A configuration gives the plan, which names layers.
    """
    from edgekit.config import open_config
    from edgekit.pipeline import Pipeline, trace

    if config is None:
        return trace(files, Path(save))
    with Pipeline(open_config(config, **options)) as pipeline:
        return trace(files, Path(save), pipeline=pipeline)


def compare(
    a: str, b: str, *, name: str | None = None, board: str | None = None, **options: Any
) -> dict[str, Any]:
    """Returns an ``edgekit.compare/1``: whether B, the new one, really differs from A.

    Both are files, ids of the history, "last~1", "baseline:NAME" or git revisions; the options are
    those of ``edgekit.history.compare`` (metric, threshold, confidence, force).
    """
    from edgekit.history import compare, select

    return compare(*(select(words, name=name, board=board) for words in (a, b)), **options)


def history(
    name: str | None = None, *, board: str | None = None, limit: int = 20
) -> dict[str, Any]:
    """Returns an ``edgekit.history/1``: what was measured, the newest first."""
    from edgekit.history import Store, history_document

    with Store() as store:
        return history_document(store.results(name=name, board=board, limit=limit))


def top(
    where: str, board: str | None = None, *, accept_host_key: bool = False, **options: str
) -> dict[str, Any]:
    """Returns an ``edgekit.top/1``: a board as it is now.

    ``where`` is a host or a configuration; the options are a host's ``root`` and ``python``.
    """
    from edgekit.pipeline._top import board_of, look

    return look(board_of(where, board, **options), where, accept_host_key=accept_host_key)
