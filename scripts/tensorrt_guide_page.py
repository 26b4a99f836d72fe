"""The page `docs/tensorrt-guide.md`: the sections of NVIDIA's guide, from `trt/guide.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from edgekit.knowledge import data_folder, read_facts
from edgekit.tensorrt.releases import sources
from edgekit.text import table_head, table_row
from edgekit_device.protocol.codec import document

_INTRODUCTION = """\
# NVIDIA's TensorRT guide, section by section

For everyone who comes from NVIDIA's developer guide of TensorRT 10.7 and looks for one of its
features here. The first command shows edgekit's results for your own network:

```sh
edgekit check model.onnx --target jetson-agx-orin-64gb
```

- **In edgekit**: pages, keys of the [configuration](config.md), [commands](cli.md) and names of the
  [Python API](api.md), and their effect.
- **Not, and why**: features that edgekit does not have. "Not yet" if that may change.
- Listed are sections 1 to 14.3.8, with the numbers of the guide for 10.7. Its tuning advice,
  troubleshooting and appendix behind these are not. [tensorrt.md](tensorrt.md) has the facts of
  your board's release.

This page is made from `trt/guide.yaml` by `scripts/make_docs.py`; do not edit it.
"""
_COLUMNS = ("Section", "In edgekit", "Not, and why")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@document(frozen=True, kw_only=True)
class GuideRow:
    """edgekit's features for one or more sections, as in the head of ``trt/guide.yaml``."""

    of: tuple[str, ...]
    where: tuple[str, ...] = ()
    how: str = ""
    why_not: str = ""
    source: tuple[str, ...] = ()


@document(frozen=True, kw_only=True)
class Guide:
    """``trt/guide.yaml``: the titles of the sections by their numbers, and the rows."""

    contents: Mapping[str, str]
    rows: tuple[GuideRow, ...]


def tensorrt_guide_page(folder: Path, made: Mapping[str, str]) -> str:
    """Returns the Markdown page.

    Args:
        folder: Where the other pages are.
        made: Texts of generated pages by name, which replace the files of the folder.

    Raises:
        ValueError: A row links to a page or heading that does not exist.
    """
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    headings = {name: _headings(text) for name, text in {**texts, **made}.items()}
    guide = read_facts(Guide, data_folder("trt") / "guide.yaml", "edgekit.tensorrt-guide/1")
    rows = {number: row for row in guide.rows for number in row.of}
    lines = [_INTRODUCTION]
    for number, title in guide.contents.items():
        if "." not in number:
            blank = [""] if len(lines) > 1 else []
            lines += [*blank, f"## {number}. {title}", "", *table_head(_COLUMNS)]
        row = rows[number]
        links = ", ".join(_link(reference, headings) for reference in row.where)
        titles = "; ".join(sources(row.source))
        why_not = f"{row.why_not} ({titles})" if titles else row.why_not
        own = (f"{row.how}: {links}" if row.how else links, why_not)
        cells = own if number == row.of[0] else (f"see {row.of[0]}", "")
        lines.append(table_row((f"{number} {title}", *cells)))
    return "\n".join(lines) + "\n"


def _link(reference: str, headings: Mapping[str, Mapping[str, str]]) -> str:
    """Returns a link to a page, a command, a public name or a key of the configuration."""
    shown = f"`{reference}`"
    if ".md" in reference:
        page, _, anchor = reference.partition("#")
        shown = headings.get(page, {}).get(anchor, "")
    elif reference.startswith("edgekit "):
        words = [word for word in reference.split() if not word.startswith("-")]
        page, anchor = "cli.md", "-".join(words)
    elif reference.startswith("edgekit_device."):
        page, anchor = "api-stability.md", ""
    elif reference.startswith("edgekit."):
        page, anchor = "api.md", reference.removeprefix("edgekit.")
    else:
        page, anchor = "config.md", _slug(reference.rpartition(".")[0] or "top level")
    if not shown or anchor not in headings.get(page, {}):
        raise ValueError(f"trt/guide.yaml: {reference!r} leads to no heading")
    return f"[{shown}]({page}{'#' if anchor else ''}{anchor})"


def _headings(text: str) -> dict[str, str]:
    """Returns the headings of a page by their anchors; the title also by the empty one."""
    code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = [_LINK.sub(r"\1", heading).replace("`", "") for heading in _HEADING.findall(code)]
    return {"": found[0], **{_slug(heading): heading for heading in found}} if found else {}


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
