"""A check held against a build log; apart, since other checks need nothing that reads logs."""

from __future__ import annotations

from edgekit.buildlog.comparison import LogComparison
from edgekit.placement.check_document import Check
from edgekit_device.protocol.codec import document, member, nullable, record


@document(frozen=True, kw_only=True)
class ComparedCheck(Check):
    """An ``edgekit.check/1`` with the key ``compare``, which holds it against a log."""

    compare: LogComparison | None = member(nullable(record(LogComparison)), absent=None)
