"""The model: as the user named it, judged, and rewritten."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._cache import digest_of
from edgekit.pipeline._models import load_model, store_model
from edgekit.pipeline._named import Named
from edgekit.pipeline._stored import identity

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Model, Network
    from edgekit.pipeline._check import CheckResult
    from edgekit.pipeline._known_scales import KnownScales
    from edgekit.quantize import CalibrationCache

__all__ = ["Sources"]


class Sources(Named):
    """From the model's name to the rewritten network and its verdicts.

    Attributes:
        weighs: Whether rewrites are left out where the plan is predicted to be worse with them.
    """

    weighs = True

    def _better_without(self, model: Model) -> str:
        """Why the network should stay as it came, not as ``model``; empty where it should not."""
        raise NotImplementedError

    @property
    def _wishes(self) -> list[Any]:
        """What ``_better_without`` depends on."""
        raise NotImplementedError

    def checked(self) -> CheckResult:
        """Checks the model as it came, whatever is in the cache."""
        from edgekit.pipeline._check import check_model

        cache = self.file.calibration.cache
        typed = self.lowers and self.translated is not None
        return check_model(
            # a strongly typed release takes a Q/DQ model as it is
            self.named if typed else self.source,
            target=self.target,
            precision=self.file.precision,
            tensorrt=self.tensorrt,
            power_mode=self.file.power_mode,
            scales=self.config.resolve(cache) if cache is not None else None,
            translated=None if typed else self.translated,
            lowers=self.lowers,
        )

    def check(self) -> dict[str, Any]:
        """Returns the ``edgekit.check/1`` document of the model as it came."""
        result: dict[str, Any] = self.stored(
            "check", lambda: self.checked().document, *self._checking
        )
        # the same network may lie in files of different names
        return {**result, "model": self.source.source}

    def verdict(self) -> dict[str, Any]:
        """Returns what a rewriting tells of the model as it came: a check without what would help.

        What would help is found by looking for rewrites, which comes next anyhow.
        """
        from edgekit.pipeline._rewriting import brief

        known = (
            None
            if self.force
            else self.cache.get("check", self.cache.key("check", *self._checking))
        )
        result: dict[str, Any] = known or self.stored(
            "verdict",
            lambda: brief(self, self.source.source, *self._judged(self.source)),
            *self._checking,
        )
        return result

    @property
    def _checking(self) -> tuple[Any, ...]:
        """What a check depends on."""
        return self.source.digest, self.file.power_mode, *self._rules

    @cached_property
    def _found(self) -> dict[str, Any]:
        """What the rewrites give, whether it is used or not; no wish of the user's changes it."""
        section = self.file.rewrite

        def compute() -> dict[str, Any]:
            from edgekit.placement import forecast
            from edgekit.rewrite import record_document, rewrite

            model, applied, notes = rewrite(
                self.source,
                self.target,
                precision=self.file.precision,
                tensorrt=self.tensorrt,
                enable=section.enable,
                disable=section.disable,
                allow_approx=section.allow_approx,
                lowers=self.lowers,
                # the board's usual power mode: a network is rewritten alike for all of them
                cost=lambda network, judgement: forecast(network, judgement, self.target),
                progress=lambda done: self.update(0, 1, f"{done} rewrites tried"),
            )
            self._rewritten = model
            rows = [item.to_json() for item in applied]
            return {
                "model": store_model(self.cache, model, self.source) if applied else None,
                "applied": rows,
                "record": record_document(self.source, model, rows),
                "notes": list(notes),
            }

        result: dict[str, Any] = self.stored(
            "rewrite", compute, self.source.digest, section.model_dump(exclude={"always"}),
            *self._rules,
        )  # fmt: skip
        return result

    @cached_property
    def _rewriting(self) -> dict[str, Any]:
        """What is used of the rewrites: all or, where the plan is better without, nothing."""
        found = self._found
        why = ""
        if found["model"] and self.weighs and not self.file.rewrite.always:
            why = self.stored(
                "worth", lambda: self._better_without(self._load(found["model"])),
                self.source.digest, found["model"]["digest"], self._wishes, *self._rules,
            )  # fmt: skip
        if why:
            from edgekit.rewrite import record_document

            found = {
                "model": None,
                "applied": [],
                "record": record_document(self.source, self.source, []),
                "notes": [
                    *found["notes"],
                    f"the rewrites are not used: {why} (rewrite.always: true uses them all the "
                    "same)",
                ],
            }
        self.notes += found["notes"]
        return found

    def _load(self, record: dict[str, Any]) -> Model:
        """Returns the rewritten model; rewrites again where somebody emptied the cache's blobs."""
        rewritten: Model | None = self.__dict__.get("_rewritten")
        rewritten = rewritten or load_model(self.cache, record, self.source)
        if rewritten is None:
            self.force = True
            del self._found
            return self._load(self._found["model"])
        self._rewritten = rewritten
        return rewritten

    @property
    def rewrites(self) -> list[dict[str, Any]]:
        """The rewrites that were applied, as records."""
        applied: list[dict[str, Any]] = self._rewriting["applied"]
        return applied

    @property
    def record(self) -> dict[str, Any]:
        """The ``edgekit.rewrites/1`` document: what was applied and how it was proved."""
        record: dict[str, Any] = self._rewriting["record"]
        return record

    @cached_property
    def model(self) -> Model:
        """The model after the rewrites."""
        record = self._rewriting["model"]
        return self._load(record) if record else self.source

    @property
    def model_digest(self) -> str:
        """Digest of the model after the rewrites, without loading it."""
        record = self._rewriting["model"]
        return str(record["digest"]) if record else self.source.digest

    @property
    def network(self) -> Network:
        """The layers of the rewritten model."""
        return self._judged(self.model)[0]

    @property
    def judgement(self) -> Judgement:
        """The verdicts on the rewritten model.

        Raises:
            DataError: "cache.missing": the user's scales lack some.
        """
        # a getter, for it refuses
        _ = self.known_scales
        return self._judged(self.model)[1]

    def _judged(self, model: Model) -> tuple[Network, Judgement]:
        """Returns the layers and verdicts of a model, the rewritten one or the one that came."""
        if model.digest not in self._seen:
            from edgekit.network import layers

            network = layers(model)
            self._seen[model.digest] = network, self._judge(network, model)
        return self._seen[model.digest]

    @cached_property
    def _seen(self) -> dict[str, tuple[Network, Judgement]]:
        return {}

    def other_weights(self, path: Path) -> Model:
        """Returns the rewritten model with the weights of another file of the original's names.

        The file may be the original with other values also where the configuration's model is
        what ``edgekit rewrite`` wrote; and it may be one that was rewritten likewise.

        Raises:
            DataError: "refit.mismatch": its weights differ in name, shape or type, or something
                differs that is no weight.
        """
        from edgekit import network
        from edgekit.pipeline._translated import translated_alike
        from edgekit.rewrite import check_file, check_network, record_of, reweigh

        if self.translated is None:
            check_file(path, self.model)
        section = self.file.model
        # cut points of a rewritten file may be no tensors of the original's
        outputs = section.outputs or None if record_of(self.source) is None else None
        other = network.load(path, shapes=self._shapes_of(path) or None, outputs=outputs)
        if self.translated is not None:
            other = translated_alike(self.translated, other, path)
        if record_of(self.model) is not None:
            return reweigh(self.model, other)
        check_network(self.model, other)
        return other

    def _shapes_of(self, path: Path) -> dict[str, list[int]]:
        """The sizes for another file's inputs: those of the configuration, or else of the model."""
        from edgekit import network

        own = {
            value.name: value.type.tensor_type.shape.dim for value in self.model.proto.graph.input
        }
        left_open = [name for name in network.open_inputs(path) if name in own]
        sizes = {name: [dim.dim_value for dim in own[name]] for name in left_open}
        return {**sizes, **self.file.model.shapes}

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

    @cached_property
    def known_scales(self) -> KnownScales | None:
        """What the user's scales give the rewritten network; None without any.

        Raises:
            DataError: "cache.missing": scales are missing, and the user did not allow it.
        """
        if self.known is None:
            return None
        from edgekit.pipeline._translated import translation_notes

        self._judged(self.model)
        known = self._known[self.model.digest]
        if self.translated is not None and self.file.calibration.cache is None:
            # what the Q/DQ model does not quantise is meant to run in floats
            self.notes += translation_notes(self.translated, known)
            return known
        if known.reading.lacks and self.file.calibration.missing == "error":
            raise known.refusal
        self.notes += known.notes
        return known

    @cached_property
    def _known(self) -> dict[str, KnownScales]:
        return {}

    def _judge(self, network: Network, model: Model) -> Judgement:
        from edgekit.dla import judge

        def judging(scales: Mapping[str, float] | None) -> Judgement:
            return judge(
                network, self.target, precision=self.file.precision, tensorrt=self.tensorrt,
                scales=scales, fp16_layers=self.fp16_layers(network), lowers=self.lowers,
            )  # fmt: skip

        # every tensor is taken to have a scale unless the user says which ones do
        if self.known is None:
            return judging(None)
        from edgekit.pipeline._known_scales import judge_with

        self._known[model.digest] = judge_with(
            self.known, model, network, judging,
            original=None if model is self.source else self.source,
            name=self.file.calibration.cache or "",
        )  # fmt: skip
        return self._known[model.digest].judgement
