"""What a template of the page shows."""

from __future__ import annotations

#: Texts, charts and rows of them, by the names that the template gives them.
View = dict[str, object]
