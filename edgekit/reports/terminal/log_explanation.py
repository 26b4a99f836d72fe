"""The text of ``edgekit explain-log``: a log's kind, its errors, why layers are on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.reports.text import WIDTH, Page
from edgekit.text import counted, listed

if TYPE_CHECKING:
    from edgekit.buildlog.log_document import ExplainedLog

_MOST = 10
_NAMED = 4


def log_text(
    document: ExplainedLog, *, verbose: bool = False, width: int = WIDTH, colour: bool = False
) -> str:
    """Returns an ``edgekit.log/1`` as text, without its comparison with a model.

    Args:
        document: From ``explain_log``.
        verbose: Every layer; otherwise at most ten of each kind, and the rest is counted.
        width: Columns.
        colour: True for escape sequences.
    """
    page = Page(width, colour=colour)
    for number, line in enumerate(document.headline):
        page.add(line, style="" if number else "bold", hang=2)
    _errors(page, document)
    _rules(page, document)
    most = None if verbose else _MOST
    log = document.log
    loadables = [f"{loadable.name}" for loadable in log.loadables]
    on_gpu = [
        f"{layer.name} ({layer.kind})" if layer.kind else layer.name for layer in log.gpu_layers
    ]
    for title, names in (("On the DLA", loadables or log.capable), ("On the GPU", on_gpu)):
        if names:
            page.add()
            # without loadables the list is of layers that the DLA could run, not of a placement
            page.add(title if loadables or names is on_gpu else "The DLA could run", style="bold")
        for name in names[:most]:
            page.add(name, indent=2, hang=2)
        if most is not None and len(names) > most:
            page.add(f"{len(names) - most} more (-v shows all)", indent=2)
    for note in document.notes:
        page.add()
        page.add(f"note: {note}", style="yellow")
    return str(page)


def _errors(page: Page, document: ExplainedLog) -> None:
    if document.errors or document.unknown_errors:
        page.add()
        page.add("Errors and warnings, with their causes", style="bold")
    for error in document.errors:
        times = f", {error.count} times" if error.count > 1 else ""
        line = f"  line {error.line}{times}" if error.line else ""
        page.add(f"{error.id}{line}", indent=2, style="bold")
        if error.words:
            page.add(f"log: {error.words[:300]}", indent=4, hang=2, style="dim")
        page.add(f"cause: {error.cause}", indent=4, hang=2)
        page.add(f"do: {error.remedy}", indent=4, hang=2)
        if error.seen:
            page.add(f"seen in: {listed(error.seen)}", indent=4, hang=2, style="dim")
        page.add(f"source: {error.source}", indent=4, hang=2, style="dim")
    for words in document.unknown_errors:
        page.add(f"no known cause: {words[:300]}", indent=2, hang=2)
    if document.unknown_errors:
        page.add("search for it, or file an issue with the log", indent=4)


def _rules(page: Page, document: ExplainedLog) -> None:
    if document.rules or document.unexplained:
        page.add()
        page.add("Reasons why layers are not on the DLA, and remedies", style="bold")
    for rule in document.rules:
        page.add(f"{rule.rule}  {counted(len(rule.layers), 'layer')}", indent=2, style="bold")
        page.add(f"{listed(rule.layers, _NAMED)}: {rule.text}", indent=4, hang=2)
        for fix in rule.fixes:
            page.add(f"fix for {fix.case}: {fix.fix}", indent=4, hang=2)
        if not rule.fixes:
            page.add(f"fix: {rule.fix}", indent=4, hang=2)
        page.add(f"source: {rule.source}", indent=4, hang=2, style="dim")
    for layer in document.unexplained[:_MOST]:
        kind = f" ({layer.kind})" if layer.kind else ""
        words = "; ".join(layer.words) or "the log gives no reason"
        families = f"; see edgekit explain {layer.families[0]}" if layer.families else ""
        page.add(f"{layer.layer}{kind}: {words}{families}", indent=2, hang=2)
    if (left := len(document.unexplained) - _MOST) > 0:
        page.add(f"{left} more without a known rule (--json has all)", indent=2)
