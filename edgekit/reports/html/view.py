"""The values of a page's template."""

from __future__ import annotations

#: Texts, charts and rows of texts, by the template's names.
View = dict[str, object]
