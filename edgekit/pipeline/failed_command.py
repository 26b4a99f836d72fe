"""``edgekit.error/1`` with the classes of all its parts, to read a saved error."""

from __future__ import annotations

from edgekit.error_document import ErrorDocument
from edgekit.parsing.table import Parse
from edgekit.reference.accuracy import Accuracy
from edgekit.schedule.binding import BindingLimit
from edgekit.tensorrt.comparison import BuiltComparison
from edgekit_device.protocol.codec import document, member, record
from edgekit_device.release.journal import TakenBack


@document(frozen=True, kw_only=True)
class FailedCommand(ErrorDocument):
    """``edgekit.error/1``: the document of a failed command.

    Attributes:
        accuracy: The accuracy of a build that misses the gate.
        built: The differences between build and plan.
        parse: The nodes that the parser refuses.
        binding: The limit that makes the rates or deadlines of several networks infeasible.
        taken_back: The release that the board has rolled back.
    """

    accuracy: Accuracy | None = member(record(Accuracy), absent=None)
    built: BuiltComparison | None = member(record(BuiltComparison), absent=None)
    parse: Parse | None = member(record(Parse), absent=None)
    binding: BindingLimit | None = member(record(BindingLimit), absent=None)
    taken_back: TakenBack | None = member(record(TakenBack), absent=None)
