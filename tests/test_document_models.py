"""Models of documents read their own JSON: parts that are codec classes are read by the codec."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import typing
from collections.abc import Iterator
from typing import Any

import edgekit
from edgekit.documents import Coded, Document


def models(kind: type) -> Iterator[type[Document]]:
    for one in kind.__subclasses__():
        yield one
        yield from models(one)


def uncoded(hint: Any, coded: bool = False) -> Iterator[str]:
    """The dataclasses of an annotation that pydantic would read in its own way."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Annotated:
        coded = coded or any(isinstance(one, Coded) for one in parts[1:])
        parts = parts[:1]
    if dataclasses.is_dataclass(hint) and not coded:
        yield str(hint)
    for part in parts:
        yield from uncoded(part, coded)


def test_each_codec_class_in_a_model_is_read_by_the_codec() -> None:
    for found in pkgutil.walk_packages(edgekit.__path__, "edgekit."):
        if not found.name.endswith(("__main__", "edgekit_recap")):
            importlib.import_module(found.name)
    every = {one for one in models(Document) if one.__module__.startswith("edgekit.")}
    assert len(every) > 50
    wrong = [
        f"{one.__module__}.{one.__name__}.{name}: {kind}"
        for one in every
        for name, hint in typing.get_type_hints(one, include_extras=True).items()
        for kind in uncoded(hint)
    ]
    assert wrong == []
