"""What mending each broken rule would be worth, and whether it is worth a word."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgekit.dla import candidates, load_rules, macs_fraction, within_memory
from edgekit.placement._costs_data import noise

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Network
    from edgekit.placement._forecast import Clock

__all__ = ["LATENCY", "LEGALITY", "Fix", "fixes", "saved_us", "together"]

DIGITS = 6
#: What a fix is offered for: a shorter predicted latency, or that layers can run on the DLA at all.
LATENCY, LEGALITY = "latency", "legality"
# of the multiply-accumulates: less more than that is not worth another loadable
_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class Fix:
    """What would change if the layers that break the same rules could run on the DLA.

    Attributes:
        rules: The rules that all of the layers break.
        layers: The layers, in graph order.
        fix: What to do, rule by rule.
        candidates: Candidate loadables afterwards.
        loadables: Those of them that are kept.
        dla_layers: Layers on the DLA afterwards.
        dla_macs_fraction: Their share of the multiply-accumulates.
        auto_us: Predicted latency afterwards; None without a prediction for the board.
        gain_us: Predicted microseconds saved, against the automatic placement or the GPU alone,
            whichever is faster now; None where that is no more than the prediction's noise.
        offer: ``LATENCY`` where it saves that; ``LEGALITY`` where more layers would be on the DLA,
            in no more loadables or with more of the arithmetic, and the automatic placement no
            slower than now by more than the prediction's noise; empty where it does neither.
    """

    rules: tuple[str, ...]
    layers: tuple[str, ...]
    fix: tuple[str, ...]
    candidates: int
    loadables: int
    dla_layers: int
    dla_macs_fraction: float
    auto_us: float | None
    gain_us: float | None
    offer: str

    def to_json(self) -> dict[str, Any]:
        """Returns an entry of ``fixes`` in ``edgekit.check/1``."""
        return {
            "rules": list(self.rules), "layers": list(self.layers), "fix": list(self.fix),
            "candidates": self.candidates, "loadables": self.loadables,
            "dla_layers": self.dla_layers, "dla_macs_fraction": self.dla_macs_fraction,
            "auto_us": self.auto_us, "gain_us": self.gain_us,
            "offer": self.offer,
        }  # fmt: skip


def fixes(network: Network, judgement: Judgement, clock: Clock | None) -> tuple[Fix, ...]:
    """Returns what mending each set of broken rules is worth, the best first.

    Layers count together when they break the same rules, because mending one of two is no help.
    A layer that runs on the DLA after all is taken to cost there what its size says. Rules of the
    whole network (no DLA, FP32, a TensorRT without DLA) and rules without a way out are left out.

    Args:
        network: The layer graph.
        judgement: Its verdicts.
        clock: What predicts times; without it fixes are ranked by loadables and layers.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    ways: dict[tuple[str, ...], dict[str, None]] = {}
    known = load_rules().rules
    for layer in network.layers:
        verdict = judgement.verdicts[layer.name]
        if verdict.placeable:
            continue
        reasons = {reason.rule: reason for reason in verdict.reasons}
        rules = tuple(sorted(reasons))
        hopeless = any(known[r].network or not reasons[r].mends for r in rules)
        if hopeless or not all(reason.fix for reason in reasons.values()):
            continue
        groups.setdefault(rules, []).append(layer.name)
        ways.setdefault(rules, {}).update(dict.fromkeys(reasons[rule].fix for rule in rules))
    found = [
        _suppose(network, judgement, clock, rules, names, tuple(ways[rules]))
        for rules, names in groups.items()
    ]
    return tuple(sorted(found, key=_worth))


def together(
    network: Network,
    judgement: Judgement,
    clock: Clock | None,
    chosen: Sequence[Fix],
) -> Fix:
    """Returns what several of ``fixes`` are worth at once; they can be worth more than their sum.

    Args:
        network: The layer graph.
        judgement: Its verdicts.
        clock: What predicts times, or None.
        chosen: The fixes.
    """
    rules = dict.fromkeys(rule for fix in chosen for rule in fix.rules)
    wanted = {name for fix in chosen for name in fix.layers}
    names = [layer.name for layer in network.layers if layer.name in wanted]
    ways = dict.fromkeys(way for fix in chosen for way in fix.fix)
    return _suppose(network, judgement, clock, tuple(rules), names, tuple(ways))


def _suppose(
    network: Network,
    judgement: Judgement,
    clock: Clock | None,
    rules: tuple[str, ...],
    names: Sequence[str],
    ways: tuple[str, ...],
) -> Fix:
    """Returns what changes when ``names`` can run on the DLA as well."""
    more = frozenset(names)
    ok = {name: verdict.ok or name in more for name, verdict in judgement.verdicts.items()}
    mended = _four_dimensions(network, more)
    given = judgement.precisions or judgement.precision
    groups = candidates(mended, ok, judgement.slots, given)
    if clock is not None:
        groups = within_memory(mended, groups, clock.target, given)
    names_on_dla = {name for group in groups if group.kept for name in group.layers}
    on_dla = [layer for layer in network.layers if layer.name in names_on_dla]
    after, gain, slower = None, None, False
    if clock is not None:
        after = clock.auto_us(groups)
        # no published time has a recurrence
        guess = any(layer.params.get("steps") for layer in network.layers if layer.name in more)
        gain = saved_us(clock, judgement, after, extrapolated=guess)
        slower = after > clock.auto_us(judgement.candidates) * (1 + noise(extrapolated=guess))
    kept, share = sum(group.kept for group in groups), macs_fraction(network, on_dla)
    now = [layer for layer in network.layers if judgement.placed.get(layer.name) == "DLA"]
    before = max(1, sum(group.kept for group in judgement.candidates))
    more_work = share >= macs_fraction(network, now) + _SHARE
    offer = LATENCY if gain is not None else ""
    if not (offer or slower) and len(on_dla) > len(now) and (kept <= before or more_work):
        offer = LEGALITY
    return Fix(rules, tuple(names), ways, len(groups), kept, len(on_dla), share, after, gain, offer)


def saved_us(
    clock: Clock, judgement: Judgement, after_us: float, *, extrapolated: bool = False
) -> float | None:
    """Returns what a latency saves against the fastest without it; None within the noise.

    Args:
        clock: What predicts times.
        judgement: The verdicts as they are.
        after_us: The latency.
        extrapolated: Whether no published time supports it.
    """
    now = min(clock.auto_us(judgement.candidates), clock.gpu_only_us)
    if after_us >= now * (1 - noise(extrapolated=extrapolated)):
        return None
    return round(now - after_us, DIGITS)


def _four_dimensions(network: Network, names: Collection[str]) -> Network:
    """Returns the network with the mended layers' outputs as N, C, 1, 1.

    The DLA's batch is what stands before the last three dimensions; a mended layer has the
    network's, or it would be a loadable of its own.
    """
    tensors = dict(network.tensors)
    for layer in network.layers:
        if layer.name in names:
            for name in layer.outputs:
                tensor = tensors[name]
                batch = tensor.shape[0] if tensor.shape else 1
                rest = tensor.elements // batch if batch else 0
                tensors[name] = replace(tensor, shape=(batch, rest, 1, 1))
    return replace(network, tensors=tensors)


def _worth(fix: Fix) -> tuple[int, float, int, int, tuple[str, ...]]:
    order = (LATENCY, LEGALITY, "").index(fix.offer)
    return order, fix.auto_us or 0.0, fix.candidates, -fix.dla_layers, fix.rules
