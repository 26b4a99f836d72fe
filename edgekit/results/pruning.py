"""Naming results (`edgekit history mark`) and deleting old ones (`edgekit history prune`)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from edgekit.documents import Count, Document
from edgekit.errors import UsageError
from edgekit.results.selection import select_results
from edgekit.results.store import ResultStore, group_name
from edgekit_device.protocol.fields import DAY_S

_MARK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")


class Marked(Document):
    """A result that got a name, for ``baseline:NAME``.

    Attributes:
        id: The result's number in the history.
    """

    schema_: Literal["edgekit.history.mark/1"] = Field(alias="schema")
    name: str
    id: Count


class Pruned(Document):
    """The results that were deleted, or would be in a dry run."""

    schema_: Literal["edgekit.history.prune/1"] = Field(alias="schema")
    removed: list[Count] = Field(description="ids, the newest first")
    dry_run: bool


def mark(which: str, name: str) -> Marked:
    """Names a result.

    Args:
        which: An id, "last" or "last~N".
        name: Letters, digits, ".", "_", "/" and "-". If another result has the name, it loses it.

    Raises:
        UsageError: The name is invalid, or ``which`` means several results.
        DataError: The result does not exist.
    """
    if not _MARK.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid name for a mark", hint="letters, digits, . _ / and -"
        )
    with ResultStore() as store:
        (result, *others) = select_results(which, store=store)
        if others or result.id is None:
            raise UsageError(f"{which!r} names more than one result")
        store.mark(name, result.id)
    return Marked(schema="edgekit.history.mark/1", name=name, id=result.id)


def prune(
    keep: int | None = None,
    older_than_days: int | None = None,
    *,
    dry_run: bool = False,
    on_all: Callable[[int], None] = lambda count: None,
) -> Pruned:
    """Deletes old results; marked results are never deleted.

    Args:
        keep: Number of newest results to keep for each name and board.
        older_than_days: Delete only results that are older.
        dry_run: Only count the results to delete.
        on_all: Called with the number of results before all unmarked results are deleted; if it
            raises, none is deleted.

    Raises:
        UsageError: Neither ``keep`` nor ``older_than_days`` is given.
    """
    if keep is None and older_than_days is None:
        raise UsageError(
            "no results are selected for deletion", hint="--keep 50, --older-than 90d, or both"
        )
    before = None if older_than_days is None else time.time() - older_than_days * DAY_S
    gone: list[int] = []
    retained = 0
    with ResultStore() as store:
        counts: dict[tuple[str, str], int] = {}
        for result in store.results(samples=False):
            # the trials of all tunings of a configuration count together
            key = (group_name(result.name), result.board)
            counts[key] = counts.get(key, 0) + 1
            old = before is None or (result.at or 0) < before
            if not result.marks and old and (keep is None or counts[key] > keep):
                gone.append(result.id or 0)
            elif not result.marks:
                retained += 1
        if gone and not dry_run:
            if not retained:
                # an option such as --keep 0 deletes more than most users mean
                on_all(len(gone))
            store.remove(gone)
    return Pruned(schema="edgekit.history.prune/1", removed=gone, dry_run=dry_run)
