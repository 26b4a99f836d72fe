"""Which measurements a word of the command line means (a file, an id, `last`, `baseline:NAME`, a
git revision), and the rows that `edgekit history` lists of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.errors import DataError, UsageError
from edgekit.files import parse_json, regular
from edgekit.results.recording import board_of, revision
from edgekit.results.store import Result, ResultStore, history_path, is_trial

SELECTOR_HELP = "a bench.json, an id, last, last~N, baseline:NAME or a git revision"
_LAST = re.compile(r"last(?:~(\d{1,9}))?")
_IDS = re.compile(r"#?(\d{1,18})(?:-#?(\d{1,18}))?")
_LARGEST = 512 << 20  # bytes of a file; a long run's samples are a few MB
_MOST = 200  # runs a side


def select(
    words: str, *, name: str | None = None, board: str | None = None,
    store: ResultStore | None = None, but: Result | None = None,
) -> list[Result]:  # fmt: skip
    """Returns the measurements that ``words`` mean, at least one.

    Args:
        words: Files, ids and ranges of them (12, 12-16), "last", "last~1" (the one before it;
            trials of edgekit tune only where their name is given), "baseline:NAME" (edgekit history
            mark) and git revisions (every result of that commit whose files were as committed; all
            of them where there is no such), with commas.
        name: Only the configuration of this name, for which the history is read.
        board: Only this board.
        store: The history; the user's own without it.
        but: A measurement that "last" does not mean: the one that is to be compared.

    Raises:
        DataError: There is no such result, or a file is no measurement.
        UsageError: The words mean nothing.
    """
    if store is None:
        with ResultStore() as own:
            return select(words, name=name, board=board, store=own, but=but)
    found: list[Result] = []
    for word in filter(None, (part.strip() for part in words.split(","))):
        found += _of_word(word, store, name, board, but)
    if not found:
        raise UsageError("no measurement is named", hint=f"give {SELECTOR_HELP}")
    if len(found) > _MOST:
        raise UsageError(f"{len(found)} measurements are more than {_MOST} a side")
    return list({(result.id, result.label): result for result in found}.values())


def _of_word(
    word: str, store: ResultStore, name: str | None, board: str | None, but: Result | None
) -> list[Result]:
    if match := _LAST.fullmatch(word):
        skip = int(match[1] or 0)
        if but is None:
            found = store.results(name=name, board=board, limit=1, skip=skip, trials=False)
        else:
            some = store.results(name=name, board=board, limit=skip + 2, trials=False)
            found = [one for one in some if not _is_same_measurement(one, but)][skip : skip + 1]
        return _some(found, f"{word}{_wanted(name, board, but)}", store)
    if match := _IDS.fullmatch(word):
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= _MOST:
            raise UsageError(f"{word} are more than {_MOST} measurements")
        found = store.results(ids=range(first, last + 1))
        # git abbreviates commits to 4 letters or more, and a file may be called 2024
        if found or (len(match[1]) < 4 and not Path(word).exists()):
            return _some(found, f"#{word.lstrip('#')}", store)
    if word.startswith("baseline:"):
        mark = word.removeprefix("baseline:")
        return _some(store.results(mark=mark), word, store)
    path = Path(word).expanduser()
    # a folder may be called as a branch is; of what is no file the reader says what it is
    if path.exists() and not path.is_dir():
        return [read_result(path)]
    commit = revision(word, Path.cwd())
    if commit is None and path.is_dir():
        return [read_result(path)]
    if commit is None:
        raise UsageError(
            f"{word!r} is no file, result or git revision", hint=f"give {SELECTOR_HELP}",
            code="compare.unknown",
        )  # fmt: skip
    found = store.results(commit=commit, name=name, board=board)
    clean = [result for result in found if result.git and not result.git.dirty]
    return _some(clean or found, f"{word} ({commit[:12]}){_wanted(name, board, None)}", store)


def _is_same_measurement(one: Result, other: Result) -> bool:
    """Whether it is one measurement; statistics are made anew whenever a document is."""
    if one.samples or other.samples:
        return one.samples == other.samples
    return one.document.get("latency_ms") == other.document.get("latency_ms")


def _wanted(name: str | None, board: str | None, but: Result | None) -> str:
    """Returns what was looked for in addition to the word, for the error."""
    of = f" of {name}" if name is not None else ""
    on = f" on board {board}" if board is not None else ""
    return f"{of}{on}{' beside the run itself' if but is not None else ''}"


def _some(found: list[Result], what: str, store: ResultStore) -> list[Result]:
    if not found:
        raise DataError(
            f"the history has no result {what}", code="history.no-result", where=str(store.path),
            hint="edgekit history lists them; edgekit bench adds one",
        )  # fmt: skip
    return found


def read_result(path: Path) -> Result:
    """Returns the measurement of a ``bench.json``, or of a ``run --json`` or exported document.

    Raises:
        DataError: It cannot be read, or holds no measurement.
    """
    try:
        if regular(path).stat().st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST >> 20} MiB")
        document = parse_json(path.read_bytes(), parse_constant=_refuse)
        return _result(document, path)
    except OSError as error:
        raise DataError(
            f"the file cannot be read: {error.strerror or error}", code="compare.file",
            where=str(path), hint=f"give {SELECTOR_HELP}",
        ) from error  # fmt: skip
    except (ValueError, RecursionError, OverflowError) as error:
        raise DataError(
            f"it is no measurement: {error}", code="compare.file", where=str(path),
            hint="edgekit bench writes bench.json",
        ) from error  # fmt: skip


def _refuse(constant: str) -> None:
    raise ValueError(f"it has the number {constant}")


def _result(document: Any, path: Path) -> Result:
    if isinstance(document, Mapping) and isinstance(document.get("bench"), Mapping):
        document = document["bench"]
    if not isinstance(document, Mapping) or document.get("schema") != "edgekit.bench/1":
        raise ValueError("its schema is not edgekit.bench/1")
    samples = document.get("samples_ms") or []
    latency = document.get("latency_ms")
    if not isinstance(samples, list) or not all(_time(value) for value in samples):
        raise ValueError("samples_ms is no list of times")
    if latency is not None and not (
        isinstance(latency, Mapping) and all(_time(value) for value in latency.values())
    ):
        raise ValueError("latency_ms is no object of times")
    for key in ("verdict", "board", "settings", "runtime", "environment", "energy", "power"):
        if not isinstance(document.get(key, {}), Mapping | None):
            raise ValueError(f"{key} is no object")
    reasons = (document.get("verdict") or {}).get("reasons") or []
    if not isinstance(reasons, list) or not all(isinstance(one, Mapping) for one in reasons):
        raise ValueError("verdict.reasons is no list of objects")
    return Result(
        document={key: value for key, value in document.items() if key != "samples_ms"},
        samples=tuple(map(float, samples)),
        label=str(path),
        board=board_of(document),
        release=(document.get("environment") or {}).get("release"),
    )


def _time(value: Any) -> bool:
    # a month, in ms: what is longer is no latency, and its square may be no number
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 3e9


def history_document(results: Sequence[Result]) -> dict[str, Any]:
    """Returns an ``edgekit.history/1`` of results, in their order."""
    return {
        "schema": "edgekit.history/1", "file": str(history_path()),
        "results": [row_of(result) for result in results],
    }  # fmt: skip


def row_of(result: Result) -> dict[str, Any]:
    """Returns a result's facts without its samples and its document."""
    return {
        "id": result.id, "at": result.at, "name": result.name, "clock": result.clock,
        "verdict": result.verdict, "board": result.board, "host": result.host,
        "target": result.document.get("target"), "power_mode": result.power_mode,
        "precision": result.document.get("precision"), "backend": result.document.get("backend"),
        "bundle": result.bundle, "release": result.release,
        "fingerprint": dict(result.fingerprint),
        "commit": result.git.commit if result.git else None,
        "dirty": result.git.dirty if result.git else None,
        "settings": result.settings, "runtime": result.runtime,
        "iterations": result.document.get("iterations"), "samples": len(result.samples),
        "latency_ms": result.document.get("latency_ms"),
        "throughput_qps": result.throughput_qps, "energy_uj": result.energy_uj,
        "marks": list(result.marks), "trial": is_trial(result.name),
    }  # fmt: skip
