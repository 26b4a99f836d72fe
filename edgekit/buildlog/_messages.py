"""The builder's sentences and the rules that say the same (``dla/builder_messages.yaml``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge

__all__ = ["Message", "Messages", "load_messages"]

_SCHEMA = "edgekit.builder-messages/1"


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence of the builder.

    Attributes:
        pattern: What to search in it, the layer's name taken off.
        rules: Ids of the rules that state the same.
        seen: Releases whose logs print it.
        sources: Titles of the logs and documents that have it.
    """

    pattern: re.Pattern[str]
    rules: tuple[str, ...]
    seen: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Messages:
    """All sentences, and the rules of layer types that are refused without one."""

    sentences: tuple[Message, ...]
    silent: Mapping[str, tuple[str, ...]]

    def rules(self, words: Iterable[str], kind: str = "") -> tuple[str, ...]:
        """Returns the rules that the builder's words mean; the layer's type decides without any."""
        found: dict[str, None] = {}
        some = False
        for sentence in words:
            some = True
            for message in self.sentences:
                if message.pattern.search(sentence):
                    found.update(dict.fromkeys(message.rules))
                    break
        return tuple(found) if some else self.silent.get(kind, ())


@lru_cache(maxsize=1)
def load_messages() -> Messages:
    """Reads the file once.

    Raises:
        ValueError: The file is of another schema: edgekit's own data are wrong.
        DataError: It is not YAML (code "data.yaml").
    """
    folder = data_folder("dla")
    document = read_knowledge(folder / "builder_messages.yaml")
    if document.get("schema") != _SCHEMA:
        raise ValueError(f"{folder / 'builder_messages.yaml'} is not of schema {_SCHEMA}")
    common = read_knowledge(folder / "_sources.yaml")["sources"]
    sources = {**common, **document["sources"]}
    sentences = tuple(
        Message(
            re.compile(row["pattern"]),
            tuple(row["rules"]),
            tuple(row["seen"]),
            tuple(sources[key]["title"] for key in row["source"]),
        )
        for row in document["messages"]
    )
    silent = {kind: tuple(row["rules"]) for kind, row in document["silent"].items()}
    return Messages(sentences, silent)
