"""What the DLA runs of the model, as it came or rewritten, with the scales that the user gave."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from edgekit.pipeline._cache import digest_of
from edgekit.pipeline._named import Named
from edgekit.pipeline._stored import identity

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Model, Network
    from edgekit.pipeline._known_scales import KnownScales
    from edgekit.quantize import CalibrationCache

__all__ = ["Judging"]

Judged = tuple["Network", "Judgement", "KnownScales | None"]


class Judging(Named):
    """Layers, verdicts and given scales of the models of one configuration.

    Attributes:
        unscaled: Tensors that INT8 layers need a scale of and that were measured to have none.
    """

    unscaled: frozenset[str] = frozenset()

    @cached_property
    def model(self) -> Model:
        """The model after the rewrites."""
        raise NotImplementedError

    def _judged(self, model: Model) -> tuple[Network, Judgement]:
        """Returns the layers and verdicts of a model, the rewritten one or the one that came."""
        network, judgement, _ = self._looked_at(model)
        return network, judgement

    def _looked_at(self, model: Model) -> Judged:
        if model.digest not in self._seen:
            from edgekit.network import layers

            network = layers(model)
            self._seen[model.digest] = (network, *self._judge(network, model))
        return self._seen[model.digest]

    @cached_property
    def _seen(self) -> dict[str, Judged]:
        return {}

    @cached_property
    def _rules(self) -> tuple[str, ...]:
        """What a verdict depends on beside the network."""
        cache = self.file.calibration.cache
        scales = ""
        if cache:
            scales = f"{identity(self.config.resolve(cache))} {self.file.calibration.missing}"
        elif self.translated is not None:
            # the plain model is the same whatever the scales are
            scales = digest_of(dict(self.translated.scales))
        typed = ("Q/DQ",) if self.lowers else ()
        return self.file.target, self.file.precision, self.tensorrt, scales, *typed

    @cached_property
    def known(self) -> CalibrationCache | None:
        """The INT8 scales that the user gave; None where they are measured, or not needed.

        A cache wins over the scales of a Q/DQ model.
        """
        cache = self.file.calibration.cache
        if self.file.precision != "int8":
            return None
        from edgekit.quantize import cache_of, load_cache

        if cache is not None:
            return load_cache(self.config.resolve(cache))
        if self.translated is None:
            return None
        return cache_of(self.translated.scales, self.tensorrt)

    @property
    def known_amax(self) -> tuple[Mapping[str, float], ...]:
        """The largest magnitudes that were measured, or that a calibration cache gives."""
        return self.amax or self._given_amax

    @cached_property
    def _given_amax(self) -> tuple[Mapping[str, float], ...]:
        if self.file.calibration.cache is None or self.known is None:
            return ()
        from edgekit.dla import LEVELS

        return ({name: scale * LEVELS for name, scale in self.known.scales.items()},)

    @cached_property
    def known_scales(self) -> KnownScales | None:
        """What the user's scales give the rewritten network; None without any.

        Raises:
            DataError: "cache.missing": scales are missing, and the user did not allow it.
        """
        if self.known is None:
            return None
        from edgekit.pipeline._translated import translation_notes

        known = self._looked_at(self.model)[2]
        assert known is not None, "it was judged with these scales"
        if self.translated is not None and self.file.calibration.cache is None:
            # what the Q/DQ model does not quantise is meant to run in floats
            self.notes += translation_notes(self.translated, known)
            return known
        if known.unlisted and self.file.calibration.missing == "error":
            raise known.refusal
        self.notes += known.notes
        return known

    def _judge(self, network: Network, model: Model) -> tuple[Judgement, KnownScales | None]:
        from edgekit.dla import judge

        def judging(scales: Mapping[str, float] | None) -> Judgement:
            return judge(
                network, self.target, precision=self.file.precision, tensorrt=self.tensorrt,
                scales=scales, fp16_layers=self.fp16_layers(network), lowers=self.lowers,
            )  # fmt: skip

        # every tensor is taken to have a scale unless the user, or what was measured, says
        # which ones do
        if self.known is None:
            names = {*network.whole.tensors, *network.whole.fixed} - self.unscaled
            return judging(dict.fromkeys(names, 1.0) if self.unscaled else None), None
        from edgekit.pipeline._known_scales import judge_with

        known = judge_with(
            self.known, model, network, judging,
            original=None if model is self.source else self.source,
            name=self.file.calibration.cache or "",
            typed=self.lowers,
        )  # fmt: skip
        return known.judgement, known
