"""``edgekit calibrate --sensitivity``: the ranking, a proposal, and the configuration for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.config import rebased
from edgekit.errors import UsageError
from edgekit.pipeline._outputs import may_write_for
from edgekit.pipeline._questions import Questions
from edgekit.pipeline._sensitivity import honest, measured, proposed

if TYPE_CHECKING:
    from edgekit.sensitivity import Proposal

__all__ = ["Sensing"]


class Sensing(Questions):
    """What INT8 costs layer by layer."""

    def sensitivity(
        self,
        metric: str | None = None,
        minimum: float | None = None,
        write_config: Path | None = None,
    ) -> dict[str, Any]:
        """Returns an ``edgekit.sensitivity/1``; with a minimum it holds a proposal.

        Args:
            metric: "cosine", "snr_db" or "top1_agreement"; the configuration's when None.
            minimum: What the build must reach; the configuration's ``accuracy.min`` when None.
            write_config: Where to write a configuration with the proposal. It is written only
                where there is one.

        Raises:
            UsageError: The precision is not INT8, ``write_config`` has nothing to write, or what
                the configuration names is not found from there.
        """
        from edgekit.sensitivity import impossible, sensitivity_document, shortfall

        work, gate = self.work, self.file.accuracy
        metric = metric or gate.metric
        minimum = gate.min if minimum is None else minimum
        if self.file.precision != "int8":
            raise UsageError(
                f"{self.file.precision} quantises nothing",
                code="calibration.precision",
                hint="measure the sensitivity with precision int8",
            )
        told = "" if minimum is None else impossible(metric, minimum)
        if told:
            raise UsageError(told, code="sensitivity.accuracy", hint="ask for less")
        if write_config is not None and minimum is None:
            raise UsageError(
                "no accuracy is wanted, so there is nothing to propose",
                code="sensitivity.accuracy",
                hint="say which: --accuracy cosine=0.999",
            )
        may_write_for(self.config, {"the new configuration": write_config})
        if write_config is not None:
            rebased(self.config, write_config.parent)  # refused before anything is measured
        self._only("rewrite", "calibrate", "plan", "sensitivity")
        self._steps.names.append("sensitivity")
        self._rewrite()
        self._calibrate()
        self._plan()
        proposal: Proposal | None = None
        with self._step("sensitivity") as step:
            found = measured(work)
            if minimum is not None:
                proposal = proposed(work, metric, minimum)
            step.detail = (
                f"{counted(len(found.impacts), 'INT8 kernel')} on {counted(found.samples, 'input')}"
            )
        warnings = work.plan_scales.warnings if work.plan_scales else ()
        document = {
            **sensitivity_document(found, work.network, work.judgement, proposal),
            "model": work.source.source,
            "target": self.file.target,
            "data": work.inputs_text,
            "method": work.scales.method if work.scales else "",
            "notes": [*work.notes, *warnings, *work.plan.notes, *honest(work)],
            "config": "",
            "file": None,
        }
        if proposal is not None and proposal.layers is not None:
            document["config"] = _lines(self._fp16_with(proposal), proposal)
            if write_config is not None:
                self._write_config(write_config, proposal)
                document["file"] = str(write_config)
        elif proposal is not None:
            document["shortfall"] = shortfall(proposal)
        return document

    def _fp16_with(self, proposal: Proposal) -> list[str]:
        own = self.file.calibration.fp16_layers
        return list(dict.fromkeys((*own, *(proposal.layers or ()))))

    def _write_config(self, path: Path, proposal: Proposal) -> None:
        import yaml

        from edgekit._files import write_atomically

        value = rebased(self.config, path.parent)
        value.setdefault("calibration", {})["fp16_layers"] = self._fp16_with(proposal)
        gate = {"metric": proposal.metric, "min": proposal.minimum}
        value["accuracy"] = {**value.get("accuracy", {}), **gate}
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
        with write_atomically(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _lines(layers: list[str], proposal: Proposal) -> str:
    """Returns the YAML lines that keep these layers in FP16."""
    import yaml

    gate = {"metric": proposal.metric, "min": proposal.minimum}
    text: str = yaml.safe_dump(
        {"calibration": {"fp16_layers": layers}, "accuracy": gate},
        sort_keys=False, allow_unicode=True,
    )  # fmt: skip
    return text
