"""Questions about a plan: why, what if, which trade-offs, and how other boards do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgekit._listed import counted
from edgekit.errors import UsageError
from edgekit.pipeline._host_steps import HostSteps
from edgekit.pipeline._steps import Step

__all__ = ["Questions"]


_GONE = {
    "constant": "it is computed from constants", "identity": "it passes its input on",
    "branch": "it is a branch of known condition", "function": "it is a call that was inlined",
    "given": "its values are given", "unused": "no output needs it",
}  # fmt: skip


class Questions(HostSteps):
    """What ``edgekit plan`` answers beside the plan."""

    @contextmanager
    def _asked(self, name: str) -> Iterator[Step]:
        """The plan, and then the step that answers."""
        self._only("check", "rewrite", *([] if name == "table" else ["plan"]))
        self._steps.names.append(name)
        self._check()
        self._rewrite()
        if name != "table":  # which has plans of its own
            self._plan()
        with self._steps.step(name) as step:
            yield step

    def why(self, layer: str) -> dict[str, Any]:
        """Returns an ``edgekit.why/1``: the reasons for a layer's place.

        Raises:
            UsageError: "layer.unknown": there is no layer or ONNX node of that name.
        """
        from edgekit.placement import explain_layer

        layer = self._layer_of(layer)  # told before anything is placed
        with self._asked("why") as step:
            work = self.work
            document = explain_layer(
                work.ask, work.plan, layer, lambda a, b: work.update(a, b, "placing with changes")
            )
            step.detail = f"{document['layer']} runs on {document['device']}"
        return document

    def _layer_of(self, name: str) -> str:
        """Returns the layer that a name stands for, also an ONNX node's that loading removed."""
        from edgekit.placement import find_layer

        network, gone = self.work.network, self.work.source.folded.get(name)
        try:
            if gone is None:
                return find_layer(network, name).name
            writers = [x.name for x in network.layers if set(x.outputs) & set(gone.outputs)]
            return writers[0] if writers else find_layer(network, gone.after).name
        except UsageError as error:
            error.where = self.work.source.source
            if gone is not None:
                error.message = f"no layer stands for the node {name!r}: {_GONE[gone.reason]}"
                error.hint = "`edgekit check --by-layer` lists the layers"
            raise

    def what_if(self, changes: str) -> dict[str, Any]:
        """Returns an ``edgekit.whatif/1``: the plan, and the plan with changes.

        Args:
            changes: Such as "pin conv* GPU; mode 30W".

        Raises:
            UsageError: "plan.what-if": no such change.
            GateError: No placement keeps what is asked with the changes.
        """
        from edgekit.pipeline._changes import read_changes
        from edgekit.placement import compare_plans

        read = read_changes(changes, self.config)
        other = self.work.variant(**read.keys)
        with self._asked("what-if") as step:
            document = compare_plans(self.work.plan, other.plan, read.told)
            step.detail = f"{counted(len(document['moved']), 'layer')} moved"
        return document

    def table(
        self,
        *,
        modes: Sequence[str] = (),
        targets: Sequence[str] = (),
        objective: str | None = None,
        power_mode: str | None = None,
    ) -> dict[str, Any]:
        """Returns an ``edgekit.plan-table/1``: see ``plan_table``."""
        from edgekit.pipeline._table import plan_table

        with self._asked("table") as step:
            document = plan_table(
                self.work, modes=modes, targets=targets, objective=objective, power_mode=power_mode
            )
            step.detail = counted(len(document["rows"]), "row")
        return document

    def pareto(self, first: str, second: str) -> dict[str, Any]:
        """Returns an ``edgekit.pareto/1``: the front of two metrics of a plan.

        Args:
            first: "latency_us", "energy_uj", "gpu_us" or "period_us".
            second: Another one of them.
        """
        from edgekit.placement import pareto_front

        with self._asked("pareto") as step:
            work = self.work
            document: dict[str, Any] = pareto_front(
                work.ask, first, second, lambda a, b: work.update(a, b, "the next point")
            )
            step.detail = f"{len(document['points'])} points"
        return document

    def plan_report(self, path: Path) -> None:
        """Writes the plan as an HTML page; what only a build or a board can tell is left out."""
        from edgekit.report import RunFacts, report_document, write_report

        work = self.work
        facts = RunFacts(
            name=self.file.name, model=work.source.source, target=work.target, plan=work.plan,
            network=work.network, judgement=work.judgement, mode=self.file.build.mode,
            rewrites=tuple({"name": item["rewrite"], **item} for item in work.rewrites),
            steps=tuple(self._step_list()), files={"report": str(path)},
            config_text=self.config.text, notes=(*work.notes, *work.plan.notes),
            note_groups={"run": work.notes},
        )  # fmt: skip
        write_report(report_document(facts), path)
