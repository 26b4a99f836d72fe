"""The check: a model judged for a board, what that costs by prediction, and what would help.

It needs no configuration and no cache, so ``check MODEL`` starts without them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.rewrite._collector import collector_held

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Model, Network
    from edgekit.placement import Clock, Fix, Forecast
    from edgekit.quantize import Translated
    from edgekit.targets import Target

__all__ = ["CheckResult", "check_model"]

SHOWN = 3  # as many fixes as a person wants to hear of at once


@dataclass(frozen=True, eq=False)
class CheckResult:
    """A checked model.

    Attributes:
        document: The ``edgekit.check/1`` document.
        model: The model.
        network: Its layers.
        judgement: Their verdicts.
        target: The board.
        forecast: Predicted times; None for a board without cost data.
    """

    document: dict[str, Any]
    model: Model
    network: Network
    judgement: Judgement
    target: Target
    forecast: Forecast | None


@collector_held()
def check_model(
    source: str | Path | Model,
    *,
    target: str | Target,
    precision: str = "int8",
    tensorrt: str | None = None,
    power_mode: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
    scales: str | Path | Mapping[str, float] | None = None,
    max_loadables: int | None = None,
    translated: Translated | None = None,
    lowers: bool = False,
    fp16_layers: Callable[[Network], Collection[str]] | None = None,
    tell: Callable[[str], object] = str,
) -> CheckResult:
    """Judges a model and predicts what TensorRT's automatic placement makes of it.

    Args:
        source: An ONNX file, or a loaded model.
        target: A board or its name.
        precision: "int8", "fp16" or "fp32".
        tensorrt: TensorRT release; the board's usual one when None.
        power_mode: For the prediction; the board's MAXN or default mode when None.
        shapes: Sizes by input, where a file leaves them open.
        batch: The batch where that is all that is open; 1 when None.
        outputs: Tensors to cut the network at.
        scales: INT8 scales by tensor or a calibration cache; layers that need one and have none
            are judged in FP16, and a warning says which. When None, every tensor has one.
        max_loadables: Loadables that a DLA core may hold, where that is fewer than it can.
        translated: What ``source`` is a translation of; else a Q/DQ model is translated here where
            TensorRT reads none on the DLA: the verdicts are of what would be built.
        lowers: Whether a plain model gets Q/DQ nodes where TensorRT needs them for INT8; it is
            refused otherwise.
        fp16_layers: Returns the layers of a network that an INT8 build keeps in FP16; None: those
            at its end that INT8 is of no use to (``float_tail``), as every INT8 build does.
        tell: Called with what is done from now on.

    Raises:
        ModelError: The file is no model that can be judged.
        UsageError: Unknown board, precision, power mode, or a malformed release.
        DataError: The calibration cache cannot be read.
    """
    from edgekit import network as networks
    from edgekit import targets
    from edgekit.dla import (
        check_document,
        float_tail,
        judge,
        release_warnings,
        without_slot,
    )
    from edgekit.pipeline._check_memory import (
        disputed_size,
        memory_keys,
        near_limit,
        too_large,
    )
    from edgekit.pipeline._translated import (
        judged_translation,
        translation,
        translation_note,
        translation_notes,
    )
    from edgekit.placement import clock_of, transitions

    board = targets.get(target) if isinstance(target, str) else target
    tell("reading the model")
    loaded = _loaded(source, shapes, batch, outputs)
    tell("finding the layers")
    if translated is None:
        translated, note = translation(loaded, board, tensorrt or board.tensorrt, precision)
        loaded = loaded if translated is None else translated.model
    else:
        note = translation_note(translated, tensorrt or board.tensorrt)
    network = networks.layers(loaded)
    keeps = fp16_layers or (float_tail if translated is None else lambda _: ())
    floats = keeps(network) if precision == "int8" else ()

    def judging(known: Mapping[str, float] | None) -> Judgement:
        return judge(
            network, board, precision=precision, tensorrt=tensorrt, scales=known,
            max_loadables=max_loadables, fp16_layers=floats, lowers=lowers,
        )  # fmt: skip

    tell(f"judging {counted(len(network.layers), 'layer')}")
    told = [*loaded.notes, *([note] if note else [])]
    told += _lowered(loaded, tensorrt or board.tensorrt) if lowers else []
    if translated is not None and scales is None:
        known = judged_translation(translated, loaded, network, judging)
        judgement = known.judgement
        told += translation_notes(translated, known)
    elif isinstance(scales, str | Path) and precision == "int8":
        from edgekit.pipeline._known_scales import judge_with
        from edgekit.quantize import load_cache

        cache = load_cache(scales)
        known = judge_with(cache, loaded, network, judging, name=str(scales), typed=lowers)
        judgement = known.judgement
        told += known.notes
    else:
        judgement = judging(scales if isinstance(scales, Mapping) and precision == "int8" else None)
    tell("predicting times")
    clock = clock_of(network, judgement, board, power_mode=power_mode)
    forecast = clock.forecast(judgement.candidates) if clock else None
    document = check_document(loaded.source, network, judgement, board)
    document["max_loadables"] = judgement.slots
    document["transitions"] = transitions(network, judgement)
    document["predicted"] = (
        {**forecast.to_json(), "layers": forecast.layer_us | dict.fromkeys(network.opaque)}
        if forecast
        else None
    )
    tell("looking for what would help")
    _help(document, loaded, network, judgement, board, clock)
    document |= memory_keys(network, judgement, board)
    lost = without_slot(judgement)
    document["without_slot"] = {**lost[0].to_json(), "layers": list(lost[1])} if lost else None
    document["sparsity"] = _sparsity(network, judgement, board, clock)
    document["warnings"] = [
        *release_warnings(network, judgement, board),
        *too_large(document["memory_refused"]),
        *disputed_size(document["memory"]),
        *([lost[0].message] if lost else ()),
        *near_limit(network, judgement),
        *_warnings(board, power_mode, forecast),
        *told,
    ]
    return CheckResult(document, loaded, network, judgement, board, forecast)


def _loaded(
    source: str | Path | Model,
    shapes: Mapping[str, Sequence[int]] | None,
    batch: int | None,
    outputs: Sequence[str] | None,
) -> Model:
    if not isinstance(source, str | Path):
        return source
    from edgekit.network import load

    return load(source, shapes=shapes, batch=batch, outputs=outputs or None)


def _lowered(model: Model, release: str) -> list[str]:
    from edgekit.pipeline._typed import lowered_note

    return lowered_note(model, release)


def _sparsity(
    network: Network, judgement: Judgement, target: Target, clock: Clock | None
) -> dict[str, Any]:
    """Returns ``sparsity``; ``pays`` is None without a prediction."""
    from edgekit.dla import sparsity
    from edgekit.placement import saved_us

    spared, pays = sparsity(network, judgement, target), None
    if clock is not None:
        after = clock.auto_us(judgement.candidates) - 1e6 * spared.seconds_saved
        pays = saved_us(clock, judgement, after) is not None
    return {**spared.to_json(), "pays": pays}


def _help(
    document: dict[str, Any],
    model: Model,
    network: Network,
    judgement: Judgement,
    target: Target,
    clock: Clock | None,
) -> None:
    """Adds ``fixes``, the best ones at once, and to the layers the rewrites that mend them."""
    from edgekit.placement import fixes, together

    every = fixes(network, judgement, clock)
    best = every[:SHOWN]
    combined = together(network, judgement, clock, best) if best[1:] else None
    matches: Mapping[str, str] = {}
    blamed = {name for fix in every for name in fix.layers}
    if every:
        from edgekit.rewrite import offers

        matches = offers(
            model, target, precision=judgement.precision, tensorrt=judgement.tensorrt,
            nodes={n for layer in network.layers if layer.name in blamed for n in layer.origin},
        )  # fmt: skip
    rewrites: dict[str, list[str]] = {}
    for layer in document["layers"]:
        names = dict.fromkeys(matches[node] for node in layer["from"] if node in matches)
        layer["rewrites"] = rewrites[layer["name"]] = list(names) if layer["name"] in blamed else []
    document["fixes"] = [_fix(fix, rewrites) for fix in every if fix.offer]
    offered = combined is not None and _is_news(combined, best[0])
    document["fixes_together"] = _fix(combined, rewrites) if combined and offered else None


def _is_news(combined: Fix, best: Fix) -> bool:
    """Whether several fixes at once are worth more than the best one: they can need each other."""
    from edgekit.placement import LATENCY, noise

    if combined.auto_us is None or best.auto_us is None:
        return True  # nothing is predicted
    if combined.offer != LATENCY:
        return False
    return best.offer != LATENCY or combined.auto_us < best.auto_us * (1 - noise())


def _fix(fix: Fix, rewrites: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    names = dict.fromkeys(name for layer in fix.layers for name in rewrites[layer])
    return {**fix.to_json(), "rewrites": list(names)}


def _warnings(target: Target, power_mode: str | None, forecast: Forecast | None) -> list[str]:
    warning = target.mode(power_mode).warning
    told = [warning] if warning else []
    if forecast is None:
        told.append(f"no prediction for this board: its costs are not known ({target.name})")
    return told
