"""The sources' sentences, for the pages that show them beside the rules."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.dla.rule_files import RuleSource, sources, texts
from edgekit.knowledge import data_folder, read_document
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    long_text,
    mapping,
    member,
    records,
)


@document(frozen=True, eq=False)
class GuideSentence:
    """A sentence of the guide, the rules that contain it, and the reason if none needs to."""

    says: str = member(long_text)
    rules: tuple[str, ...] = member(texts, absent=())
    why: str = member(long_text, absent="")


@document(frozen=True, eq=False)
class GuideSection:
    """A part of the guide's section 13.2."""

    title: str = member(long_text)
    sentences: tuple[GuideSentence, ...] = member(records(GuideSentence))


@document(frozen=True, eq=False)
class GuideFile:
    """``dla/guide.yaml``: section 13.2 of the TensorRT guide, sentence by sentence."""

    schema: str = member(choice("edgekit.dla-guide/1"))
    source: tuple[RuleSource, ...] = member(sources)
    sections: tuple[GuideSection, ...] = member(records(GuideSection))


def guide() -> tuple[GuideSection, ...]:
    """Returns the parts of section 13.2 of the TensorRT guide."""
    return read_document(GuideFile, data_folder("dla") / "guide.yaml").sections


@document(frozen=True, eq=False)
class Side:
    """One side of a dispute: the statement of some sources, by their keys."""

    says: str = member(long_text)
    source: tuple[str, ...] = member(array(long_text, 1))


@document(frozen=True, eq=False)
class DisputesFile:
    """``dla/disputes.yaml``: the sides of disputed rules, by the rules' identifiers."""

    schema: str = member(choice("edgekit.dla-disputes/1"))
    disputes: Mapping[str, tuple[Side, ...]] = member(mapping(records(Side)))


def disputes() -> Mapping[str, tuple[Side, ...]]:
    """Returns the sides of each disputed rule."""
    return read_document(DisputesFile, data_folder("dla") / "disputes.yaml").disputes
