"""``edgekit.checks/1``: the check of several models; a single check does not need this module."""

from __future__ import annotations

from edgekit.error_document import StatedError
from edgekit.placement.check_document import Check
from edgekit.removed import FormerDict
from edgekit_device.protocol.codec import choice, document, member, records


@document(frozen=True)
class Checks(FormerDict):
    """An ``edgekit.checks/1``: checks of several models, and failures as ``error`` objects."""

    checks: tuple[Check, ...] = member(records(Check))
    failures: tuple[StatedError, ...] = member(records(StatedError))
    schema: str = member(choice("edgekit.checks/1"), default="edgekit.checks/1")
