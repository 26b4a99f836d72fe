"""All rewrites as a list."""

from __future__ import annotations

from edgekit.removed import FormerDict
from edgekit.rewriting.engine.opset import RAISED, RAISED_REASON
from edgekit.rewriting.rules.order import REWRITES
from edgekit_device.protocol.codec import array, choice, document, flag, long_text, member, records


@document(frozen=True)
class ListedRewrite:
    """A rewrite.

    Attributes:
        name: For ``rewrite.enable`` and ``disable``.
        reason: Why it helps.
        operators: ONNX operators of its anchor.
        approximate: True if it changes results; it is then off unless allowed by name.
        enabling: True if it is also tried when it only enables other rewrites.
    """

    name: str = member(long_text)
    reason: str = member(long_text)
    operators: tuple[str, ...] = member(array(long_text))
    approximate: bool = member(flag)
    enabling: bool = member(flag)


@document(frozen=True)
class RewriteList(FormerDict):
    """An ``edgekit.rewrite-list/1``: every rewrite, sorted by name, exact rewrites first."""

    rewrites: tuple[ListedRewrite, ...] = member(records(ListedRewrite))
    schema: str = member(choice("edgekit.rewrite-list/1"), default="edgekit.rewrite-list/1")


def rewrite_list() -> RewriteList:
    """Returns every rewrite.

    The list includes raising the opset, which runs before all others and has no operators.
    """
    rows = [
        ListedRewrite(
            name=item.name,
            reason=item.reason,
            operators=tuple(item.operators),
            approximate=item.approximate,
            enabling=item.enabling,
        )
        for item in REWRITES
    ]
    rows.append(ListedRewrite(RAISED, RAISED_REASON, (), approximate=False, enabling=True))
    return RewriteList(tuple(sorted(rows, key=lambda row: (row.approximate, row.name))))
