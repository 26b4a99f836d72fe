"""The model judged, with the scales that the user gave, and rewritten: what the rewrites did, and
the rewritten network with the weights of another file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.dla.judge import judge
from edgekit.dla.scales import LEVELS
from edgekit.dla.verdicts import Judgement
from edgekit.network.loading.load import load, open_inputs
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model, Network
from edgekit.pipeline.cache import digest_of, identity_of_path, load_model, store_model
from edgekit.pipeline.steps.load import LoadedModel
from edgekit.pipeline.steps.scales import KnownScales, judge_with
from edgekit.pipeline.steps.translation import translate_likewise, translation_notes
from edgekit.quantize.caches import CalibrationCache, cache_of, load_cache
from edgekit.rewriting.provenance.record import record_document, record_of
from edgekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgekit.pipeline.steps.check import CheckResult


Judged = tuple["Network", "Judgement", "KnownScales | None"]


class RewrittenModel(LoadedModel):
    """From the model's name to the rewritten network, its verdicts and given scales.

    Attributes:
        unscaled: Tensors that INT8 layers need a scale of and that were measured to have none.
        weighs: Whether rewrites are left out where the plan is predicted to be worse with them.
    """

    unscaled: frozenset[str] = frozenset()
    weighs = True

    def _judged(self, model: Model) -> tuple[Network, Judgement]:
        """Returns the layers and verdicts of a model, the rewritten one or the one that came."""
        network, judgement, _ = self._looked_at(model)
        return network, judgement

    def _looked_at(self, model: Model) -> Judged:
        if model.digest not in self._seen:
            network, judgement = self._judged_once.get(model.digest) or (layers(model), None)
            self._seen[model.digest] = (network, *self._judge(network, model, judgement))
        return self._seen[model.digest]

    @cached_property
    def _seen(self) -> dict[str, Judged]:
        return {}

    @cached_property
    def _judged_once(self) -> dict[str, tuple[Network, Judgement]]:
        """Layers and verdicts by model, as rewriting gave them: every tensor with a scale."""
        return {}

    @cached_property
    def _rules(self) -> tuple[str, ...]:
        """What a verdict depends on in addition to the network."""
        cache = self.file.calibration.cache
        scales = ""
        if cache:
            scales = (
                f"{identity_of_path(self.config.resolve(cache))} {self.file.calibration.missing}"
            )
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

        return ({name: scale * LEVELS for name, scale in self.known.scales.items()},)

    @cached_property
    def known_scales(self) -> KnownScales | None:
        """What the user's scales give the rewritten network; None without any.

        Raises:
            DataError: "cache.missing": scales are missing, and the user did not allow it.
        """
        if self.known is None:
            return None

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

    def _judge(
        self, network: Network, model: Model, judgement: Judgement | None
    ) -> tuple[Judgement, KnownScales | None]:
        def judging(scales: Mapping[str, float] | None) -> Judgement:
            return judge(
                network, self.target, precision=self.file.precision, tensorrt=self.tensorrt,
                scales=scales, fp16_layers=self.fp16_layers(network), lowers=self.lowers,
            )  # fmt: skip

        # every tensor is taken to have a scale unless the user, or what was measured, says
        # which ones do
        if self.known is None:
            if judgement is not None and not (self.unscaled or self.fp16_layers(network)):
                return judgement, None
            names = {*network.whole.tensors, *network.whole.fixed} - self.unscaled
            return judging(dict.fromkeys(names, 1.0) if self.unscaled else None), None

        known = judge_with(
            self.known, model, network, judging,
            original=None if model is self.source else self.source,
            name=self.file.calibration.cache or "",
            typed=self.lowers,
        )  # fmt: skip
        return known.judgement, known

    def _better_without(self, model: Model) -> str:
        """Why the network should stay as it came, not as ``model``; empty where it should not."""
        raise NotImplementedError

    @property
    def _constraints_key(self) -> list[Any]:
        """What ``_better_without`` depends on."""
        raise NotImplementedError

    def checked(self, on_note: Callable[[str], object] = str) -> CheckResult:
        """Checks the model as it came, whatever is in the cache, and reports its progress."""
        from edgekit.pipeline.steps.check import check_model

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
            fp16_layers=lambda network: self.fp16_layers(network, gate=False),
            on_note=on_note,
        )

    def check(self) -> dict[str, Any]:
        """Returns the ``edgekit.check/1`` document of the model as it came."""
        result: dict[str, Any] = self.stored(
            "check", lambda: self.checked().document, *self._checking
        )
        # the same network may lie in files of different names
        return {**result, "model": self.source.source}

    def verdict(self) -> dict[str, Any]:
        """Returns the check of the model as it came that a rewriting reports, without suggestions.

        What would help is found by looking for rewrites, which comes next anyhow.
        """
        # a check judges what the user named, without what the accuracy gate keeps in FP16
        alike = self.translated is None and self.fp16_choice() == self.fp16_choice(gate=False)
        known = self.look_up("check", *self._checking) if alike else None
        result: dict[str, Any] = known or self.stored(
            "verdict",
            lambda: brief_check(self, self.source.source, *self._judged(self.source)),
            *self._checking, self.fp16_choice(),
        )  # fmt: skip
        return result

    @property
    def _checking(self) -> tuple[Any, ...]:
        """What a check depends on; Q/DQ models of one plain network differ in what is judged."""
        return (
            self.named.digest, self.source.digest, self.file.power_mode,
            self.fp16_choice(gate=False), *self._rules,
        )  # fmt: skip

    @cached_property
    def _found(self) -> dict[str, Any]:
        """What the rewrites give, used or not; no constraint of the user's changes it."""
        section = self.file.rewrite

        def compute() -> dict[str, Any]:
            from edgekit.placement.forecast import forecast
            from edgekit.rewriting.rewrite import rewrite

            found = rewrite(
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
                progress=lambda done: self.update(0, 0, f"{counted(done, 'rewrite')} tried"),
            )
            model = self._rewritten = found.model
            rows = [item.to_json() for item in found.applied]
            stored = store_model(self.cache, model, self.source) if rows else None
            notes: list[str] = []
            if found.network is not None and found.judgement is not None:
                self._judged_once[model.digest] = found.network, found.judgement
                notes = _layer_count_note(self.source, found.network)
            return {
                "model": stored,
                "applied": rows,
                "record": record_document(self.source, model, rows),
                "notes": list(found.notes),
                "layers": notes,
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
                "without rewrites", lambda: self._better_without(self._load(found["model"])),
                self.source.digest, found["model"]["digest"], self._constraints_key, *self._rules,
            )  # fmt: skip
        if why:
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
    def found_rewrites(self) -> bool:
        """Whether there are rewrites, used or not."""
        return self._found["model"] is not None

    @property
    def rewrites_left(self) -> int:
        """How many rewrites there are that are not used, since the plan is better without."""
        return len(self._found["applied"]) - len(self.rewrites)

    @property
    def rewrites(self) -> list[dict[str, Any]]:
        """The rewrites that were applied, as records."""
        applied: list[dict[str, Any]] = self._rewriting["applied"]
        return applied

    @property
    def layers_notes(self) -> list[str]:
        """Why a plan has other layers than a check, where it has."""
        return list(self._rewriting.get("layers", ()))

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

    def other_weights(self, path: Path) -> Model:
        """Returns the rewritten model with the weights of another file of the original's names.

        The file may be the original with other values also where the configuration's model is
        what ``edgekit rewrite`` wrote; and it may be one that was rewritten likewise.

        Raises:
            DataError: "refit.mismatch": its weights differ in name, shape or type, or something
                differs that is no weight.
        """
        from edgekit.rewriting.provenance.other_weights import check_file, check_network, reweigh

        if self.translated is None:
            check_file(path, self.model)
        section = self.file.model
        # cut points of a rewritten file may be no tensors of the original's
        outputs = section.outputs or None if record_of(self.source) is None else None
        other = load(path, shapes=self._shapes_of(path) or None, outputs=outputs)
        if self.translated is not None:
            other = translate_likewise(self.translated, other, path)
        if record_of(self.model) is not None:
            return reweigh(self.model, other)
        check_network(self.model, other)
        return other

    def _shapes_of(self, path: Path) -> dict[str, list[int]]:
        """The sizes for another file's inputs: those of the configuration, or else of the model."""
        own = {
            value.name: value.type.tensor_type.shape.dim for value in self.model.proto.graph.input
        }
        left_open = [name for name in open_inputs(path) if name in own]
        sizes = {name: [dim.dim_value for dim in own[name]] for name in left_open}
        return {**sizes, **self.file.model.shapes}


def brief_verdict(check: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what an ``edgekit.rewrite/1`` takes over of an ``edgekit.check/1`` document."""
    predicted = check["predicted"]
    times = {key: value for key, value in (predicted or {}).items() if key != "layers"}
    return {
        **check["summary"],
        "candidates": check["candidates"],
        "loadables": check["loadables"],
        "transitions": check["transitions"],
        "predicted": times or None,
    }


def brief_check(
    work: RewrittenModel, source: str, network: Network, judgement: Judgement
) -> dict[str, Any]:
    """Returns what ``verdict`` reads of a check, of the model as it came or rewritten."""
    from edgekit.dla.check_document import check_document
    from edgekit.placement.forecast import automatic_transitions, forecast

    document = check_document(source, network, judgement, work.target)
    predicted = forecast(network, judgement, work.target, power_mode=work.file.power_mode)
    document["transitions"] = automatic_transitions(network, judgement)
    document["predicted"] = predicted.to_json() if predicted else None
    return document


def _layer_count_note(before: Model, after: Network) -> list[str]:
    """Returns a note that says why a plan has other layers than a check of the model."""
    old, new = len(layers(before).layers), len(after.layers)
    if old == new:
        return []
    return [
        f"{counted(new, 'layer')} after the rewrites; check counts the {old} of the model as it "
        "came"
    ]
