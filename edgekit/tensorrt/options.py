"""Builder flags for a TensorRT release: `decide` turns a configuration and its plan into builder
flags, with fallbacks that are tried in order, notes on dropped features, or the reasons why the
build is impossible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from edgekit.errors import ConfigError, Problem
from edgekit.targets.loader import get
from edgekit.targets.releases import supports_dla
from edgekit.tensorrt.releases import (
    FeatureRule,
    TensorRTRelease,
    feature_facts,
    features,
    limits,
    release,
    rules_for,
)
from edgekit.tensorrt.settings import Dropped, SettingsCase, SettingValue, choose_settings
from edgekit_device.build.settings import Setting

#: A switch of the configuration: "auto" is dropped with a note if it is not available.
Choice = Literal["auto"] | bool
_MODE = "build.mode"
_IDENTICAL = "build.refit: identical"
_INSTEAD = {
    "VC": "auto leaves it out with a note",
    "STRIP_PLAN": "auto leaves it out with a note",
    "EXCLUDE_LEAN": "remove build.lean",
    "HW_COMPAT": "remove it: every board builds its own engines",
    "REFIT": _IDENTICAL,
    "REFIT_INDIVIDUAL": "build.refit: any, or identical",
    "INT8_CALIB": "this release needs Q/DQ nodes: add them with edgekit calibrate to-qdq",
    "QDQ": "convert the model to a plain one and a calibration cache: edgekit calibrate from-qdq",
    "DYNAMIC_SHAPES": (
        "give every input a fixed shape, or keep the network on the GPU: placement.dla_cores: []"
    ),
    "PLUGINS": "build.mode: hybrid runs them on the GPU",
    "WEIGHT_STREAMING": (
        "weights are streamed to the GPU, in a strongly typed network: placement.dla_cores: [] and "
        "build.typing: strong, or remove build.weight_streaming"
    ),
}
#: Features that a plan loses together with another feature.
_WITH = {"EXCLUDE_LEAN": "VC", "REFIT_IDENTICAL": "STRIP_PLAN"}
_CHANGING = ("REFIT", "REFIT_INDIVIDUAL")


@dataclass(frozen=True, kw_only=True)
class RequestedBuild:
    """The TensorRT build that a configuration and its plan request.

    Attributes:
        target: A board under ``targets/``.
        tensorrt: The release that builds, "10.3" or "10.3.0.30".
        mode: "hybrid" (plans; a DLA with GPU fallback if ``dla``), "standalone" (loadables
            alone) or "split" (loadables, and plans of the GPU's segments).
        dla: True if the plan puts layers on a DLA.
        precision: Lowest precision: "fp32", "fp16" or "int8".
        qdq: The network has Q/DQ nodes, which give the scales; a cache gives them otherwise.
        typing: "weak" (flags and layer precisions), "strong" (types in the network), or "auto":
            the release's typing for the board, weak if it has both.
        strip: Take the weights out of plans.
        refit: "identical", "any", or the names of the weights that may be changed.
        version_compatible: Plans for newer releases and the lean runtime.
        lean: "embedded" in version compatible plans, "external", or "auto" (external if the
            release can leave it out: then no plan carries code that the board would run).
        hardware_compatible: Plans for other GPUs.
        dynamic: An optimisation profile has min != max.
        profiles: Number of optimisation profiles.
        plugins: The network has custom layers.
        weight_streaming: Stream weights from host memory.
        settings: Values of the section ``build`` by key, as ``choose_settings`` takes them.
        cuda_graph: Capture the inference in a CUDA graph.
        places: File and line of each key ("build.strip" -> "net.yaml:12:3"), for messages.
    """

    target: str
    tensorrt: str
    mode: Literal["hybrid", "standalone", "split"] = "hybrid"
    dla: bool = True
    precision: Literal["fp32", "fp16", "int8"] = "int8"
    qdq: bool = False
    typing: Literal["auto", "weak", "strong"] = "auto"
    strip: Choice = "auto"
    refit: Literal["identical", "any"] | tuple[str, ...] = "identical"
    version_compatible: Choice = "auto"
    lean: Literal["auto", "embedded", "external"] = "auto"
    hardware_compatible: bool = False
    dynamic: bool = False
    profiles: int = 0
    plugins: bool = False
    weight_streaming: bool = False
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    cuda_graph: bool = False
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildAttempt:
    """An attempt to build an engine.

    Attributes:
        flags: Names of TensorRT's BuilderFlag that it sets, in the order of the data.
        gives_up: The requested features that it lacks, as a sentence; empty for the first attempt.
        breaks: True if the configuration requires a feature that it lacks.
    """

    flags: tuple[str, ...]
    gives_up: str = ""
    breaks: bool = False


@dataclass(frozen=True)
class Decision:
    """Builder flags and settings of the engines for a TensorRT release.

    Attributes:
        typing: "weak" or "strong".
        plans: Attempts for plans, tried in order; empty if the mode makes none.
        loadables: Attempts for DLA loadables; empty if the mode makes none.
        unknown: Pairs of features for which no source states whether they can be combined: a
            build tries.
        notes: Dropped features with reasons, and features that may not work, as sentences.
        dropped: The notes about keys of the section ``build``.
        settings: Other settings of the builder, by kind of engine ("plan", "loadable").
    """

    typing: Literal["weak", "strong"]
    plans: tuple[BuildAttempt, ...] = ()
    loadables: tuple[BuildAttempt, ...] = ()
    unknown: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    settings: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)

    @property
    def attempts(self) -> tuple[BuildAttempt, ...]:
        """The attempts of the mode's only kind of engine; if it makes two, those of plans."""
        return self.plans or self.loadables


@dataclass(frozen=True, slots=True)
class RequestedFeatures:
    """Features of one kind of engine.

    Attributes:
        kind: "plan" or "loadable".
        firm: Features that the plan or the configuration requires: never dropped silently.
        soft: Features that edgekit uses if available, in the order of the decisions.
    """

    kind: str
    firm: tuple[str, ...]
    soft: tuple[str, ...]

    @staticmethod
    def unit(name: str, other: str) -> bool:
        """Returns True if leaving out ``name`` settles a doubt about ``other``."""
        if name == "STRIP_PLAN":
            return other in ("STRIP_PLAN", "REFIT_IDENTICAL")
        if name == "VC":
            return other in ("VC", "EXCLUDE_LEAN")
        if name == "REFIT":
            return other in ("REFIT", "REFIT_INDIVIDUAL")
        return name == other


def requested_features(request: RequestedBuild, kind: str, typing: str) -> RequestedFeatures:
    """Returns the features of one kind of engine.

    Args:
        request: The requested build.
        kind: "plan" or "loadable".
        typing: "weak" or "strong".
    """
    firm: list[str] = []
    soft: list[str] = []
    if kind == "loadable":
        firm.append("DLA_STANDALONE")
    elif request.mode == "hybrid" and request.dla:
        firm.append("DLA_HYBRID")
    if typing == "strong":
        firm.append("STRONGLY_TYPED")
    if request.qdq:
        firm.append("QDQ")
    elif request.precision == "int8":
        firm.append("INT8_CALIB")
    given = {
        "HW_COMPAT": request.hardware_compatible,
        "WEIGHT_STREAMING": request.weight_streaming,
        "DYNAMIC_SHAPES": request.dynamic,
        # loadables of a split build have no GPU fallback: their layers are the DLA's
        "PLUGINS": request.plugins and (kind == "plan" or request.mode == "standalone"),
        "CUDA_GRAPH": request.cuda_graph,
    }
    firm += [name for name, wanted in given.items() if wanted]
    # in a split build these features are about the plans, not the loadables
    if kind == "plan" or request.mode == "standalone":
        _add_plan_features(request, firm, soft)
    if kind == "plan" and request.mode == "split":
        soft.append("DIRECT_IO")
    return RequestedFeatures(kind, tuple(firm), tuple(soft))


def _add_plan_features(request: RequestedBuild, firm: list[str], soft: list[str]) -> None:
    choices = (("VC", request.version_compatible), ("STRIP_PLAN", request.strip))
    for name, choice in choices:
        if choice is True:
            firm.append(name)
        elif choice == "auto":
            soft.append(name)
    if request.lean == "external" and request.version_compatible is True:
        firm.append("EXCLUDE_LEAN")
    elif request.lean != "embedded":
        soft.append("EXCLUDE_LEAN")
    if request.refit == "identical":
        soft.append("REFIT_IDENTICAL")
    else:
        firm.append("REFIT" if request.refit == "any" else "REFIT_INDIVIDUAL")


def missing_in_release(request: RequestedBuild, on: TensorRTRelease) -> list[Problem]:
    """Returns the problems of a release without this board's DLA or the requested typing."""
    target = get(request.target)
    if (request.dla or request.mode == "standalone") and not supports_dla(target, request.tensorrt):
        known = ", ".join(
            f"{r.since} to before {r.until}" if r.until else f"{r.since} and later"
            for r in target.dla.tensorrt
        )
        unstated = target.dla.tensorrt_unstated
        known += f" ({unstated.since}: not stated)" if unstated else ""
        return [
            _problem(
                request,
                "tensorrt",
                f"TensorRT {on.text} does not support the DLA of this board",
                f"use a release that does: {known}; or keep everything on the GPU: "
                "placement.dla_cores: []"
                if known
                else "no TensorRT release supports a DLA of this board: placement.dla_cores: []",
            )
        ]
    if request.typing != "auto" and request.typing not in on.typings:
        return [
            _problem(
                request,
                "build.typing",
                f"TensorRT {on.text} cannot build {request.typing}ly typed networks",
                f"it builds {' and '.join(f'{t}ly' for t in on.typings)} typed networks",
            )
        ]
    return []


def impossible_features(
    request: RequestedBuild, on: TensorRTRelease, own: RequestedFeatures
) -> list[Problem]:
    """Returns the problems of firm features of one kind of engine that are not available."""
    known, found = features(), []
    refused: set[str] = set()  # an unavailable feature needs no second reason
    for name in own.firm:
        if not known[name].on(on):
            refused.add(name)
            since = on.since(known[name].flag)
            first = f"; {since} is the first release that has it" if since else ""
            found.append(
                _problem(
                    request,
                    known[name].key or _MODE,
                    f"TensorRT {on.text} does not have {name}, {known[name].what}{first}",
                    _INSTEAD.get(name, ""),
                )
            )
    # rules of a single feature first: a refused feature needs no rule of a pair
    for row in sorted(
        rules_for(own.firm, on, get(request.target).platform), key=lambda row: len(row.of)
    ):
        if refused & set(row.of):
            continue
        if row.status == "required" and row.of[1] not in own.firm:
            second = known[row.of[1]]
            if second.builder_flag and second.on(on):
                continue  # it is simply set
            named = _describe_feature(request, row.of[0])
            message = f"{named} needs {row.of[1]}, {second.what}: {row.reason}"
        elif row.status in ("forbidden", "not_applicable"):
            verb = "cannot be combined" if len(row.of) > 1 else "is not possible here"
            refused |= set(row.of[:1]) if len(row.of) == 1 else set()
            names = " and ".join(_describe_feature(request, name) for name in row.of)
            message = f"{names} {verb}: {row.reason}"
        else:
            continue
        hint = next((_INSTEAD[name] for name in reversed(row.of) if name in _INSTEAD), "")
        found.append(_problem(request, _key_to_change(request, own, row.of), message, hint))
    for limit in limits(own.firm):
        if request.profiles > limit.profiles:
            found.append(
                _problem(
                    request,
                    known[limit.feature].key,
                    f"{limit.feature} allows {limit.profiles} optimisation profile, but "
                    f"there are {request.profiles}: {limit.why}",
                    "build one profile, or remove build.strip and build.refit",
                )
            )
    return found


def _key_to_change(request: RequestedBuild, own: RequestedFeatures, names: tuple[str, ...]) -> str:
    """Returns the key to change: the most freely chosen of the keys in the file."""
    keys = [features()[name].key or _MODE for name in own.firm if name in names]
    written = [key for key in keys if key in request.places]
    return (written or keys)[-1]


def _describe_feature(request: RequestedBuild, name: str) -> str:
    """Returns a feature's name, with its key and the key's line if known."""
    key = features()[name].key
    if not key:
        return name
    parts = request.places.get(key, "").rsplit(":", 2)
    return f"{name} ({key}, line {parts[1]})" if len(parts) == 3 else f"{name} ({key})"


def _problem(request: RequestedBuild, key: str, message: str, hint: str) -> Problem:
    return Problem(message, request.places.get(key, key), hint)


def decide(request: RequestedBuild) -> Decision:
    """Decides the builder flags before any engine is built.

    Features left to edgekit ("auto") are dropped with a note if the release lacks them or they
    cannot be combined with the request. Required features are never dropped here.
    If no source states whether features can be combined, the attempts try: first with all, then
    without the least important; requested features are given up last. An attempt without all
    "auto" features is always included: a plan may be built and yet be unusable (a failed refit).

    Raises:
        ConfigError: With all impossible parts of the request: a release that does not support the
            board's DLA or has no such typing ("trt.release"), features that it lacks or that
            cannot be combined ("trt.features").
        UsageError: There is no such board, or ``tensorrt`` is no version.
    """
    on = release(request.tensorrt)
    problems = missing_in_release(request, on)
    if problems:
        raise ConfigError(problems, code="trt.release")
    notes: list[str] = []
    dropped: list[Dropped] = []
    typing = request.typing
    if typing == "auto":
        typing = "weak" if "weak" in on.typings else "strong"
    kinds = {"hybrid": ("plan",), "standalone": ("loadable",), "split": ("plan", "loadable")}
    found: dict[str, tuple[BuildAttempt, ...]] = {}
    unknown: list[tuple[str, ...]] = []
    for kind in kinds[request.mode]:
        own = requested_features(request, kind, typing)
        bad = impossible_features(request, on, own)
        problems += [problem for problem in bad if problem not in problems]
        if bad:
            continue
        chosen = _chosen_features(request, on, own, notes, dropped)
        open_rows = [
            r for r in rules_for(chosen, on, get(request.target).platform) if r.status == "unknown"
        ]
        unknown += [row.of for row in open_rows if row.of not in unknown]
        found[kind] = _attempts(own, chosen, open_rows)
        notes += [note for note in on.warnings(frozenset(chosen)) if note not in notes]
        notes += [note for note in _describe_unknown(open_rows) if note not in notes]
    chosen_settings = choose_settings(
        request.settings,
        SettingsCase(
            on=on,
            target=get(request.target),
            typing=typing,
            precision=request.precision,
            dla=request.dla,
            kinds=kinds[request.mode],
            places=request.places,
        ),
    )
    problems += chosen_settings.problems
    if problems:
        raise ConfigError(problems, code="trt.features")
    return Decision(
        typing,
        found.get("plan", ()),
        found.get("loadable", ()),
        tuple(unknown),
        (*notes, *(setting.why for setting in chosen_settings.dropped)),
        (*dropped, *chosen_settings.dropped),
        chosen_settings.by_kind,
    )


def _chosen_features(
    request: RequestedBuild,
    on: TensorRTRelease,
    own: RequestedFeatures,
    notes: list[str],
    dropped: list[Dropped],
) -> list[str]:
    """Returns the features that a build sets: firm features, and soft features that fit.

    Notes for the user are added to ``notes``, and those about a key to ``dropped``.
    """
    known = features()
    chosen = list(own.firm)

    def drop(key: str, note: str) -> None:
        if key and note not in notes:
            notes.append(note)
            dropped.append(Dropped(key.removeprefix("build."), note))

    for name in own.soft:
        companion = _WITH.get(name)
        if companion is not None and companion not in chosen:
            continue
        if not known[name].on(on):
            first = on.since(known[name].flag)
            lack = (
                f"TensorRT {on.text} does not have it ({known[name].what}; the first release "
                f"with it is {first}"
            )
            if companion is None:
                drop(known[name].key, f"{known[name].key} is not used: {lack})")
            continue
        against = _conflict(request, name, chosen, on)
        if not against:
            chosen.append(name)
        elif companion is None:
            drop(known[name].key, f"{known[name].key} is not used: {against}")
    if request.lean == "external" and own.kind == "plan" and "VC" not in chosen:
        drop(
            "build.lean",
            "build.lean has no effect, because only version-compatible plans have a lean runtime",
        )
    for row in rules_for(chosen, on, get(request.target).platform):
        if row.status == "required" and row.of[1] not in chosen:
            chosen.append(row.of[1])
        elif row.status == "ignored":
            note = f"{known[row.of[0]].what}: no effect, because {row.reason}"
            notes += [note] if note not in notes else []
    return chosen


def _conflict(request: RequestedBuild, name: str, chosen: list[str], on: TensorRTRelease) -> str:
    """Returns why a feature cannot be combined with the chosen features; empty if it can."""
    for row in rules_for([*chosen, name], on, get(request.target).platform):
        if name in row.of and row.status in ("forbidden", "not_applicable"):
            return row.reason
    over = [limit for limit in limits([name]) if request.profiles > limit.profiles]
    return over[0].why if over else ""


def _attempts(
    own: RequestedFeatures, chosen: list[str], open_rows: list[FeatureRule]
) -> tuple[BuildAttempt, ...]:
    """Returns the attempts: all features first, then in the order of the smallest loss."""
    order = feature_facts().give_up
    doubtful = {name for row in open_rows for name in row.of} & set(chosen)
    # it depends on the formats of the network's inputs and outputs, which no rule knows
    doubtful |= {"DIRECT_IO"} & set(own.soft) & set(chosen)
    units = [name for name in order if any(own.unit(name, other) for other in doubtful)]
    # every subset of the doubtful: at most 2**5, as the data's ``give_up`` has five features
    tries = [lost for size in range(len(units) + 1) for lost in combinations(units, size)]
    auto = tuple(name for name in order if name in own.soft and name in chosen)
    tries = list(dict.fromkeys([*tries, auto]))
    explicit = {name for name in units if any(own.unit(name, firm) for firm in own.firm)}
    tries.sort(key=lambda lost: (len(explicit & set(lost)), len(lost)))  # stable: data's order
    found: dict[tuple[str, ...], BuildAttempt] = {}
    for lost in tries:
        left = _remaining_features(chosen, set(lost))
        flags = tuple(f.builder_flag for n, f in features().items() if n in left and f.builder_flag)
        breaks = bool(explicit & set(lost))
        # different losses may leave the same flags: the smallest loss comes first and describes
        # them
        found.setdefault(flags, BuildAttempt(flags, _describe_lost(lost, chosen, explicit), breaks))
    return tuple(found.values())


def _remaining_features(chosen: list[str], lost: set[str]) -> list[str]:
    left = [name for name in chosen if name not in lost and _WITH.get(name) not in lost]
    if "REFIT" in lost:
        left = [name for name in left if name not in _CHANGING]
        # a stripped plan must be refittable at least with its own weights
        if "STRIP_PLAN" in left:
            left.append("REFIT_IDENTICAL")
    return left


def _describe_lost(lost: tuple[str, ...], chosen: list[str], explicit: set[str]) -> str:
    texts = []
    for name in lost:
        lost_names = [n for n in chosen if n in _CHANGING] if name == "REFIT" else [name]
        feature = features()[lost_names[0]]
        named = f" (although {feature.key} asks for it)" if name in explicit else ""
        texts.append(feature.without + named)
    return f"without {'; without '.join(texts)}" if texts else ""


def _describe_unknown(open_rows: list[FeatureRule]) -> list[str]:
    pairs = [" with ".join(row.of) for row in open_rows if len(row.of) == 2]
    texts = ", ".join(pairs)
    return (
        [f"no source says whether these can be combined, so the build tries: {texts}"]
        if texts
        else []
    )
