"""The rules, sources and operators of the files under ``dla/``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from edgekit.dla.checks import Check, compile_check
from edgekit.knowledge import data_folder, read_document
from edgekit.targets.board import GENERATIONS
from edgekit.targets.releases import within
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    fail,
    flag,
    long_text,
    mapping,
    member,
    record,
    records,
)
from edgekit_device.versions import Version

ANY_KIND = "*"
PRECISIONS = ("fp16", "int8")
#: A list of names.
texts = array(long_text)
_WORD = choice("native", "reconstruction", "rfe", "folded")


@document(frozen=True)
class RuleSource:
    """The source of a fact: a document's title, and the place in it."""

    title: str = member(long_text)
    where: str = member(long_text)


@document(frozen=True, eq=False)
class SourcesFile:
    """``dla/_sources.yaml``: the sources by their keys.

    Attributes:
        version: Version of all files under ``dla/`` and ``targets/``.
        date: Date of the last change of a fact.
        oldest_tensorrt: The oldest TensorRT release with a guide among the sources.
        newest_tensorrt: The newest TensorRT release in the sources.
        sources: The sources by key.
    """

    version: str = member(long_text)
    date: str = member(long_text)
    oldest_tensorrt: str = member(long_text)
    newest_tensorrt: str = member(long_text)
    sources: Mapping[str, RuleSource] = member(mapping(record(RuleSource)))


@cache
def sources_file() -> SourcesFile:
    """Returns ``dla/_sources.yaml``."""
    return read_document(SourcesFile, data_folder("dla") / "_sources.yaml")


def _source(value: object) -> RuleSource:
    found = sources_file().sources.get(str(value))
    return found or fail("", f"{value!r} is no source of dla/_sources.yaml")


#: Sources, which a file names by their keys; a fact has at least one.
sources = array(_source, 1)


def join_titles(listed: Iterable[RuleSource]) -> str:
    """Returns the titles of sources as one text."""
    return "; ".join(source.title for source in listed)


@document(frozen=True, eq=False)
class Way:
    """A fix for layers for which ``when`` holds; it brings the layer to the DLA if it ``mends``.

    ``of`` describes these layers in words.
    """

    when: Check = member(compile_check)
    of: str = member(long_text, key="for")
    fix: str = member(long_text)
    mends: bool = member(flag, absent=True)


@document(frozen=True, eq=False)
class Ties:
    """The tensors of a layer that share one INT8 scale.

    It holds for layers on the DLA.

    Attributes:
        tensors: "all" that the layer reads and writes, or its "inputs".
        kinds: Layer kinds that it holds for; the rule's kinds if empty.
        when: Condition on the parameters of the layers; None for all layers of the kind.
        everywhere: True if it holds for layers on the GPU too.
        moves: The layer only moves values, so that a scale at one end is known at the other.
        apart: The sources do not settle it: it is reported, and no scale is shared.
    """

    tensors: str = member(choice("all", "inputs"))
    kinds: tuple[str, ...] = member(texts, absent=())
    when: Check | None = member(compile_check, absent=None)
    everywhere: bool = member(flag, absent=False)
    moves: bool = member(flag, absent=False)
    apart: bool = member(flag, absent=False)


@document(frozen=True, eq=False)
class Rule:
    """One restriction.

    Attributes:
        id: Stable identifier, for example "convolution.kernel".
        text: The restriction in one sentence.
        source: The documents it comes from.
        fix: The action for the user.
        ways: Actions that replace ``fix`` in certain cases; the first whose condition holds.
        kinds: Layer kinds it holds for; "*" is all.
        exempt: Layer kinds it does not hold for.
        limit: The limit as text; empty if it is part of ``text``.
        generations: DLA generations it holds for.
        precisions: Precisions of the layer it holds for.
        since: First TensorRT release it holds for, or None.
        until: First TensorRT release it no longer holds for, or None.
        certainty: "certain", or "disputed" if the sources are silent or disagree.
        effect: "refuse", "risk" (allowed, but unsure) or "note" (not checked on a layer).
        scope: "network" for a rule that holds for the network as a whole, not layer by layer.
        found: Template of the finding, with facts and the wrong ``{value}`` in braces; made from
            the check if empty.
        brief: The text names the allowed values, so that a message need not.
        runs_in: The precision in which the DLA computes such a layer in any build.
        needs_gpu: A part of such a layer runs on the GPU, so a plan places none on a DLA.
        operator_fix: The operator matrix may have a better fix.
        mends: The fix brings the layer to the DLA; False if it leaves the layer on the GPU.
        when: Condition for the rule to apply.
        check: The compiled restriction; None for a note.
        counts: A note is given as a warning if this fails for some layer.
        warning: That warning, with ``{tensorrt}`` and ``{layers}`` ("1 layer is").
        ties: The tensors that share one INT8 scale; None for no such rule.
        pool: The pool of a loadable that it limits to ``bytes``; empty for any other rule.
        bytes: The smallest size that is too large.
    """

    id: str = member(long_text)
    text: str = member(long_text)
    source: tuple[RuleSource, ...] = member(sources)
    fix: str = member(long_text)
    ways: tuple[Way, ...] = member(records(Way), absent=())
    kinds: tuple[str, ...] = member(texts, absent=())
    exempt: tuple[str, ...] = member(texts, key="except", absent=())
    limit: str = member(long_text, absent="")
    generations: tuple[str, ...] = member(array(choice(*GENERATIONS)), absent=tuple(GENERATIONS))
    precisions: tuple[str, ...] = member(array(choice(*PRECISIONS)), absent=PRECISIONS)
    since: str | None = member(long_text, absent=None)
    until: str | None = member(long_text, absent=None)
    certainty: str = member(choice("certain", "disputed"), absent="")
    effect: str = member(choice("refuse", "risk"), absent="refuse")
    scope: str = member(choice("network"), absent="")
    found: str = member(long_text, absent="")
    brief: bool = member(flag, absent=False)
    runs_in: str = member(choice(*PRECISIONS), absent="")
    needs_gpu: bool = member(flag, absent=False)
    operator_fix: bool = member(flag, absent=False)
    mends: bool = member(flag, absent=True)
    when: Check | None = member(compile_check, absent=None)
    check: Check | None = member(compile_check, absent=None)
    counts: Check | None = member(compile_check, absent=None)
    warning: str = member(long_text, absent="")
    ties: Ties | None = member(record(Ties), absent=None)
    pool: str = member(choice("local_dram", "global_dram"), absent="")
    bytes: int = member(fields.count, absent=0)

    @property
    def family(self) -> str:
        """The first part of its identifier."""
        return self.id.partition(".")[0]

    @property
    def network(self) -> bool:
        """True if it holds for the network as a whole, not layer by layer."""
        return bool(self.scope)

    @property
    def sources(self) -> tuple[str, ...]:
        """The titles of the documents it comes from."""
        return tuple(source.title for source in self.source)

    def holds_for(self, kind: str, generation: str, version: Version) -> bool:
        """Returns True if it is in force for a layer kind, DLA generation and TensorRT release.

        A rule of the whole network holds for every kind; a board without a DLA has generation "".
        """
        if kind in self.exempt:
            return False
        if kind not in self.kinds and ANY_KIND not in self.kinds:
            return False
        if generation and generation not in self.generations:
            return False
        return within(version, self.since, self.until)


@document(frozen=True, eq=False)
class RuleFile:
    """A family of rules, as ``dla/convolution.yaml``.

    Attributes:
        family: Its name, which is the file's.
        title: Its title.
        kinds: Layer kinds of its rules that name none.
        rules: Rules checked on layers.
        notes: Rules not checked on a layer.
        allowed_by: Sources according to which a DLA runs such layers, by function ("*": any other).
    """

    schema: str = member(choice("edgekit.dla/1"))
    family: str = member(long_text)
    title: str = member(long_text)
    kinds: tuple[str, ...] = member(texts)
    rules: tuple[Rule, ...] = member(records(Rule))
    notes: tuple[Rule, ...] = member(records(Rule), absent=())
    allowed_by: Mapping[str, tuple[RuleSource, ...]] = member(mapping(sources), absent=dict)


@document(frozen=True)
class Operator:
    """A row of the operator matrix: support of an ONNX operator by TensorRT and the DLA software.

    Attributes:
        trt: Support in TensorRT: "native", "reconstruction", "rfe" or "folded".
        dla: Support in the DLA software below TensorRT, in the same words.
        since: First TensorRT release; empty if no release is known to lack it.
        dla_since: First DLA software.
        families: Rule families that judge its layers.
        composed: TensorRT's parser writes several layers, which the rules judge one by one.
        settled_by: The rule that decides instead of the row.
        note: NVIDIA's remark.
        recipe: Path of NVIDIA's recipe below ``recipes`` of the file.
        name: The ONNX operator.
        fix: NVIDIA's alternative; empty if NVIDIA gives none.
        mends: The fix brings it to the DLA; False if only the DLA software supports the fix.
        rewritten: The fix is ``edgekit rewrite``.
    """

    trt: str = member(_WORD)
    dla: str = member(_WORD)
    since: str = member(long_text, absent="")
    dla_since: str = member(long_text, absent="")
    families: tuple[str, ...] = member(texts, absent=())
    composed: bool = member(flag, absent=False)
    settled_by: str = member(long_text, absent="")
    note: str = member(long_text, absent="")
    recipe: str = member(long_text, absent="")
    name: str = ""
    fix: str = ""
    mends: bool = True
    rewritten: bool = False


@document(frozen=True, eq=False)
class UnlistedOperator:
    """An ONNX operator without a row that rules name, with the families that judge its layers."""

    families: tuple[str, ...] = member(texts)
    rules: tuple[str, ...] = member(texts)


@document(frozen=True, eq=False)
class OperatorsFile:
    """``dla/operators.yaml``: NVIDIA's operator matrix.

    Attributes:
        source: The matrix's source.
        meanings: Explanations of the matrix's words.
        below: The fix of an operator that only the DLA software has.
        written: The fix of an operator that edgekit rewrites.
        by_hand: The fix of an operator that a user can write with others.
        recipes: Address of NVIDIA's recipes.
        rules: Rules that the matrix adds.
        operators: Rows by operator name.
        unlisted: Operators without a row, by name.
    """

    schema: str = member(choice("edgekit.dla-operators/1"))
    source: tuple[RuleSource, ...] = member(sources)
    meanings: Mapping[str, str] = member(mapping(long_text))
    below: str = member(long_text)
    written: str = member(long_text)
    by_hand: str = member(long_text)
    recipes: str = member(long_text)
    rules: tuple[Rule, ...] = member(records(Rule))
    operators: Mapping[str, Operator] = member(mapping(record(Operator)))
    unlisted: Mapping[str, UnlistedOperator] = member(mapping(record(UnlistedOperator)))


@document(frozen=True, eq=False)
class Reconstruction:
    """How edgekit handles a form or an operator that a DLA runs only in another form.

    Attributes:
        rewrites: Rewrites by name.
        but: Cases to which these do not apply.
        by_hand: How a user can write it if there is no rewrite.
        why_not: Why neither is possible.
        form: The form in words; empty for an operator.
    """

    rewrites: tuple[str, ...] = member(texts, absent=())
    but: str = member(long_text, absent="")
    by_hand: str = member(long_text, absent="")
    why_not: str = member(long_text, absent="")
    form: str = member(long_text, absent="")


@document(frozen=True, eq=False)
class ReconstructionFile:
    """``dla/reconstruction.yaml``: operators, other forms, and operators of no exact form."""

    schema: str = member(choice("edgekit.reconstruction/1"))
    source: tuple[RuleSource, ...] = member(sources)
    operators: Mapping[str, Reconstruction] = member(mapping(record(Reconstruction)))
    forms: tuple[Reconstruction, ...] = member(records(Reconstruction))
    without: Mapping[str, str] = member(mapping(long_text))
