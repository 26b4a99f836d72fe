"""The plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

from edgekit._listed import counted
from edgekit.errors import GateError
from edgekit.pipeline._progress import found_words
from edgekit.pipeline._stored import identity
from edgekit.pipeline._typed import Typed

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Model, Network
    from edgekit.pipeline._tied import Binding
    from edgekit.placement import Ask, Options, Plan
    from edgekit.quantize import Ranges, Scales

__all__ = ["Placing"]


class Placing(Typed):
    """From the rewritten network and its scales to its placement.

    Attributes:
        explains: Whether an impossible plan is told with the constraints that conflict, which
            takes further placements.
    """

    explains = True

    def _better_without(self, model: Model) -> str:
        if self.file.placement.profile is not None:
            return ""  # measured times are of one of the two networks only
        from edgekit.pipeline._worth import better_without

        self.update(0, 0, "planning with and without the rewrites")
        before, after = (self._asked(*self._judged(item)) for item in (self.source, model))
        return better_without(before, after)

    @property
    def _wishes(self) -> list[Any]:
        # what the accuracy gate keeps in FP16 is found when the rewrites are settled
        fp16 = self.fp16_wishes(gate=False)
        placement = self.file.placement.model_dump()
        return [self.file.power_mode, self.file.build.mode, placement, fp16]

    @cached_property
    def options(self) -> Options:
        """What the configuration asks of the placement."""
        from edgekit.placement import Options, Pin

        section = self.file.placement
        bounds = section.bounds.model_dump(exclude_none=True)
        pools = None if section.pools == "auto" else section.pools.model_dump(exclude_none=True)
        return Options(
            objective=section.objective,
            bounds=bounds,
            dla_cores=self._cores,
            gpu=section.gpu and self.file.build.mode != "standalone",
            pins=tuple(Pin(pin.layers, pin.device) for pin in section.pin),
            max_loadables=section.max_loadables,
            max_transitions=section.max_transitions,
            min_loadable_layers=section.min_loadable_layers,
            pools=pools,
            profile=self._profile,
            cores_why=self._cores_why,
        )

    @cached_property
    def _cores(self) -> tuple[int, ...]:
        """The DLA cores to plan with; a note says when they are fewer than asked for."""
        cores = self._asked_cores
        if not self._cores_why:
            return cores
        self.notes.append(
            f"a hybrid engine drives one DLA core: only core {cores[0]} is used "
            "(build.mode: split uses several)"
        )
        return cores[:1]

    @property
    def _asked_cores(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.file.placement.dla_cores))

    @property
    def _cores_why(self) -> str:
        """Why only the first of the cores that are asked for is used, if so."""
        section, cores = self.file.placement, self._asked_cores
        there = all(core < self.target.dla.cores for core in cores)
        one = self.file.build.mode == "hybrid" and section.objective != "throughput"
        if not (one and there and cores[1:]):
            return ""
        return f"a hybrid engine drives one DLA core, here {cores[0]}; build.mode: split has all"

    @cached_property
    def _profile(self) -> Any:
        """The measured times that the configuration names, or None."""
        path = self.file.placement.profile
        if path is None:
            return None
        from edgekit.placement import read_profile

        self.update(0, 0, "reading the profile")
        info = self.file.placement.layer_info
        return read_profile(
            self.config.resolve(path), layer_info=info and self.config.resolve(info)
        )

    @cached_property
    def ask(self) -> Ask:
        """All that the placement needs, to ask it once or with changes."""
        return self._asked(self.network, self.judgement)

    def _asked(self, network: Network, judgement: Judgement) -> Ask:
        from edgekit.placement import Ask

        # a board without a DLA judges nothing, and has its layers in FP16 all the same
        options = replace(self.options, fp16_layers=self.fp16_layers(network))
        return Ask(
            network, judgement, self.target, self.file.precision, self.file.power_mode, options
        )

    @cached_property
    def plan(self) -> Plan:
        """The placement."""
        from edgekit.placement import explain_conflict, explain_gpu_only, plan_from_json

        found: list[Plan] = []
        self.fp16_layers(self.network, strict=True)

        def compute() -> dict[str, Any]:
            if self.file.precision == "int8":
                self.check_weights()
            try:
                plan = self.ask.plan(
                    progress=lambda a, b: self.update(a, b, f"placing{self.with_kept}"),
                    told=lambda value, bound: self.update(
                        0,
                        0,
                        f"placing{self.with_kept}: {found_words(value, bound, self._in_units)}",
                    ),
                )
            except GateError as error:
                if not self.explains:
                    raise
                tell = "looking for the constraints that conflict"
                explain_conflict(self.ask, error, partial(self._looking, tell))
                raise
            if self.explains:
                tell = "looking for what keeps the DLA out"
                plan = explain_gpu_only(self.ask, plan, partial(self._looking, tell))
            found.append(plan)
            return plan.to_json()

        document = self.stored("plan", compute, *self.plan_identity)
        plan = found[0] if found else plan_from_json(document)
        # they are noted whatever was known before the plan was computed
        _ = self._cores, self.known_scales
        more = (*self.fp16_notes(self.network, plan), *self.layers_notes)
        return replace(plan, notes=(*plan.notes, *more))

    @cached_property
    def plan_scales(self) -> Scales | None:
        """The INT8 scales of what is built: those layers share one that the plan has on a DLA."""
        # they may show that layers have no INT8, which the plan follows
        return None if self.scales is None else self.scales_of(self.plan)

    def scales_of(self, plan: Plan) -> Scales | None:
        """Returns the INT8 scales for a plan, made equal where its layers ask for it."""
        return None if self.scales is None else self._tied(self.binding_of(plan))

    def binding_of(self, plan: Plan) -> Binding:
        """Returns what binds scales in a plan: the layers that it has in INT8 on a DLA."""
        layers = [layer for share in plan.plans for layer in share.layers]
        int8 = [layer for layer in layers if layer.precision == "int8"]
        on_dla = {layer.name for layer in int8 if layer.device != "GPU"}
        floats = {layer.name for layer in layers} - {layer.name for layer in int8}
        return {"dla_layers": on_dla, "fp16_layers": floats}

    @cached_property
    def scales(self) -> Scales | None:
        """INT8 scales, after what follows from the ranges for the layers' precision."""
        if self.file.precision == "int8" and self.known is None:
            self.measured()
        return super().scales

    def measured(self) -> Ranges:
        """Returns the measured ranges, with what follows for the plan whatever the method is.

        Where no scale suits a tensor, or where one would be shared by tensors of much different
        range, the layers that need it are judged in FP16.
        """
        self.check_weights()
        ranges = self.ranges
        before = self.fp16_layers(self.network)
        self.amax = tuple(
            {name: value for name, value in amax.items() if name not in ranges.masked}
            for amax in ranges.amax.values()
        )
        if self.fp16_layers(self.network) != before:
            self._judge_again()
        unscaled: frozenset[str] = frozenset()
        scales = self.scales_by(ranges, "minmax")
        if scales.missing:
            from edgekit.quantize import needs, without_too

            without = without_too(self.network, scales.missing, scales.scales)
            able = self._binding["dla_layers"]
            lacks = needs(self.network, scales.scales, on_dla=able, without=without).lacks
            unscaled = frozenset(lack.tensor for lack in lacks)
        if unscaled != self.unscaled:
            self.unscaled = unscaled
            self._judge_again()
        return ranges

    def _judge_again(self) -> None:
        for name in ("_seen", "ask", "plan"):
            self.__dict__.pop(name, None)

    @property
    def method(self) -> str:
        """The configuration's calibration method, or the one that was chosen."""
        return str(self.choice["method"]) if self.choice else self.file.calibration.method

    @cached_property
    def choice(self) -> dict[str, Any] | None:
        """What the calibration methods give, measured; None where the method is given.

        It stays when layers are kept in FP16 later, and for variants of this work.
        """
        if not self.chooses:
            return None
        from edgekit.pipeline._method import choice_note, choose_method, plan_to_try

        self.measured()
        plan = plan_to_try(self)
        placed = [[p.name, p.device, p.precision, p.segment] for p in plan.layers]
        found: dict[str, Any] = self.stored(
            "method", lambda: choose_method(self, plan), self.model_digest, self.inputs_identity,
            placed, self.fp16_wishes(gate=False), self.tensorrt,
        )  # fmt: skip
        self.notes.append(choice_note(found))
        return found

    def keep(self, layers: Iterable[str]) -> None:
        """Keeps further layers in FP16; what follows from the plan is computed anew."""
        self.kept = tuple(dict.fromkeys((*self.kept, *layers)))
        known = "_seen scales ask plan plan_scales build_key artefacts accuracy"
        for name in known.split():
            self.__dict__.pop(name, None)

    def take(self, plan: Plan, kept: Iterable[str] = ()) -> None:
        """Takes a placement that somebody else chose, and layers that stay in FP16 for it."""
        self.keep(kept)
        self.__dict__["plan"] = plan

    @property
    def with_kept(self) -> str:
        """Tells work with layers that are kept in FP16 from the same work before."""
        return f" with {counted(len(self.kept), 'layer')} in FP16" if self.kept else ""

    def _in_units(self, value: float) -> str:
        from edgekit.placement._ask import UNITS
        from edgekit.report._text import energy, microseconds, significant

        unit = UNITS[self.options.objective]
        if unit == "qps":
            return f"{significant(value)} per second"
        return (energy if unit == "uj" else microseconds)(value)

    def _looking(self, what: str, done: int, total: int) -> None:
        self.update(done, total, what)

    @property
    def plan_identity(self) -> tuple[Any, ...]:
        """What a plan depends on: the model, the board, every wish and the profile's content."""
        section = self.file.placement
        files = [identity(self.config.resolve(path)) if path else None
                 for path in (section.profile, section.layer_info)]  # fmt: skip
        return (
            self.model_digest, self.file.target, self.file.power_mode, self.file.build.mode,
            section.model_dump(), files, self.fp16_wishes(), sorted(self.unscaled),
            sorted(self.fp16_layers(self.network)), *self._rules,
        )  # fmt: skip

    def variant(self, **changes: Any) -> Self:
        """Returns the same work with other keys of the configuration; what it can, it shares."""
        from edgekit.config import open_config

        other = type(self)(open_config(self.config, **changes), self.cache, force=self.force)
        other.update, other.weighs = self.update, self.weighs
        mine, its = self.file, other.file
        shared = []
        if mine.model == its.model:
            shared.append("named")
            if (other.file.target, other.tensorrt, its.precision) == (
                self.file.target, self.tensorrt, mine.precision,
            ):  # fmt: skip
                shared += ["source", "translated"]
            keys = ("target", "precision", "tensorrt", "calibration", "rewrite")
            if not self.kept and all(getattr(mine, key) == getattr(its, key) for key in keys):
                # whether the rewrites are used follows from the wishes, which may differ
                shared += ["_found", "_rewritten", "_seen", "choice"]
                other.unscaled, other.amax = self.unscaled, self.amax
        old, new = mine.placement, its.placement
        if (old.profile, old.layer_info) == (new.profile, new.layer_info):
            shared.append("_profile")
        for name in shared:
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other
