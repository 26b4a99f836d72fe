"""A configuration's model, loaded once and kept in the cache, and the layers that stay in FP16."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from edgekit.dla.precision import Join, float_tail, uneven_joins
from edgekit.network.loading.load import canonical, load
from edgekit.network.loading.validation import input_shapes
from edgekit.network.model import Model, Network
from edgekit.network.zoo import builtin
from edgekit.pipeline.cache import Cache, load_model, store_model
from edgekit.pipeline.steps.translation import is_typed, translation, typed_note, typed_translation
from edgekit.quantize.qdq.to_implicit import Translated, has_qdq
from edgekit.targets.board import Target
from edgekit.targets.loader import get
from edgekit.text import listed

if TYPE_CHECKING:
    from edgekit.config.loader import Config
    from edgekit.placement.plan import Plan


class UpdateProgress(Protocol):
    """``Progress.update``."""

    def __call__(
        self, done: float, total: float, text: str = "", /, *, at: float | None = None
    ) -> None:
        """Part of the step is done."""


def _nothing(done: float, total: float, text: str = "", /, *, at: float | None = None) -> None: ...


_LAYERS_SHOWN = 3


class LoadedModel:
    """A configuration's model, the layers that stay in FP16, and the cache of its results.

    Args:
        config: The configuration.
        cache: Holds the results.
        force: Compute everything again.

    Attributes:
        update: Called with (done, total, text) by work that takes long.
        on_note: Called at once with what a person should know.
        detail: Called with what is shown with -v alone.
        fresh: Names of the steps that were computed and not read back.
        notes: What a person should know.
        fp16_by_gate: Layers that the accuracy gate keeps in FP16.
        amax: Largest magnitude by tensor, as measured; by each calibration method. Empty before.
    """

    fp16_by_gate: tuple[str, ...] = ()
    amax: tuple[Mapping[str, float], ...] = ()

    def __init__(self, config: Config, cache: Cache, *, force: bool = False) -> None:
        self.config = config
        self.file = config.file
        self.cache = cache
        self.force = force
        self.update: UpdateProgress = _nothing
        self.on_note: Callable[[str], None] = lambda text: None
        self.detail: Callable[[str], None] = lambda text: None
        self.fresh: set[str] = set()
        self.notes: list[str] = []

    @cached_property
    def target(self) -> Target:
        """The board."""
        return get(self.file.target)

    @cached_property
    def tensorrt(self) -> str:
        """The TensorRT release whose rules hold."""
        return self.file.tensorrt or self.target.tensorrt

    def stored(
        self, step: str, compute: Callable[[], Any], *parts: Any, again: bool = False
    ) -> Any:
        """Returns the result kept under ``parts``; computes and keeps it when there is none.

        What is noted while it is computed is kept with it, and noted again when it is read back.
        """
        result = None if again else self.look_up(step, *parts)
        if result is None:
            self.fresh.add(step)
            before = list(self.notes)
            result = compute()
            noted = [note for note in self.notes if note not in before]
            self.cache.put(step, self.cache.key(step, *parts), {"result": result, "notes": noted})
        return result

    def look_up(self, step: str, *parts: Any) -> Any | None:
        """Returns the result kept under ``parts`` and notes what it has to say; None without."""
        cached = None if self.force else self.cache.get(step, self.cache.key(step, *parts))
        if cached is None:
            return None
        self.notes += [note for note in cached["notes"] if note not in self.notes]
        return cached["result"]

    @property
    def known_amax(self) -> tuple[Mapping[str, float], ...]:
        """The largest magnitudes that were measured, or that a calibration cache gives."""
        return self.amax

    # Layers stay in FP16 in an INT8 build where the user, the model or the accuracy gate says so,
    # and where values of different range meet (``float_tail`` and ``uneven_joins`` of
    # :mod:`edgekit.dla.precision`).

    def fp16_layers(
        self, network: Network, *, strict: bool = False, gate: bool = True
    ) -> frozenset[str]:
        """Returns the layers of a network that stay in FP16.

        Args:
            network: The model's as it came, or the rewritten one.
            strict: Whether every glob of the configuration must match a layer of it.
            gate: Whether those of the accuracy gate are among them.

        Raises:
            UsageError: One does not.
        """
        if self.file.precision != "int8":
            return frozenset()
        chosen = self._fp16_chosen(network, strict=strict, gate=gate)
        joined = (name for join in self._joins(network) for name in join.layers)
        return chosen.union(self._fp16_tail(network), joined)

    def _fp16_tail(self, network: Network) -> frozenset[str]:
        """Returns the layers at the network's end that INT8 is of no use to.

        The layers of a Q/DQ model run in what its nodes say.
        """
        return frozenset() if self.translated else float_tail(network, self.known_amax)

    def _joins(self, network: Network) -> tuple[Join, ...]:
        """Returns the concatenations of tensors that must not share a scale, likewise."""
        return () if self.translated else uneven_joins(network, self.known_amax)

    def _fp16_chosen(self, network: Network, *, strict: bool, gate: bool) -> frozenset[str]:
        globs, names = self._fp16_requested(gate)
        if not (globs or names):
            return frozenset()
        from edgekit.reference.proposal import layers_named

        where = "calibration.fp16_layers"
        return layers_named(network, globs, where=where, strict=strict) | layers_named(
            network, names, strict=False
        )

    def fp16_choice(self, *, gate: bool = True) -> list[Any]:
        """Returns what identifies the choice of FP16 layers; ``gate`` as for ``fp16_layers``."""
        globs, names = self._fp16_requested(gate)
        return [*globs, sorted(names)]

    def _fp16_requested(self, gate: bool) -> tuple[list[str], list[str]]:
        """Returns the configuration's globs; and names of nodes and layers."""
        nodes = () if self.translated is None else self.translated.fp16_nodes
        return self.file.calibration.fp16_layers, [*nodes, *(self.fp16_by_gate if gate else ())]

    def fp16_notes(self, network: Network, plan: Plan) -> list[str]:
        """Says which layers of a plan were kept in FP16, why, and where they run."""
        if self.file.precision != "int8":
            return []
        notes = []
        chosen = self._fp16_chosen(network, strict=True, gate=True)
        gate = self.file.accuracy
        if chosen:
            why = (
                f" ({gate.metric} of at least {gate.min:g})"
                if self.fp16_by_gate and gate.min
                else ""
            )
            order = [layer.name for layer in network.layers if layer.name in chosen]
            notes.append(f"kept in FP16: {listed(order)}{why}")
        placed = {layer.name: layer.device for layer in plan.layers}

        def where(names: Iterable[str]) -> str:
            order = [layer.name for layer in network.layers if layer.name in names]
            devices = listed(sorted({placed[name] for name in order}))
            return f"in FP16 on {devices}: {listed(order, _LAYERS_SHOWN)}"

        tail = self._fp16_tail(network)
        for join in self._joins(network):
            if not tail.issuperset(join.layers):
                low, high = join.ranges
                notes.append(
                    f"{where(set(join.layers))}, for {join.layer!r} joins {join.narrow!r} (up to "
                    f"{low:.3g}) with {join.wide!r} (up to {high:.3g}), and one INT8 scale takes "
                    f"{join.bits:.1f} of the former's 8 bits"
                )
        if tail:
            known = "" if self.known_amax else ", by the network's structure: no range is known"
            notes.append(
                f"{where(tail)}, the network's end, where values of different range meet and INT8 "
                f"saves nothing{known}"
            )
        return notes

    @cached_property
    def source(self) -> Model:
        """The model as the user named it, or what a Q/DQ model was translated to."""
        return self.named if self.translated is None else self.translated.model

    @cached_property
    def translated(self) -> Translated | None:
        """What a Q/DQ model was translated to.

        Where TensorRT reads Q/DQ nodes on the DLA it is what the plan and the reference build go
        by; the board builds from the Q/DQ model itself.
        """
        if is_typed(self.target, self.tensorrt, self.file.precision):
            found, note = typed_translation(self.named)
        else:
            found, note = translation(self.named, self.target, self.tensorrt, self.file.precision)
        self.notes += [note] if note else []
        return found

    @cached_property
    def lowers(self) -> bool:
        """Whether the network gets Q/DQ nodes before it is built: strongly typed INT8."""
        if not is_typed(self.target, self.tensorrt, self.file.precision) or has_qdq(self.source):
            return False
        if self.translated is None:
            self.notes.append(typed_note(self.tensorrt))
        return True

    @cached_property
    def named(self) -> Model:
        """The model as the user named it."""
        section = self.file.model
        if section.onnx is not None:
            path = self.config.resolve(section.onnx)
            loaded = load(
                path, shapes=section.shapes, batch=section.batch, outputs=section.outputs or None
            )
            self.notes += loaded.notes
            return loaded
        key = self.cache.key("builtin", section.builtin, section.seed, section.outputs)
        record = None if self.force else self.cache.get("builtin", key)
        model = load_model(self.cache, record) if record else None
        if model is None:
            self.update(0, 0, "filling the built-in network")
            model = builtin(section.builtin, section.seed)
            if section.outputs:
                model = canonical(
                    model.proto, None, outputs=section.outputs, source=model.source,
                    weights=model.weights,
                )  # fmt: skip
            record = store_model(self.cache, model)
            self.cache.put("builtin", key, record)
            # from here on the weights are memory maps of the cache, not memory
            model = load_model(self.cache, record) or model
        # its sizes are fixed: others, or an input that it lacks, are reported as for a file
        input_shapes(model.proto.graph.input, section.shapes, section.batch)
        return model
