"""`Context`: all inputs of a configuration's results; it never changes. A result is a function of
it: `computed` keeps a result in memory, `Context.stored` in the file cache, each under its inputs.
Another choice is another context: `dataclasses.replace`, or `variant`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from edgekit.config.loader import open_config
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.progress import Progress
from edgekit.reference.gate import GateChoice
from edgekit.targets.board import Target
from edgekit.targets.loader import get
from edgekit_device.protocol.codec import anything, array, document, long_text, member, read, write

if TYPE_CHECKING:
    from edgekit.config.loader import Config
    from edgekit.config.schema import ConfigFile
    from edgekit.placement.plan import Plan

P = ParamSpec("P")
R = TypeVar("R")
# a result in memory, and the notes of its computation
_Kept = tuple[Any, tuple[str, ...]]


class Session:
    """Notes, progress and results in memory while a configuration's results are computed.

    Attributes:
        progress: Receives the progress of the work.
        results: Results in memory; contexts of one configuration and its variants share them.
        notes: Notes for the user.
        fresh: Names of the steps that were computed, not read from the cache.
        read: Number of the user's inputs; None before they were read.
    """

    def __init__(self, progress: Progress, results: dict[Any, _Kept] | None = None) -> None:
        self.progress = progress
        self.results: dict[Any, _Kept] = {} if results is None else results
        self.notes: list[str] = []
        self._withdrawn: set[str] = set()
        self.fresh: set[str] = set()
        self.read: int | None = None

    def note(self, *notes: str) -> None:
        """Adds notes for the user, each once."""
        self.notes += [
            note for note in notes if note not in self.notes and note not in self._withdrawn
        ]

    def withdraw(self, note: str) -> None:
        """Removes an outdated note for good: cached results add their own notes again."""
        self._withdrawn.add(note)
        self.notes = [noted for noted in self.notes if noted != note]

    def detail(self, text: str) -> None:
        """Reports the time of parts of the work, on request."""
        # a caller's own progress may have no details
        getattr(self.progress, "detail", str)(text)


@document(frozen=True)
class _StepResult:
    """A step's result as the cache keeps it.

    Attributes:
        result: The document of the result.
        notes: The notes of its computation.
    """

    result: Any = member(anything)
    notes: tuple[str, ...] = member(array(long_text))


@document(frozen=True, eq=False)
class MeasuredRanges:
    """The results of measured ranges for a network, for every calibration method.

    Attributes:
        amax: Largest magnitude by tensor, by each calibration method.
        unscaled: Tensors of INT8 layers that need a scale and were measured to have none.
    """

    amax: tuple[Mapping[str, float], ...]
    unscaled: frozenset[str] = frozenset()


@document(frozen=True, eq=False)
class Context:
    """A configuration and the decisions of the steps so far.

    Attributes:
        config: The configuration.
        cache: Holds the results.
        session: Collects notes, progress, and results in memory.
        force: True if everything is computed again.
        weighs: True if rewrites are left out when the plan is predicted to be worse with them.
        explains: True if an impossible plan is reported with the constraints that conflict, which
            takes further placements.
        measured: The measured ranges; None before the measurement.
        method_by_gate: The calibration method that the accuracy gate chose; None if the given or
            chosen method stays.
        fp16_by_gate: Layers that the accuracy gate keeps in FP16.
        placed: A plan that the caller chose; None if it is computed.
        backend: The backend that the caller chose; empty if the boards decide.
    """

    config: Config
    cache: Cache
    session: Session
    force: bool = False
    weighs: bool = True
    explains: bool = True
    measured: MeasuredRanges | None = None
    method_by_gate: GateChoice | None = None
    fp16_by_gate: tuple[str, ...] = ()
    placed: Plan | None = None
    backend: str = ""
    # results of this context alone
    own: dict[Any, _Kept] = field(default_factory=dict, init=False, repr=False)

    @property
    def file(self) -> ConfigFile:
        """The configuration's values."""
        return self.config.file

    @functools.cached_property
    def target(self) -> Target:
        """The board."""
        return get(self.file.target)

    @property
    def tensorrt(self) -> str:
        """The TensorRT release whose rules hold."""
        return self.file.tensorrt or self.target.tensorrt

    @property
    def cut_by(self) -> tuple[object, ...]:
        """The inputs of an automatic cut's place; empty without ``model.cut``."""
        file = self.file
        if file.model.cut is None:
            return ()
        return (self.target.name, self.tensorrt, file.precision, file.power_mode, self.cut_for)

    @property
    def cut_for(self) -> str:
        """The objective by which cuts are ranked: the GPU's time by default."""
        given = self.file.placement
        return given.objective if "objective" in given.model_fields_set else "gpu_time"

    @functools.cached_property
    def undecided(self) -> Context:
        """The context before any measurement or decision."""
        return replace(self, measured=None, method_by_gate=None, fp16_by_gate=(), placed=None)

    def value(self, name: str) -> Any:
        """Returns a value of the context, or a section of the configuration, as a key."""
        if name in _FIELDS:
            return getattr(self, name)
        # sections hold dicts and lists, so they have no hash: their text is the key
        return repr(functools.reduce(getattr, name.split("."), self.file))

    def update(self, done: float, total: float, text: str = "", *, at: float | None = None) -> None:
        """Reports that a part of long work is done, as ``Progress.update``."""
        if at is None:
            self.session.progress.update(done, total, text)
        else:
            self.session.progress.update(done, total, text, at=at)

    def announce(self, text: str) -> None:
        """Reports a note to the user at once."""
        self.session.progress.note(text)

    def note(self, *notes: str) -> None:
        """Adds notes for the user, each once."""
        self.session.note(*notes)

    def stored(
        self, kind: type[R], step: str, compute: Callable[[], R], *parts: Any, again: bool = False
    ) -> R:
        """Returns the result cached under ``parts``; computes and stores it if there is none.

        The notes of its computation are stored with it, and added again when it is read.

        Args:
            kind: The result's class, a codec class.
            step: The step's name.
            compute: Makes the result.
            parts: All inputs of the result.
            again: Whether to compute it in any case.
        """
        result = None if again else self.look_up(kind, step, *parts)
        if result is None:
            self.session.fresh.add(step)
            before = list(self.session.notes)
            document = write(compute())
            noted = tuple(note for note in self.session.notes if note not in before)
            self.cache.keep(step, self.cache.key(step, *parts), _StepResult(document, noted))
            # read back, so that a computed result equals a cached one
            result = read(kind, document)
        return result

    def look_up(self, kind: type[R], step: str, *parts: Any) -> R | None:
        """Returns the result cached under ``parts`` and adds its notes; None if there is none."""
        key = self.cache.key(step, *parts)
        found = None if self.force else self.cache.find(_StepResult, step, key)
        if found is None:
            return None
        self.note(*found.notes)
        # the key has the digest of edgekit's code, so this very class wrote the document
        return read(kind, found.result)


_FIELDS = {"cut_by", *(item.name for item in fields(Context))}


class Computed(Generic[P, R]):
    """A function of a context whose results stay in memory; made by ``computed``."""

    def __init__(
        self, function: Callable[Concatenate[Context, P], R], depends: tuple[str, ...]
    ) -> None:
        self.function = function
        self.depends = depends
        functools.update_wrapper(self, function)

    def __call__(self, context: Context, *args: P.args, **kwargs: P.kwargs) -> R:
        """Returns the result, computed once, and adds the notes of its computation."""
        key = (self.function, args, *kwargs.items())
        # first by the context itself: the values of `depends` are costly texts
        kept = context.own.get(key)
        if kept is None:
            kept = context.own[key] = self._look_up_shared(context, key, args, kwargs)
        context.note(*kept[1])
        result: R = kept[0]
        return result

    def _look_up_shared(
        self, context: Context, key: tuple[Any, ...], args: Any, kwargs: Any
    ) -> _Kept:
        # without `depends` the result is not shared with other contexts
        results = context.session.results if self.depends else {}
        # a forced context must not get a result that was read from the cache
        place = (*key, context.force, *map(context.value, self.depends))
        if place not in results:
            before = list(context.session.notes)
            result = self.function(context, *args, **kwargs)
            noted = tuple(note for note in context.session.notes if note not in before)
            results[place] = result, noted
        return results[place]


def computed(
    *depends: str | Computed[..., Any],
) -> Callable[[Callable[Concatenate[Context, P], R]], Computed[P, R]]:
    """Keeps the results of a function in memory, for all contexts with the same inputs.

    Args:
        depends: The inputs of a result: a section of the configuration ("model",
            "placement.profile"), a value of ``Context`` ("measured"), or another computed function,
            for all its inputs. Without any, a result belongs to a single context.
    """
    names: dict[str, None] = {}
    for dependency in depends:
        names |= (
            {dependency: None} if isinstance(dependency, str) else dict.fromkeys(dependency.depends)
        )

    def decorate(function: Callable[Concatenate[Context, P], R]) -> Computed[P, R]:
        return Computed(function, tuple(names))

    return decorate


def variant(context: Context, **changes: Any) -> Context:
    """Returns a context with other keys of the configuration and its own notes.

    The accuracy gate's decisions (the method, layers in FP16) are not copied.
    """
    config = open_config(context.config, **changes)
    # the inputs of the measured ranges
    keys = ("model", "target", "precision", "tensorrt", "calibration", "rewrite")
    same = all(getattr(config.file, key) == getattr(context.file, key) for key in keys)
    measured = context.measured if same else None
    return with_config(context, config, measured)


def with_config(
    context: Context, config: Config, measured: MeasuredRanges | None = None
) -> Context:
    """Returns a context of another configuration, with its own notes and without decisions."""
    session = Session(context.session.progress, context.session.results)
    return replace(context.undecided, config=config, session=session, measured=measured)
