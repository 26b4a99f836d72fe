"""The model: as the user named it, judged, and rewritten."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.pipeline._judging import Judging
from edgekit.pipeline._models import load_model, store_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgekit.dla import Judgement
    from edgekit.network import Model, Network
    from edgekit.pipeline._check import CheckResult

__all__ = ["Sources"]


class Sources(Judging):
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

    def checked(self, tell: Callable[[str], object] = str) -> CheckResult:
        """Checks the model as it came, whatever is in the cache, and tells what it is at."""
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
            fp16_layers=lambda network: self.fp16_layers(network, gate=False),
            tell=tell,
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

        # a check judges what the user named, without what the accuracy gate keeps in FP16
        alike = self.translated is None and self.fp16_wishes() == self.fp16_wishes(gate=False)
        known = self.look_up("check", *self._checking) if alike else None
        result: dict[str, Any] = known or self.stored(
            "verdict",
            lambda: brief(self, self.source.source, *self._judged(self.source)),
            *self._checking, self.fp16_wishes(),
        )  # fmt: skip
        return result

    @property
    def _checking(self) -> tuple[Any, ...]:
        """What a check depends on; Q/DQ models of one plain network differ in what is judged."""
        return (
            self.named.digest, self.source.digest, self.file.power_mode,
            self.fp16_wishes(gate=False), *self._rules,
        )  # fmt: skip

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
                progress=lambda done: self.update(0, 0, f"{counted(done, 'rewrite')} tried"),
            )
            self._rewritten = model
            rows = [item.to_json() for item in applied]
            return {
                "model": store_model(self.cache, model, self.source) if applied else None,
                "applied": rows,
                "record": record_document(self.source, model, rows),
                "notes": list(notes),
                "layers": _counted(self.source, model) if applied else [],
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


def _counted(before: Model, after: Model) -> list[str]:
    """Returns a note that says why a plan has other layers than a check of the model."""
    from edgekit.network import layers

    old, new = (len(layers(model).layers) for model in (before, after))
    if old == new:
        return []
    return [
        f"{counted(new, 'layer')} after the rewrites; check counts the {old} of the model as it "
        "came"
    ]
