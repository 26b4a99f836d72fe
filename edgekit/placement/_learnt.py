"""A cost model over a table of measured sums that may overlap: what ``edgekit tune`` writes.

Where one profile times every layer once, :class:`Measured` takes its times as they are. A table
has the same layer in several segments of several plans, alone and fused; what they say together is
a regression (``_trial_learn``), which also corrects the layers that nothing timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError
from edgekit.network import Layer, Network, Tensor
from edgekit.placement._costs import CostModel, Layout, cost_data
from edgekit.placement._kernels import Kernel, fuse
from edgekit.placement._measured import Measured, check_origin
from edgekit.placement._measured_match import Matched, match_rows
from edgekit.placement._measured_table import shares
from edgekit.placement._trial_learn import CLASSES, EXTRA, Evidence, learn

if TYPE_CHECKING:
    import numpy as np

    from edgekit.placement._profile_types import Profile

__all__ = ["LearntModel", "table_evidence"]


@dataclass(frozen=True)
class LearntModel(Measured):
    """A cost model whose times are those predicted, corrected by all that was measured."""

    factors: Mapping[str, Sequence[float]] = field(default_factory=dict, compare=False, repr=False)
    extra: Mapping[str, float] = field(default_factory=dict, compare=False)
    rows: tuple[tuple[str, frozenset[str]], ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def over(
        cls,
        model: CostModel,
        profile: Profile,
        network: Network,
        able: Mapping[str, bool] | None = None,
    ) -> LearntModel:
        """Puts a profile of kind "table" over a model.

        Raises:
            DataError: As :func:`measured_model`.
        """
        check_origin(profile, model)
        matched = match_rows(profile, network, able, join=False)
        unknown = set(matched.unmatched)
        if not matched.groups or len(unknown) > len(profile.rows) / 2:
            missing = next((r.layers for r in profile.rows if r.name in unknown), ())
            raise DataError(
                f"{len(profile.rows) - len(unknown)} of the profile's {len(profile.rows)} rows are "
                "layers of this model",
                code="profile.model", where=profile.path,
                hint=f"the first unknown ones are {list(missing[:2])}; tune this model",
            )  # fmt: skip
        able = able or {}
        prior = _predicted(model, network, able)
        known = {layer.name: i for i, layer in enumerate(network.layers)}
        evidence = table_evidence(profile.table or {}, known, model.launch_us())
        found = learn(network, prior, evidence)
        times = found.times()
        factors = {name: _factors(times[name], prior[name]) for name in CLASSES}
        extra = dict(zip(EXTRA, map(float, times["extra"]), strict=True))
        rows = tuple((g.device, frozenset(network.layers[i].name for i in g.layers))
                     for g in matched.groups)  # fmt: skip
        plain = {f.name: getattr(model, f.name) for f in fields(CostModel) if f.init}
        matched = Matched(matched.groups, matched.unmatched, len(profile.rows))
        return cls(
            **plain, network=network, profile=profile, matched=matched, factors=factors,
            extra=extra, rows=rows,
        )  # fmt: skip

    def kernel_us(
        self, network: Network, kernel: Kernel, device: str, format: str | None = None
    ) -> float:
        """Returns a kernel's time, predicted and corrected."""
        us = CostModel.kernel_us(self, network, kernel, device, format)
        own = self.factors["GPU" if device == "GPU" else "DLA"]
        part = shares(network, kernel.layers, 1.0)
        return us * sum(part[i] * own[i] for i in kernel.layers)

    def reformat_us(self, tensor: Tensor, source: Layout, goal: Layout) -> float:
        """Returns a conversion's time, corrected as those of the measured plans were."""
        return CostModel.reformat_us(self, tensor, source, goal) * self.extra["transfer"]

    def dla_io_us(self, tensor: Tensor, format: str, precision: str, direction: str) -> float:
        """Returns what a format at a loadable's border adds, corrected alike."""
        return (
            CostModel.dla_io_us(self, tensor, format, precision, direction)
            * (self.extra["transfer"])
        )

    def launch_us(self) -> float:
        """Returns what starting a loadable takes, with entering and leaving it."""
        base = CostModel.launch_us(self)
        return base * self.extra["launch"] + 2 * self.extra["transition"] if base else 0.0

    def layer_precision(self, layer: Layer, device: str) -> str:
        """Returns the precision of a layer, as predicted."""
        return CostModel.layer_precision(self, layer, device)

    def kernel_measured(self, kernel: Kernel, device: str) -> bool:
        """Whether a sum of just this kernel was measured."""
        if self.network is None:
            return False
        names = frozenset(self.network.layers[i].name for i in kernel.layers)
        return ("GPU" if device == "GPU" else "DLA", names) in self.rows

    def layers_measured(self, device_of: Mapping[str, str]) -> set[str]:
        """Returns the layers of a placement that lie in a measured sum that it keeps whole."""
        found: set[str] = set()
        for name, layers in self.rows:
            places = {device_of.get(layer, "") for layer in layers}
            on_dla = name == "DLA" and len(places) == 1 and "GPU" not in places
            if (places == {"GPU"} and name == "GPU") or on_dla:
                found |= layers
        return found


def table_evidence(
    table: Mapping[str, Any], index: Mapping[str, int], launch_us: float
) -> list[Evidence]:
    """Returns a table's sums; rows with layers that are not in the network are left out.

    Args:
        table: An ``edgekit.profile/1``.
        index: Each layer's place in the network.
        launch_us: A loadable's predicted launch, which is in its time.
    """
    found = []
    for row in table.get("rows", ()):
        extra = {"launch": launch_us} if row["device"] == "DLA" else {}
        part = {"share": 1.0, "layers": {row["device"]: row["layers"]}, "extra": extra}
        found += _evidence([part], row, index)
    for row in table.get("frames", ()):
        found += _evidence(row["parts"], row, index)
    return found


def _evidence(
    parts: Sequence[Mapping[str, Any]], row: Mapping[str, Any], index: Mapping[str, int]
) -> list[Evidence]:
    layers: list[tuple[str, int, float]] = []
    extra = dict.fromkeys(EXTRA, 0.0)
    for part in parts:
        for name, some in part["layers"].items():
            if any(layer not in index for layer in some):
                return []
            layers += [(name, index[layer], part["share"]) for layer in some]
        for key in EXTRA:
            extra[key] += part["share"] * part["extra"].get(key, 0.0)
    return [Evidence(tuple(layers), float(row["us"]), float(row["sd_us"]), extra)] * bool(layers)


def _factors(times: np.ndarray, prior: np.ndarray) -> list[float]:
    import numpy as np

    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = times / prior
    return [float(r) for r in np.where(np.isfinite(ratio), ratio, 1.0)]


def _predicted(
    model: CostModel, network: Network, able: Mapping[str, bool]
) -> dict[str, np.ndarray]:
    """Returns each layer's part of what it is predicted to take, fused, on either device."""
    import numpy as np

    rules = cost_data("kinds")["fusion"]
    found = {}
    for name, device in zip(CLASSES, ("GPU", "DLA0"), strict=True):
        found[name] = np.full(len(network.layers), np.nan)
        if name == "DLA" and not model.target.dla.cores:
            continue

        def key(layer: Layer, dla: bool = name == "DLA") -> bool:
            return not dla or able.get(layer.name, True)

        for kernel in fuse(network, rules["heads"], rules["tails"], key):
            if all(key(network.layers[i]) for i in kernel.layers):
                us = model.kernel_us(network, kernel, device)
                for i, part in shares(network, kernel.layers, us).items():
                    found[name][i] = part
    return found
