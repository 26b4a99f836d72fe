"""Lays the view out as one HTML page that needs no network and runs nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.report._view import page_view

__all__ = ["page_of", "render_html", "write_report"]

HERE = Path(__file__).parent
STYLES = ("page_graph.css", "page_print.css")
SCRIPTS = ("page.js", "page_graph_far.js", "page_graph.js")


def _inline(*names: str) -> tuple[str, str]:
    """Returns files' text for inlining, and its source expression for the security policy."""
    text = "".join((HERE / name).read_text(encoding="utf-8") for name in names)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"'sha256-{digest}'"


def render_html(document: Mapping[str, Any]) -> str:
    """Returns the page for an ``edgekit.report/1`` document.

    The page is self-contained: styles, script and charts are inline, and its Content Security
    Policy allows only those two by their digests, so that nothing that comes from a model could
    run or be fetched even if it got through the escaping.

    Raises:
        DataError: The document does not fit the schema of ``edgekit.report/1``.
    """
    from edgekit.report._schema import checked

    view = page_view(checked(document))
    return page_of("page.html.j2", view, early="page_theme.js", late=SCRIPTS)


def page_of(
    template: str, view: Mapping[str, Any], *, early: str = "", late: Sequence[str] = ()
) -> str:
    """Returns a template's page with the style sheet and its scripts inside.

    Args:
        template: File name.
        view: What it shows.
        early: The script that runs before anything is drawn.
        late: Those that run, as one, when the page is there.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, style_source = _inline("page.css", *STYLES)
    codes = [_inline(*names) for names in ((early,) if early else (), late) if names]
    allowed = " ".join(source for _, source in codes) or "'none'"
    policy = (
        f"default-src 'none'; style-src {style_source}; script-src {allowed}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = environment.get_template(template).render(
        view=view,
        style=Markup(style),
        scripts=[Markup(code) for code, _ in codes],
        policy=Markup(policy),
    )
    return page.rstrip() + "\n"


def write_report(document: Mapping[str, Any], path: Path) -> None:
    """Writes the page to ``path``, whole or not at all.

    Raises:
        EnvironmentLack: The file cannot be written.
    """
    from edgekit.bench import write_text

    # lone surrogates cannot be written; `clean` has escaped them in names
    write_text(path, render_html(document))
