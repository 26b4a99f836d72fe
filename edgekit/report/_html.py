"""Lays the view out as one HTML page that needs no network and runs nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.report._view import page_view

__all__ = ["page_of", "render_html", "write_report"]

HERE = Path(__file__).parent


def _inline(name: str) -> tuple[str, str]:
    """Returns a file's text for inlining, and its source expression for the security policy."""
    text = (HERE / name).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"'sha256-{digest}'"


def render_html(document: Mapping[str, Any]) -> str:
    """Returns the page for an ``edgekit.report/1`` document.

    The page is self-contained: styles, script and charts are inline, and its Content Security
    Policy allows only those two by their digests, so that nothing that comes from a model could
    run or be fetched even if it got through the escaping.
    """
    return page_of("page.html.j2", page_view(document), script="page.js")


def page_of(template: str, view: Mapping[str, Any], *, script: str | None) -> str:
    """Returns a template's page with the style sheet and, if any, its script inside."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, style_source = _inline("page.css")
    code, script_source = _inline(script) if script else ("", "'none'")
    policy = (
        f"default-src 'none'; style-src {style_source}; script-src {script_source}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = environment.get_template(template).render(
        view=view, style=Markup(style), script=Markup(code), policy=Markup(policy)
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
