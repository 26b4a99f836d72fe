"""The rules under ``dla/``: what a rule and a row of the operator matrix are, their checks
compiled to functions, read once and looked up by id.

``limit`` and ``exceptions`` read single numbers without compiling anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

from edgekit.knowledge import data_folder, read_knowledge
from edgekit.targets.board import GENERATIONS
from edgekit.targets.releases import parse_version, within
from edgekit_device.versions import Version

Facts = Mapping[str, Any]
_MANY = (tuple, list)
_LARGE = 1e30
_SIDES = frozenset({"kernel", "stride", "pads", "dilation", "window", "inner_scales"})
_WORDS = {
    "range": "{0[0]}..{0[1]}", "outside": "not {0[0]}..{0[1]}", "at_most": "at most {0}",
    "at_least": "at least {0}", "not_equal": "not {0}", "equal": "{0}", "whole": "whole numbers",
}  # fmt: skip
ANY_KIND = "*"
PRECISIONS = ("fp16", "int8")
_RULES = "edgekit.dla/1"
# files of facts: a tensor, a loadable or nothing breaks their rules, so they are notes to a layer
_NOTED = {"memory": "Memory", "formats": "Tensor formats", "sparsity": "Structured sparsity"}
_EXCLUDED = (
    "builder_messages", "disputes", "guide", "int8", "operators", "reconstruction", *_NOTED,
)  # fmt: skip


# The declarative checks of the rule files, compiled to functions.
#
# A check is a mapping: ``{of: FACT, OPERATOR: LIMIT}``. A fact is one value or several (the sides
# of a kernel); an operator holds when it holds for each of them, and a fact that a layer does not
# have breaks no rule. ``{any: [...]}``, ``{all: [...]}`` and ``{never: true}`` combine checks.


class RuleFailure(NamedTuple):
    """What broke a rule: the fact with its value, the limit, and the value alone, as texts."""

    found: str
    limit: str
    value: str = ""


Check = Callable[[Facts], RuleFailure | None]


def _in_range(value: Any, limit: Any) -> bool:
    return bool(limit[0] <= value <= limit[1])


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "range": _in_range,
    "outside": lambda value, limit: not _in_range(value, limit),
    "in": lambda value, limit: value in limit,
    "not_in": lambda value, limit: value not in limit,
    "equal": lambda value, limit: bool(value == limit),
    "not_equal": lambda value, limit: bool(value != limit),
    "at_most": lambda value, limit: bool(value <= limit),
    "at_least": lambda value, limit: bool(value >= limit),
    "whole": lambda value, limit: (float(value) == int(value)) is limit,
}


def show(value: Any) -> str:
    """A value as people write it: 33x1 for sizes, RELU for names."""
    if isinstance(value, _MANY):
        distinct = list(dict.fromkeys(value))
        if not all(isinstance(item, (int, float)) for item in distinct):
            return ", ".join(show(item) for item in distinct)
        return "x".join(show(item) for item in value)
    if isinstance(value, float):
        if abs(value) > _LARGE:
            return "unbounded"
        return f"{value:g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def compile_check(spec: Mapping[str, Any], limit: str = "") -> Check:
    """Compiles one check of a rule file.

    Args:
        spec: The check as read.
        limit: What to call the limit; made from the check when empty.

    Raises:
        ValueError: The check has no known form.
    """
    if "never" in spec:
        return lambda facts: RuleFailure(str(facts.get("kind")), limit, str(facts.get("kind")))
    if "any" in spec:
        parts = [compile_check(part, limit) for part in spec["any"]]
        return lambda facts: _any(parts, facts)
    if "all" in spec:
        parts = [compile_check(part, limit) for part in spec["all"]]
        return lambda facts: next((f for f in (p(facts) for p in parts) if f), None)
    return _simple(spec, limit)


def limit_of(spec: Mapping[str, Any]) -> str:
    """The limit of a simple check as people write it; empty for a combined one."""
    names = [key for key in spec if key != "of"]
    if "of" not in spec or len(names) != 1 or names[0] not in OPERATORS:
        return ""
    return _words(names[0], spec[names[0]])


def _any(parts: list[Check], facts: Facts) -> RuleFailure | None:
    first = None
    for part in parts:
        failure = part(facts)
        if failure is None:
            return None
        first = first or failure
    return first


def _simple(spec: Mapping[str, Any], limit: str) -> Check:
    names = [key for key in spec if key != "of"]
    if len(names) != 1 or "of" not in spec:
        raise ValueError(f"not a check: {dict(spec)!r}")
    fact, name = str(spec["of"]), names[0]
    bound = spec[name]
    if name == "below":
        return _below(fact, str(bound), limit)
    if name == "one_of":
        wanted = [tuple(item) for item in bound]
        return lambda facts: (
            RuleFailure(f"{fact} {show(facts[fact])}", limit, show(facts[fact]))
            if facts[fact] is not None and tuple(facts[fact]) not in wanted
            else None
        )
    if name not in OPERATORS:
        raise ValueError(f"unknown operator {name!r} in {dict(spec)!r}")
    if isinstance(bound, list) and name in {"in", "not_in"}:
        bound = frozenset(bound)
    words = limit or _words(name, spec[name])
    return _each(fact, OPERATORS[name], bound, words)


def _words(name: str, bound: Any) -> str:
    if name in {"in", "not_in"}:
        listed = ", ".join(show(item) for item in bound)
        return listed if name == "in" else f"none of {listed}"
    shown = bound if isinstance(bound, list) else show(bound)
    return _WORDS[name].format(shown)


def _each(fact: str, holds: Callable[[Any, Any], bool], bound: Any, words: str) -> Check:
    def check(facts: Facts) -> RuleFailure | None:
        value = facts[fact]
        if value is None:
            return None
        if isinstance(value, _MANY):
            wrong = tuple(dict.fromkeys(item for item in value if not holds(item, bound)))
            if not wrong:
                return None
            # the sides of a window belong together; of a list of tensors the wrong ones are enough
            shown = show(value) if fact in _SIDES else ", ".join(show(item) for item in wrong)
        elif holds(value, bound):
            return None
        else:
            shown = show(value)
        return RuleFailure(f"{fact.replace('_', ' ')} {shown}", words, shown)

    return check


def _below(fact: str, other: str, limit: str) -> Check:
    def check(facts: Facts) -> RuleFailure | None:
        value, bound = facts[fact], facts[other]
        if value is None or bound is None:
            return None
        # pads: begin and end of each side of the kernel
        if all(item < bound[index % len(bound)] for index, item in enumerate(value)):
            return None
        words = limit or f"less than the {other.replace('_', ' ')} {show(bound)}"
        return RuleFailure(f"{fact} {show(value)}", words, show(value))

    return check


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """What a user can do where ``when`` holds; it brings the layer to the DLA if it ``mends``.

    ``of`` says in words what ``when`` holds for.
    """

    when: Check
    of: str
    fix: str
    mends: bool


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One restriction.

    Attributes:
        id: Stable identifier, for example "convolution.kernel".
        family: The file that it stands in.
        text: The restriction in one sentence.
        kinds: Layer kinds it holds for; "*" is all.
        exempt: Layer kinds it does not hold for.
        limit: The limit as people read it; empty if it is part of the text.
        fix: What a user can do.
        ways: What to do instead of ``fix`` in certain cases; the first whose condition holds.
        sources: Titles of the documents it comes from.
        places: Where each of them is found.
        generations: DLA generations it holds for.
        precisions: Precisions of the layer it holds for.
        since: First TensorRT release it holds for, or None.
        until: First TensorRT release it no longer holds for, or None.
        certainty: "certain", or "disputed" where the sources are silent or disagree.
        effect: "refuse", "risk" (allowed, but unsure) or "note" (not checked on a layer).
        network: Holds for the network as a whole, not layer by layer.
        found: How to say what was found, with facts and the wrong ``{value}`` in braces; made from
            the check when empty.
        brief: The text says what is allowed, so that a message need not.
        runs_in: The precision in which the DLA computes such a layer whatever the build's is.
        needs_gpu: A part of such a layer runs on the GPU, so a plan places none on a DLA.
        operator_fix: The operator matrix may know a better fix.
        mends: The fix brings the layer to the DLA; False if it only says to leave it.
        when: The rule applies only where this holds.
        check: The compiled restriction; None for a note.
        counts: A note is given as a warning where this fails for some layer.
        warning: That warning, with ``{tensorrt}`` and ``{layers}`` ("1 layer is").
        ties: Which tensors share one INT8 scale, as written (see ``edgekit.dla.scales``); None
            for no such rule.
    """

    id: str
    family: str
    text: str
    kinds: tuple[str, ...]
    exempt: tuple[str, ...]
    limit: str
    fix: str
    ways: tuple[Way, ...]
    sources: tuple[str, ...]
    places: tuple[str, ...]
    generations: tuple[str, ...]
    precisions: tuple[str, ...]
    since: str | None
    until: str | None
    certainty: str
    effect: str
    network: bool
    found: str
    brief: bool
    runs_in: str
    needs_gpu: bool
    operator_fix: bool
    mends: bool
    when: Check | None
    check: Check | None
    counts: Check | None = None
    warning: str = ""
    ties: Mapping[str, Any] | None = None

    def holds_for(self, kind: str, generation: str, version: Version) -> bool:
        """Whether the rule is in force for a layer kind, DLA generation and TensorRT release.

        A rule of the whole network holds for every kind; a board without a DLA has generation "".
        """
        if kind in self.exempt:
            return False
        if kind not in self.kinds and ANY_KIND not in self.kinds:
            return False
        if generation and generation not in self.generations:
            return False
        return within(version, self.since, self.until)


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of the operator matrix: what TensorRT and the DLA software have for an ONNX operator.

    Attributes:
        name: The ONNX operator.
        trt: What TensorRT exposes: "native", "reconstruction", "rfe" or "folded".
        dla: What the DLA software below it has, in the same words.
        since: First TensorRT release; empty if it is not known to be missing from any.
        dla_since: First DLA software.
        families: Rule families that judge its layers.
        composed: TensorRT's parser writes several layers, which the rules judge one by one.
        fix: What NVIDIA says to do instead, empty when it says nothing.
        mends: The fix brings it to the DLA; False if only the DLA software could follow it.
        settled_by: The rule that decides instead of the row.
    """

    name: str
    trt: str
    dla: str
    since: str
    dla_since: str
    families: tuple[str, ...]
    composed: bool
    fix: str
    mends: bool
    settled_by: str


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Everything under ``dla/`` that verdicts need.

    Attributes:
        rules: By id.
        operators: The matrix's rows by ONNX operator.
        titles: Of the families, by name.
        meanings: What the matrix's words say, in ours.
        matrix_sources: Where the matrix is from: title and place.
        kinds: Layer kinds that some rule names.
        allowed_by: By layer kind and function ("*": any other), the titles of the sources that say
            a DLA has it.
        unlisted: ONNX operators without a row that rules name: their ``families`` and ``rules``.
        guide: The sentences of the guide's section 13.2 by the title of their part, as read.
        oldest: The oldest TensorRT release that a guide among the sources is about.
        newest: The newest TensorRT release in the sources.
    """

    rules: Mapping[str, Rule]
    operators: Mapping[str, Operator]
    titles: Mapping[str, str]
    meanings: Mapping[str, str]
    matrix_sources: tuple[Mapping[str, str], ...]
    kinds: frozenset[str]
    allowed_by: Mapping[str, Mapping[str, tuple[str, ...]]]
    unlisted: Mapping[str, Mapping[str, list[str]]]
    guide: tuple[tuple[str, Mapping[str, Any]], ...]
    oldest: str
    newest: str

    def allowing(self, kind: str, function: object) -> tuple[str, ...]:
        """Returns the titles of the sources that say a DLA has such a layer."""
        known = self.allowed_by.get(kind, {})
        return known.get(str(function), known.get(ANY_KIND, ()))

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules.values())


@lru_cache(maxsize=1)
def load_rules() -> Rules:
    """Reads and compiles all rule files.

    Raises:
        ValueError: A file is of another schema, a rule stands twice, or a row cannot be compiled:
            edgekit's own files are wrong.
        DataError: A file is not YAML (code "data.yaml").
    """
    folder = data_folder("dla")
    origins = read_knowledge(folder / "_sources.yaml")
    sources = origins["sources"]
    rules: dict[str, Rule] = {}
    titles: dict[str, str] = {}
    allowed: dict[str, dict[str, tuple[str, ...]]] = {}
    for path in sorted(folder.glob("*.yaml")):
        if path.stem.startswith("_") or path.stem in _EXCLUDED:
            continue
        document = read_knowledge(path)
        if document.get("schema") != _RULES:
            raise ValueError(f"{path} is not a rule file of schema {_RULES}")
        titles[document["family"]] = document["title"]
        for function, keys in document.get("allowed_by", {}).items():
            for kind in document["kinds"]:
                named = tuple(sources[key]["title"] for key in keys)
                allowed.setdefault(kind, {})[function] = named
        for rule in _family(document, sources):
            if rule.id in rules:
                raise ValueError(f"{path}: rule {rule.id} is listed twice")
            rules[rule.id] = rule
    matrix = read_knowledge(folder / "operators.yaml")
    titles["operators"] = "Operator matrix"
    for rule in _family({"family": "operators", "kinds": [], **matrix}, sources):
        rules[rule.id] = rule
    for name, title in _NOTED.items():
        document = read_knowledge(folder / f"{name}.yaml")
        notes = [*document["rules"], *document.get("notes", ())]
        titles[name] = title
        for rule in _family({"family": name, "kinds": [], "notes": notes}, sources):
            rules[rule.id] = rule
    kinds = frozenset(k for rule in rules.values() for k in rule.kinds) - {ANY_KIND}
    written = read_knowledge(folder / "reconstruction.yaml")["operators"]
    operators = {
        name: _operator(name, row, matrix, written.get(name, {}))
        for name, row in matrix["operators"].items()
    }
    origin = tuple(sources[key] for key in matrix["source"])
    return Rules(
        rules=rules,
        operators=operators,
        titles=titles,
        meanings=matrix["meanings"],
        matrix_sources=origin,
        kinds=kinds,
        allowed_by=allowed,
        unlisted=matrix["unlisted"],
        guide=tuple(
            (section["title"], sentence)
            for section in read_knowledge(folder / "guide.yaml")["sections"]
            for sentence in section["sentences"]
        ),
        oldest=origins["oldest_tensorrt"],
        newest=origins["newest_tensorrt"],
    )


@lru_cache(maxsize=1)
def memory_facts() -> Mapping[str, Any]:
    """Returns ``dla/memory.yaml``: pools, floors, paddings, the convolution buffer."""
    return _facts("memory")


def loadables_per_core(version: Version | None = None) -> int:
    """Returns how many loadables a DLA core holds: of a TensorRT release, or of the newest."""
    fact = memory_facts()["loadables_per_core"]
    if version is None:
        return int(fact["value"])
    older = [count for first, count in fact["before"].items() if version < parse_version(first)]
    return int(min([fact["value"], *older]))


@lru_cache(maxsize=1)
def format_facts() -> Mapping[str, Any]:
    """Returns ``dla/formats.yaml``: layouts, paddings, types and roles of the tensor formats."""
    return _facts("formats")


@lru_cache(maxsize=1)
def sparsity_facts() -> Mapping[str, Any]:
    """Returns ``dla/sparsity.yaml``: the pattern, its conditions, and what it gains."""
    return _facts("sparsity")


def titles_of(keys: Iterable[str]) -> str:
    """Returns the titles of sources by their keys, as one text."""
    sources = read_knowledge(data_folder("dla") / "_sources.yaml")["sources"]
    return "; ".join(sources[key]["title"] for key in keys)


def _facts(name: str) -> Mapping[str, Any]:
    facts: Mapping[str, Any] = read_knowledge(data_folder("dla") / f"{name}.yaml")
    return facts


def _family(document: Mapping[str, Any], sources: Mapping[str, Any]) -> Iterator[Rule]:
    family, kinds = document["family"], tuple(document["kinds"])
    for row in document.get("rules", ()):
        yield _rule(family, kinds, row, sources, row.get("effect", "refuse"))
    for row in document.get("notes", ()):
        yield _rule(family, kinds, row, sources, "note")


def _rule(
    family: str,
    kinds: tuple[str, ...],
    row: Mapping[str, Any],
    sources: Mapping[str, Any],
    effect: str,
) -> Rule:
    check = row.get("check")
    limit = str(row.get("limit") or limit_of(check or {}))
    when = row.get("when")
    default = "disputed" if effect == "risk" else "certain"
    return Rule(
        id=row["id"],
        family=family,
        text=row["text"],
        kinds=tuple(row.get("kinds", kinds)),
        exempt=tuple(row.get("except", ())),
        limit=limit,
        fix=row.get("fix", ""),
        ways=tuple(_way(way) for way in row.get("ways", ())),
        sources=tuple(sources[key]["title"] for key in row["source"]),
        places=tuple(sources[key]["where"] for key in row["source"]),
        generations=tuple(row.get("generations", GENERATIONS)),
        precisions=tuple(row.get("precisions", PRECISIONS)),
        since=row.get("since"),
        until=row.get("until"),
        certainty=row.get("certainty", default),
        effect=effect,
        network=row.get("scope") == "network",
        found=row.get("found", ""),
        brief=bool(row.get("brief", False)),
        runs_in=row.get("runs_in", ""),
        needs_gpu=bool(row.get("needs_gpu", False)),
        operator_fix=bool(row.get("operator_fix", False)),
        mends=bool(row.get("mends", True)),
        when=compile_check(when) if when else None,
        check=compile_check(check, limit) if check else None,
        counts=compile_check(row["counts"]) if "counts" in row else None,
        warning=row.get("warning", ""),
        ties=row.get("ties"),
    )


def _way(way: Mapping[str, Any]) -> Way:
    return Way(compile_check(way["when"]), way["for"], way["fix"], bool(way.get("mends", True)))


def _operator(
    name: str, row: Mapping[str, Any], matrix: Mapping[str, Any], written: Mapping[str, Any]
) -> Operator:
    fix = row.get("note", "")
    rewrites = tuple(written.get("rewrites", ()))
    # what TensorRT does not expose can be expressed with others only in the software below it
    below = row["trt"] == "rfe" and row["dla"] == "reconstruction"
    if below:
        fix = matrix["below"].format(note=f"{fix[:1].lower()}{fix[1:]}")
    if rewrites:
        fix = matrix["written"].format(rewrites=", ".join(rewrites))
        fix += f"; {written['but']}" if "but" in written else ""
    if "by_hand" in written:
        fix = matrix["by_hand"].format(way=written["by_hand"])
    if "recipe" in row:
        fix = f"{fix}; " if fix else ""
        fix += f"NVIDIA's recipe: {matrix['recipes']}{row['recipe']}"
    return Operator(
        name=name,
        trt=row["trt"],
        dla=row["dla"],
        since=row.get("since", ""),
        dla_since=row.get("dla_since", ""),
        families=tuple(row.get("families", ())),
        composed=bool(row.get("composed", False)),
        fix=fix,
        mends=not below,
        settled_by=row.get("settled_by", ""),
    )


@cache
def limit(rule: str) -> tuple[int, int]:
    """Returns the smallest and the largest value of a rule's range.

    It is the range that the rule allows; for a rule that shuts a range out
    ("deconvolution.square_kernel"), that one. ``exceptions`` lists what is allowed besides.

    Args:
        rule: Identifier of a rule with a range, as "pooling.window".

    Raises:
        KeyError: No rule of that name has a range.
    """
    for check in _checks(rule):
        for key in ("range", "outside"):
            if key in check:
                low, high = check[key]
                return int(low), int(high)
    raise KeyError(rule)


@cache
def exceptions(rule: str) -> frozenset[tuple[int, ...]]:
    """Returns the values that a rule allows one by one, besides its range.

    Args:
        rule: Identifier of a rule, as "deconvolution.kernel".

    Raises:
        KeyError: There is no rule of that name.
    """
    listed = [item for check in _checks(rule) for item in check.get("one_of", ())]
    return frozenset(tuple(int(side) for side in item) for item in listed)


def _checks(rule: str) -> list[dict[str, Any]]:
    """The check of a rule, or its alternatives."""
    family = rule.split(".", maxsplit=1)[0]
    document = read_knowledge(data_folder("dla") / f"{family}.yaml")
    for item in document["rules"]:
        if item["id"] == rule:
            check = item.get("check", {})
            return list(check.get("any", [check]))
    raise KeyError(rule)
