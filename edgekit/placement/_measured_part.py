"""How much of a plan is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._listed import percent
from edgekit.placement._measured import Measured

if TYPE_CHECKING:
    from edgekit.network import Tensor
    from edgekit.placement._costs import CostModel, Layout
    from edgekit.placement._types import PlacedLayer

__all__ = ["measured_part", "reformat_measured", "source_of"]

DIGITS = 6


def reformat_measured(model: CostModel, tensor: Tensor, source: Layout, goal: Layout) -> bool:
    """Whether a conversion's time is a measured one; False without a profile."""
    return isinstance(model, Measured) and model.reformat_measured(tensor, source, goal)


def measured_part(
    model: CostModel,
    layers: Sequence[PlacedLayer],
    reformats: Sequence[tuple[float, bool]],
    unfused_us: float,
    latency_us: float,
) -> dict[str, Any] | None:
    """Returns the ``measured`` object of a plan's JSON, None without a profile.

    Launches and what other formats at a loadable's border cost are as much measured as the
    DLA's layers are.

    Args:
        model: The plan's cost model.
        layers: Its layers.
        reformats: Microseconds of each reformat, and whether they were measured.
        unfused_us: What broken fusions cost; measured as far as their pieces are.
        latency_us: The plan's latency, all in all.
    """
    if not isinstance(model, Measured) or model.profile is None or model.matched is None:
        return None
    device_of = {layer.name: layer.device for layer in layers}
    known_layers = model.layers_measured(device_of)
    known = on_dla = known_on_dla = total = 0.0
    for layer in layers:
        us = layer.predicted_us
        own = us if layer.name in known_layers else 0.0
        total, known = total + us, known + own
        if layer.device != "GPU":
            on_dla, known_on_dla = on_dla + us, known_on_dla + own
    total += sum(us for us, _ in reformats)
    known += sum(us for us, measured in reformats if measured)
    own_us = [layer.predicted_us for layer in layers]
    pieces = model.pieces(device_of)
    longer = sum(
        max(0.0, piece.us - sum(own_us[i] for i in piece.group.layers)) for piece in pieces
    )
    total += unfused_us
    known += min(unfused_us, longer + model.between_us(pieces, measured=True))
    busy = {"gpu": (total - on_dla, known - known_on_dla), "dla": (on_dla, known_on_dla)}
    rest = max(0.0, latency_us - total)
    known += rest * known_on_dla / on_dla if on_dla else 0.0
    fraction = min(1.0, round(known / latency_us, DIGITS)) if latency_us else 0.0
    return {
        "file": model.profile.path,
        "kind": model.profile.kind,
        "fraction": fraction,
        "fraction_of": {
            device: round(min(1.0, own / whole), DIGITS) if whole else 1.0
            for device, (whole, own) in busy.items()
        },
        "measured_us": round(known, DIGITS),
        "layers": {
            layer.name: "measured" if layer.name in known_layers else "predicted"
            for layer in layers
        },
        "rows": model.matched.rows,
        "unmatched": list(model.matched.unmatched),
        "notes": [_told(fraction, model.profile.path), *model.warnings()],
    }


def _told(fraction: float, path: str) -> str:
    """Returns the share that is measured, as a sentence."""
    if fraction == 1:
        return f"all of the latency is measured ({path})"
    return f"{percent(fraction)} of the latency is measured ({path}), the rest predicted"


def source_of(measured: Mapping[str, Any] | None) -> str:
    """Returns where a plan's times come from: "predicted", or how much a profile measured.

    Args:
        measured: The ``measured`` object of the plan's JSON.
    """
    fraction = measured["fraction"] if measured else 0.0
    if not measured or not fraction:
        return "predicted"
    by = f"measured by {Path(measured['file']).name}"
    return by if fraction == 1 else f"{percent(fraction)} {by}, the rest predicted"
