"""A network with all inputs of its placement, and the errors of impossible requests: the checked
user options, the limits of a loadable, and the parts that the GPU runs fused unless a DLA breaks
the fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property

from edgekit.dla.loadables import loadable_batch
from edgekit.dla.memory import (
    BrokenLimit,
    find_broken_limits,
    loadable_sizes,
    pool_limits,
    predict_need,
    split_broken_limits,
    weight_bytes,
)
from edgekit.dla.verdicts import Judgement, MemoryNeed
from edgekit.error_document import StatedError, UnplaceableLayer, VerdictReason
from edgekit.errors import GateError, UsageError
from edgekit.network.layer_names import layers_matching, unmatched_error
from edgekit.network.model import Network
from edgekit.placement.costs.handover import Handover
from edgekit.placement.costs.model import CostModel
from edgekit.placement.costs.regions import FusedRegions, find_regions
from edgekit.placement.kernels import LayerKernel
from edgekit.placement.plan import OBJECTIVES, Options
from edgekit.solver.problem import MemoryPool
from edgekit.targets.board import Target
from edgekit.text import counted, listed
from edgekit_device.protocol.fields import dla_core

_SHOWN = 5
BOUNDS = ("latency_us", "energy_uj", "gpu_us", "period_us")
POOLS = ("managed_sram", "local_dram", "global_dram")
DEVICES = ("GPU", "DLA", "DLA0", "DLA1")


class PinImpossible(GateError):
    """A pin's device is impossible for a layer; ``why`` is the reason."""

    default_code = "plan.infeasible"

    def __init__(self, layer: str, device: str, why: str) -> None:
        super().__init__(
            f"pinned to {device}, but {why}",
            where=layer,
            hint="remove the pin or fix the reason",
        )
        self.why = why


class PlanImpossible(GateError):
    """A standalone plan was requested, and some layers cannot run on a DLA.

    ``layers`` maps their names to the reasons; the error's document has them, too.
    """

    default_code = "plan.impossible"

    def __init__(
        self, message: str, layers: Mapping[str, tuple[VerdictReason, ...]], hint: str
    ) -> None:
        super().__init__(message, hint=hint)
        self.layers = layers

    def stated(self) -> StatedError:
        """Adds ``layers``: name and reasons of each layer that does not fit."""
        layers = tuple(UnplaceableLayer(name, found) for name, found in self.layers.items())
        return replace(super().stated(), layers=layers)


class LoadableCapacity:
    """The limits of a loadable on a board, and its memory.

    For a pool without a user limit the rule of ``edgekit check`` applies: layers that certainly
    exceed a limit do not fit; if only the size observed in builds is too large, the limit is
    disputed and keeps no layer off the DLA. A user's pool limit is exact to the byte. Managed SRAM
    is a cache: a loadable uses its given size.
    """

    def __init__(
        self, network: Network, model: CostModel, options: Options, precisions: dict[str, str]
    ) -> None:
        self._network = network
        self._model = model
        self._target = model.target
        self._precisions = precisions
        self._given = dict(options.pools or {})
        self._limits = replace(pool_limits(model.target), **self._given)
        self.batch = {layer.name: loadable_batch(layer, network) for layer in network.layers}
        self._fits_known: dict[frozenset[int], bool] = {}

    def without_limits(self) -> LoadableCapacity:
        """Returns the capacity without limits, for loadables of a given placement."""
        return _Unlimited(self._network, self._model, Options(), self._precisions)

    def need(self, layers: Sequence[str]) -> MemoryNeed:
        """Returns the pools of a loadable of these layers."""
        found = predict_need(self._network, layers, self._target, self._precisions)
        sram = self._given.get("managed_sram")
        if sram is None or sram >= found.managed_sram:
            return found
        # TensorRT's pool sizes are powers of two; a smaller size is rounded down
        return replace(found, managed_sram=_power_below(sram))

    def holds(self, layers: Sequence[str]) -> bool:
        """Returns True if these layers can be one loadable."""
        # TensorRT cuts a subgraph where the batch changes ("mismatched batch size")
        if len({self.batch[name] for name in layers}) > 1:
            return False
        sizes = loadable_sizes(self._network, layers, self._target, self._precisions)
        over = find_broken_limits(sizes, self._limits)
        return not any(limit.certain or limit.pool in self._given for limit in over)

    def refusal(self, layers: Sequence[str]) -> VerdictReason | None:
        """Returns the memory limit that prevents layers from being one loadable, or None."""
        broken, disputed = self._split_limits(layers)
        broken += tuple(limit for limit in disputed if limit.pool in self._given)
        if not broken:
            return None
        first = broken[0]
        return VerdictReason(
            first.rule, first.text, str(first.need), str(first.limit), first.source, first.fix
        )

    def doubt(self, layers: Sequence[str]) -> str:
        """Returns the disputed limits of these layers as one loadable; "" if there are none."""
        _, disputed = self._split_limits(layers)
        return "; ".join(f"{limit.text} ({limit.rule}): {limit.fix}" for limit in disputed)

    def _split_limits(
        self, layers: Sequence[str]
    ) -> tuple[tuple[BrokenLimit, ...], tuple[BrokenLimit, ...]]:
        return split_broken_limits(
            self._network, layers, self._target, self._precisions, self._limits
        )

    def fits(
        self, kernels: Sequence[LayerKernel], able: Sequence[bool]
    ) -> Callable[[frozenset[int]], bool] | None:
        """Returns a predicate: True if kernels can be one loadable; None if all ``able`` can."""
        names = [[self._network.layers[i].name for i in kernel.layers] for kernel in kernels]
        everything = [name for own, ok in zip(names, able, strict=True) if ok for name in own]
        if not everything or self.holds(everything):
            return None
        known = self._fits_known

        # the solver asks for the same sets again and again
        def cached_holds(nodes: frozenset[int]) -> bool:
            if nodes not in known:
                known[nodes] = self.holds([name for v in sorted(nodes) for name in names[v]])
            return known[nodes]

        return cached_holds

    def pools(self, kernels: Sequence[LayerKernel], able: Sequence[bool]) -> tuple[MemoryPool, ...]:
        """Returns the pool of weights, whose sizes add up, if its limit can bind."""
        given = self._given.get("global_dram")
        # Weights add up over layers, so the solver can count them. The other pools need a test
        # (`fits`).
        limit = self._limits.global_dram if given is None else _power_below(given)
        generation = self._target.dla.layouts
        needs = tuple(
            float(
                weight_bytes(
                    self._network,
                    [self._network.layers[i] for i in kernel.layers],
                    self._precisions,
                    generation,
                    documented=given is None,
                )
            )
            if ok
            else 0.0
            for kernel, ok in zip(kernels, able, strict=True)
        )
        return (MemoryPool("global_dram", float(limit), needs),) if sum(needs) > limit else ()


class _Unlimited(LoadableCapacity):
    def fits(self, kernels: Sequence[LayerKernel], able: Sequence[bool]) -> None:
        """Returns None: any kernels can be one loadable."""

    def pools(self, kernels: Sequence[LayerKernel], able: Sequence[bool]) -> tuple[MemoryPool, ...]:
        """Returns no pools."""
        return ()


def _power_below(size: int) -> int:
    return 1 << (size.bit_length() - 1) if size > 0 else 0


@dataclass(frozen=True)
class PlacementInputs:
    """A network with all inputs of its placement.

    ``able`` is True by layer if a DLA core may run it (verdict and precision); ``cores`` are the
    DLA cores in use, ascending; ``handover`` gives the costs of borders, ``capacity`` the limits of
    a loadable.
    """

    network: Network
    judgement: Judgement
    model: CostModel
    options: Options
    cores: tuple[int, ...]
    able: Mapping[str, bool]
    pins: Mapping[str, str]
    handover: Handover
    capacity: LoadableCapacity

    @property
    def devices(self) -> tuple[str, ...]:
        """Device names in the problem's order."""
        return ("GPU", *(f"DLA{core}" for core in self.cores))

    @property
    def hybrid(self) -> bool:
        """True if plans can be hybrid engines, whose GPU layers wait for a busy GPU."""
        options = self.options
        # with no device change allowed, an engine is on one device
        return options.gpu and not options.split and options.max_transitions != 0

    @cached_property
    def regions(self) -> FusedRegions:
        """The parts that the GPU runs fused."""
        able = {name: verdict.placeable for name, verdict in self.judgement.verdicts.items()}
        return find_regions(self.model, self.network, able)


def make_inputs(
    network: Network, judgement: Judgement, model: CostModel, options: Options
) -> PlacementInputs:
    """Returns the inputs of a request; raises GateError if a pin's device is impossible."""
    cores = usable_cores(options, model.target, model.precision)
    able = {name: verdict.placeable and bool(cores) for name, verdict in judgement.verdicts.items()}
    pins = resolve_pins(network, options)
    for name, device in pins.items():
        if device == "GPU":
            if not options.gpu:
                raise PinImpossible(name, device, "the plan is standalone, without the GPU")
        elif not able[name]:
            reasons = judgement.verdicts[name].reasons
            why = reasons[0].message if reasons and cores else "no DLA core can be used"
            raise PinImpossible(name, device, why)
        elif device != "DLA" and dla_core(device) not in cores:
            why = options.cores_why or f"only DLA core {cores[0]} is in use (dla_cores)"
            raise PinImpossible(name, device, why)
    precisions = {layer.name: model.layer_precision(layer, "DLA0") for layer in network.layers}
    verdicts = {name: verdict.placeable for name, verdict in judgement.verdicts.items()}
    fused = [part.layers for part in find_regions(model, network, verdicts).parts]
    request = PlacementInputs(
        network,
        judgement,
        model,
        options,
        cores,
        able,
        pins,
        Handover(network, model, fused),
        LoadableCapacity(network, model, options, precisions),
    )
    if not options.gpu:
        _require_standalone(request)
    return request


def _require_standalone(request: PlacementInputs) -> None:
    verdicts = request.judgement.verdicts
    unable = {x.name: verdicts[x.name].reasons for x in request.network.layers}
    unable = {name: reasons for name, reasons in unable.items() if not request.able[name]}
    if not unable:
        return
    hint = "allow the GPU"
    if not request.cores:
        why = "FP32 does not run on a DLA" if request.model.precision == "fp32" else "there is none"
        message = f"a standalone plan needs a DLA core, but {why}"
    else:
        message = _unable_text(request, unable)
        hint += ", or cut the network there with --outputs; `edgekit explain RULE` says why"
    raise PlanImpossible(message, unable, hint)


def _unable_text(request: PlacementInputs, unable: Mapping[str, tuple[VerdictReason, ...]]) -> str:
    few = listed((_broken_rules_text(name, reasons) for name, reasons in unable.items()), _SHOWN)
    count = counted(len(request.network.layers), "layer")
    return f"{len(unable)} of {count} cannot run on the DLA: {few}"


def require_memory(request: PlacementInputs, too_large: Mapping[str, VerdictReason]) -> None:
    """Refuses requests for layers on a DLA whose memory cannot hold them.

    Args:
        request: The request, with its pins and options.
        too_large: By layer, the limit that its kernel breaks as a loadable of its own.

    Raises:
        GateError: "plan.infeasible" for a pin, "plan.impossible" without the GPU.
    """
    for name, reason in too_large.items():
        if (device := request.pins.get(name, "GPU")) != "GPU":
            why = f"{reason.message} ({reason.rule}): {reason.fix}"
            raise PinImpossible(name, device, why)
    if too_large and not request.options.gpu:
        unable = {name: (reason,) for name, reason in too_large.items()}
        first = next(iter(too_large.values()))
        message = f"{_unable_text(request, unable)}; the first one is too large: {first.message}"
        raise PlanImpossible(message, unable, f"{first.fix}; or allow the GPU")


def _broken_rules_text(name: str, reasons: tuple[VerdictReason, ...]) -> str:
    """Returns a layer with its broken rules; without rules if only its precision is the reason."""
    rules = ", ".join(dict.fromkeys(reason.rule for reason in reasons))
    return f"{name} ({rules})" if rules else name


def check_options(options: Options, target: Target) -> None:
    """Raises UsageError for invalid objectives, bounds, cores or pinned devices."""
    check_objective(options.objective)
    for name, limit in options.bounds.items():
        _require_known("bound", name, BOUNDS)
        # written so that NaN is refused, too
        if not limit > 0:
            raise UsageError(f"bound {name} is {limit}, it must be above 0", code="plan.bound")
    for pin in options.pins:
        _require_known("device", pin.device, DEVICES)
    if options.max_loadables < 0:
        raise UsageError("max_loadables must not be negative", code="plan.max_loadables")
    if options.max_transitions is not None and options.max_transitions < 0:
        raise UsageError("max_transitions must not be negative", code="plan.max_transitions")
    # as above: NaN is refused
    if options.rate_hz is not None and not options.rate_hz > 0:
        raise UsageError(f"rate_hz is {options.rate_hz}, it must be above 0", code="plan.rate")
    if options.min_loadable_layers < 1:
        raise UsageError("min_loadable_layers must be 1 or more", code="plan.min_loadable_layers")
    for name, size in (options.pools or {}).items():
        _require_known("pool", name, POOLS)
        if size < 0:
            raise UsageError(
                f"pool {name} is {size} bytes, it must not be negative", code="plan.pool"
            )
        sram = name == "managed_sram"
        most = target.dla.sram_bytes if sram else target.dram.bytes
        if target.dla.cores and size > most:
            raise UsageError(
                f"pool {name} is {size >> 20} MiB, but {target.name} has {most >> 20} MiB of "
                f"{'managed SRAM' if sram else 'memory'}",
                code="plan.pool",
                hint="managed SRAM is a cache: leave it out, and a loadable gets all SRAM"
                if sram
                else "no larger pool can help: use a smaller batch, input or precision",
            )
    missing = [core for core in options.dla_cores if core not in range(target.dla.cores)]
    if missing and target.dla.cores:
        raise UsageError(
            f"{target.name} has no DLA core {missing[0]}",
            code="plan.core",
            hint=f"its cores are {', '.join(map(str, range(target.dla.cores)))}",
        )


def check_objective(name: str) -> None:
    """Raises "plan.objective" for an unknown objective."""
    _require_known("objective", name, OBJECTIVES)


def _require_known(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        near = get_close_matches(name, known, 1)
        raise UsageError(
            f"unknown {what} {name!r}",
            code=f"plan.{what}",
            where=what,
            hint=f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}",
        )


def usable_cores(options: Options, target: Target, precision: str) -> tuple[int, ...]:
    """Returns the DLA cores to plan with; none on boards without a DLA and in FP32."""
    if precision == "fp32" or not options.max_loadables:
        return ()
    return tuple(sorted({core for core in options.dla_cores if core < target.dla.cores}))


def limit_to_one_engine(options: Options, target: Target) -> tuple[Options, list[str]]:
    """Returns the options of a plan that is one hybrid engine, and a note if it loses cores.

    Such an engine uses one DLA core; a mix of plans for throughput has several engines. Cores that
    the board does not have are kept, to be refused later.
    """
    cores = options.dla_cores
    there = all(core < target.dla.cores for core in cores)
    if options.objective == "throughput" or not there or not cores[1:]:
        return options, []
    why = f"a hybrid engine uses only one DLA core, {cores[0]}; use build.mode: split for"
    return replace(options, dla_cores=cores[:1], cores_why=f"{why} all"), [f"{why} several"]


def resolve_pins(network: Network, options: Options) -> dict[str, str]:
    """Returns the pinned device by layer name; a later pin wins over an earlier one."""
    found: dict[str, str] = {}
    for pin in options.pins:
        names = layers_matching(network, pin.layers)
        if not names:
            raise unmatched_error(pin.layers, network, what="pin", code="plan.pin")
        found.update(dict.fromkeys(names, pin.device))
    return found
