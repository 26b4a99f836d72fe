"""The API of each TensorRT release (`trt/releases.yaml`) and the combinations of features
(`trt/features.yaml`), by the names of TensorRT's Python API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from edgekit.knowledge import data_folder, read_facts, tensorrt_sources
from edgekit.targets.releases import parse_version, within
from edgekit_device.protocol.codec import document
from edgekit_device.versions import Version


@document(frozen=True)
class ReleaseRange:
    """The releases from ``since`` on and before ``until``; None: no such end."""

    since: str | None = None
    until: str | None = None

    def covers(self, version: Version) -> bool:
        """Returns True if a release is in the range."""
        return within(version, self.since, self.until)


@document(frozen=True, kw_only=True)
class Ability(ReleaseRange):
    """An ability of releases, in words; ``refit``: the weights that a runtime can refit."""

    what: str = ""
    refit: str = ""


@document(frozen=True, kw_only=True)
class ReleaseFault(ReleaseRange):
    """A fault of releases with any of some features, in words."""

    features: tuple[str, ...]
    why: str
    source: tuple[str, ...]


@document(frozen=True, kw_only=True)
class NarrowedType(ReleaseRange):
    """The NumPy type of inputs and outputs that replaces a type missing in releases, and why."""

    to: str
    why: str


@document(frozen=True)
class ReleaseFacts:
    """``trt/releases.yaml``.

    Attributes:
        sampled: Releases whose bindings were imported.
        inferred: Releases known from other sources.
        typing: How precision can be given: "weak", "strong".
        quantization: How INT8 can be given: "implicit", "explicit".
        runtimes: Smaller runtimes: "lean", "dispatch".
        warnings: Faults of releases.
        narrowed: Replacement types by NumPy type.
        python: The board's Python by JetPack's major version.
        python_source: The source of ``python``.
        names: Names of the Python API, with the releases that have them.
    """

    sampled: tuple[str, ...]
    inferred: tuple[str, ...]
    typing: Mapping[str, Ability]
    quantization: Mapping[str, Ability]
    runtimes: Mapping[str, Ability]
    warnings: tuple[ReleaseFault, ...]
    narrowed: Mapping[str, NarrowedType]
    python: Mapping[str, str]
    python_source: tuple[str, ...]
    names: Mapping[str, ReleaseRange]


@dataclass(frozen=True, slots=True)
class TensorRTRelease:
    """One release.

    Attributes:
        text: The requested text: "10.3" or "10.3.0.30".
        version: Its numbers.
    """

    text: str
    version: Version

    def has(self, name: str) -> bool:
        """Returns True if the release has a name of the Python API ("BuilderFlag.STRIP_PLAN").

        Raises:
            KeyError: edgekit's table does not have the name.
        """
        return release_facts().names[name].covers(self.version)

    def since(self, name: str) -> str:
        """Returns the first release with a name; empty if that is older than all known releases."""
        return release_facts().names[name].since or ""

    @property
    def typings(self) -> tuple[str, ...]:
        """How precision can be given: "weak" (flags), "strong" (types in the network), or both."""
        return tuple(n for n, row in release_facts().typing.items() if row.covers(self.version))

    def dtype(self, name: str) -> str:
        """Returns the NumPy type of an engine's input or output for a type in the model."""
        row = release_facts().narrowed.get(name)
        return row.to if row is not None and row.covers(self.version) else name

    def warnings(self, features: frozenset[str]) -> tuple[str, ...]:
        """Returns the release's known faults with any of these features."""
        return tuple(
            f"TensorRT {self.text}: {row.why} ({', '.join(sources(row.source))})"
            for row in release_facts().warnings
            if row.covers(self.version) and features & set(row.features)
        )


def release(tensorrt: str) -> TensorRTRelease:
    """Returns a release by its number, "10.3" or "10.3.0.30".

    Raises:
        UsageError: It is no version (code "tensorrt.version").
    """
    return TensorRTRelease(tensorrt, parse_version(tensorrt))


@cache
def release_facts() -> ReleaseFacts:
    """Returns ``trt/releases.yaml``."""
    return read_facts(
        ReleaseFacts, data_folder("trt") / "releases.yaml", "edgekit.tensorrt-releases/1"
    )


def sources(keys: Iterable[str]) -> tuple[str, ...]:
    """Returns the titles of sources."""
    return tuple(tensorrt_sources()[key].title for key in keys)


@document(frozen=True)
class Feature:
    """A feature: its description, its configuration key, and the API name that it needs.

    ``without`` describes an engine built without it.
    """

    what: str
    key: str = ""
    flag: str = ""
    without: str = ""

    def on(self, release: TensorRTRelease) -> bool:
        """Returns True if a release has it."""
        return not self.flag or release.has(self.flag)

    @property
    def builder_flag(self) -> str:
        """The name of TensorRT's BuilderFlag; empty if it is no flag."""
        kind, _, name = self.flag.partition(".")
        return name if kind == "BuilderFlag" else ""


@document(frozen=True, kw_only=True)
class FeatureRule(ReleaseRange):
    """A known fact about one feature or about two or three features together.

    Attributes:
        of: Names of the features; in a "required" row, the first needs the second.
        status: One of ``STATUSES``.
        basis: header, docs, source, blog, issue, or inferred.
        why: The reason as text.
        source: Keys of sources.
        platforms: Platforms that it holds for ("jetson", "drive"); empty for all.
    """

    of: tuple[str, ...]
    status: str
    basis: str
    why: str
    source: tuple[str, ...]
    platforms: tuple[str, ...] = ()

    def holds(self, release: TensorRTRelease, platform: str) -> bool:
        """Returns True if it holds for a release on a platform."""
        return self.covers(release.version) and (not self.platforms or platform in self.platforms)

    @property
    def sources(self) -> tuple[str, ...]:
        """The titles of its sources."""
        return sources(self.source)

    @property
    def reason(self) -> str:
        """The reason, with its sources."""
        return f"{self.why} ({', '.join(self.sources) or 'stated nowhere'})"


@document(frozen=True)
class FeatureLimit:
    """The largest number of optimisation profiles with a feature, and why."""

    feature: str
    profiles: int
    why: str


@document(frozen=True)
class LeanRule:
    """An observation about the lean runtime, and its consequence."""

    rule: str
    so: str


@document(frozen=True)
class FeatureFacts:
    """``trt/features.yaml``.

    Attributes:
        features: By name.
        give_up: The features that a build may leave out, the least important first.
        rows: Known facts about features and their combinations.
        limits: Limits of features on the optimisation profiles.
        lean_runtime: Observations about the lean runtime.
    """

    features: Mapping[str, Feature]
    give_up: tuple[str, ...]
    rows: tuple[FeatureRule, ...]
    limits: tuple[FeatureLimit, ...]
    lean_runtime: tuple[LeanRule, ...]


@cache
def feature_facts() -> FeatureFacts:
    """Returns ``trt/features.yaml``."""
    return read_facts(
        FeatureFacts, data_folder("trt") / "features.yaml", "edgekit.tensorrt-features/1"
    )


def features() -> Mapping[str, Feature]:
    """Returns the features by name."""
    return feature_facts().features


def feature_rules() -> tuple[FeatureRule, ...]:
    """Returns every row, in the file's order."""
    return feature_facts().rows


def rules_for(
    names: Iterable[str], release: TensorRTRelease, platform: str
) -> tuple[FeatureRule, ...]:
    """Returns the rows whose features are all requested; in "required" rows only the first."""
    wanted = set(names)
    return tuple(
        row
        for row in feature_rules()
        if set(row.of[:1] if row.status == "required" else row.of) <= wanted
        and row.holds(release, platform)
    )


def limits(names: Iterable[str]) -> tuple[FeatureLimit, ...]:
    """Returns the limits of these features on the optimisation profiles."""
    wanted = set(names)
    return tuple(row for row in feature_facts().limits if row.feature in wanted)
