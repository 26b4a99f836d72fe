"""Resolves the command line's words for measurements (a file, an id, `last`, `baseline:NAME`, a
git revision), and makes the rows that `edgekit history` lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from edgekit.benchmark.document import SCHEMA
from edgekit.documents import fault_words, load_json
from edgekit.errors import DataError, UsageError
from edgekit.results.recording import result_of_document, revision
from edgekit.results.store import (
    HISTORY_SCHEMA,
    History,
    RecordedBench,
    Repaired,
    Result,
    ResultStore,
    history_path,
    history_row,
    is_same_measurement,
)

SELECTOR_HELP = "a bench.json, an id, last, last~N, baseline:NAME or a git revision"
_LAST = re.compile(r"last(?:~(\d{1,9}))?")
_IDS = re.compile(r"#?(\d{1,18})(?:-#?(\d{1,18}))?")
_LARGEST = 512 << 20  # bytes of a file; the samples of a long run take a few MB
_MOST = 200  # runs a side
_PAST = 100  # earlier results of a configuration from which the spread is computed


def select_results(
    words: str,
    *,
    name: str | None = None,
    board: str | None = None,
    store: ResultStore | None = None,
    but: Result | None = None,
) -> list[Result]:
    """Returns the measurements that ``words`` name, at least one.

    Args:
        words: Comma-separated files, ids and id ranges (12, 12-16), "last", "last~1" (the result
            before the last; trials of edgekit tune only if ``name`` is theirs), "baseline:NAME"
            (edgekit history mark) and git revisions (results of that commit with unchanged files;
            if there are none, all results of the commit).
        name: Only results of this configuration.
        board: Only results of this board.
        store: The history; by default the user's own.
        but: A measurement that "last" skips, because it is compared with the result.

    Raises:
        DataError: A result does not exist, or a file is no measurement.
        UsageError: The words are invalid.
    """
    if store is None:
        with ResultStore() as own:
            return select_results(words, name=name, board=board, store=own, but=but)
    found: list[Result] = []
    for word in filter(None, (part.strip() for part in words.split(","))):
        found += _select_word(word, store, name, board, but)
    if not found:
        raise UsageError("no measurement is given", hint=f"give {SELECTOR_HELP}")
    if len(found) > _MOST:
        raise UsageError(
            f"{len(found)} measurements, but at most {_MOST} are possible on each side"
        )
    # words may overlap, as in "12-16,14": a run counts once
    return list({(result.id, result.label): result for result in found}.values())


def _select_word(
    word: str, store: ResultStore, name: str | None, board: str | None, but: Result | None
) -> list[Result]:
    if match := _LAST.fullmatch(word):
        skip = int(match[1] or 0)
        if but is None:
            found = store.results(name=name, board=board, limit=1, skip=skip, trials=False)
        else:
            # one more, since `but` may be among them
            some = store.results(name=name, board=board, limit=skip + 2, trials=False)
            found = [row for row in some if not is_same_measurement(row, but)][skip : skip + 1]
        return _require_results(found, f"{word}{_conditions_text(name, board, but)}", store)
    if match := _IDS.fullmatch(word):
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= _MOST:
            raise UsageError(f"{word} are more than the {_MOST} measurements possible")
        found = store.results(ids=range(first, last + 1))
        # git abbreviates commits to at least 4 letters; a file may be called 2024
        if found or (len(match[1]) < 4 and not Path(word).exists()):
            return _require_results(found, f"#{word.lstrip('#')}", store)
    if word.startswith("baseline:"):
        mark = word.removeprefix("baseline:")
        return _require_results(store.results(mark=mark), word, store)
    path = Path(word).expanduser()
    # a folder may have a branch's name; the reader refuses a path that is no file
    if path.exists() and not path.is_dir():
        return [read_result(path)]
    commit = revision(word, Path.cwd())
    if commit is None and path.is_dir():
        return [read_result(path)]
    if commit is None:
        raise UsageError(
            f"{word!r} is not a file, result or git revision",
            hint=f"give {SELECTOR_HELP}",
            code="compare.unknown",
        )
    found = store.results(commit=commit, name=name, board=board)
    # with changed files the commit is not the measured state
    clean = [result for result in found if result.git and not result.git.dirty]
    return _require_results(
        clean or found, f"{word} ({commit[:12]}){_conditions_text(name, board, None)}", store
    )


def past_results(a: Sequence[Result], b: Sequence[Result]) -> list[Result]:
    """Returns the newest results of the same configurations in the user's history, from which the
    spread between runs is computed; none if a side has several runs, which have their own spread.
    """
    if len(a) > 1 or len(b) > 1:
        return []
    names = dict.fromkeys(result.name for result in (*a, *b))
    with ResultStore() as store:
        return [result for name in names for result in store.results(name=name, limit=_PAST)]


def _conditions_text(name: str | None, board: str | None, but: Result | None) -> str:
    """Returns the other search conditions, for an error message."""
    of = f" of {name}" if name is not None else ""
    on = f" on board {board}" if board is not None else ""
    return f"{of}{on}{' other than the run itself' if but is not None else ''}"


def _require_results(found: list[Result], what: str, store: ResultStore) -> list[Result]:
    if not found:
        raise DataError(
            f"the history has no result {what}",
            code="history.no-result",
            where=str(store.path),
            hint="list results with edgekit history, add one with edgekit bench",
        )
    return found


def read_result(path: Path) -> Result:
    """Returns the measurement in a ``bench.json``, a ``run --json`` document or an export.

    Raises:
        DataError: The file cannot be read, or has no measurement.
    """
    document = load_json(
        path,
        _LARGEST,
        unreadable="compare.file",
        invalid="compare.file",
        hint=f"give {SELECTOR_HELP}",
    )
    try:
        if isinstance(document, Mapping) and isinstance(document.get("bench"), Mapping):
            document = document["bench"]
        if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        return result_of_document(RecordedBench.model_validate(document), str(path))
    except (ValueError, OverflowError) as error:
        why = fault_words(error) if isinstance(error, ValidationError) else error
        raise DataError(
            f"it is not a measurement: {why}",
            code="compare.file",
            where=str(path),
            hint="give a bench.json from edgekit bench",
        ) from error


def history_document(results: Sequence[Result], mended: Repaired | None = None) -> History:
    """Returns results as a history document, in the given order."""
    rows = [history_row(result) for result in results]
    return History(schema=HISTORY_SCHEMA, file=str(history_path()), results=rows, repair=mended)
