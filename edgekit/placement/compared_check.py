"""A check compared with a build log; a separate module, since other checks read no logs."""

from __future__ import annotations

from edgekit.buildlog.comparison import LogComparison
from edgekit.placement.check_document import Check
from edgekit_device.protocol.codec import document, member, nullable, record


@document(frozen=True, kw_only=True)
class ComparedCheck(Check):
    """An ``edgekit.check/1`` with the key ``compare``, its comparison with a build log."""

    compare: LogComparison | None = member(nullable(record(LogComparison)), absent=None)
