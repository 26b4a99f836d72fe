"""The ``edgekit.sensitivity/1`` document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Network
    from edgekit.sensitivity._types import Proposal, Sensitivity

__all__ = ["sensitivity_document"]


def sensitivity_document(
    found: Sensitivity, network: Network, judgement: Judgement, proposal: Proposal | None = None
) -> dict[str, Any]:
    """Returns the ranking, the layers that run in FP16 anyway, and what is proposed.

    Args:
        found: What :func:`analyse` measured.
        network: The layers.
        judgement: Their verdicts, which know what a DLA computes in FP16 whatever is asked.
        proposal: What :func:`propose` found; None where no accuracy was asked for.
    """
    kinds = {layer.name: layer for layer in network.layers}
    return {
        "schema": "edgekit.sensitivity/1",
        "samples": found.samples,
        "kernels": [
            {
                "layers": list(item.layers),
                "kinds": [kinds[n].kind if n in kinds else "" for n in item.layers],
                "device": item.device,
                "place": list(item.place),
                "snr_db": item.snr_db,
                "cosine": item.cosine,
                "cosine_min": item.cosine_min,
                "max_abs": item.max_abs,
                "top1_agreement": item.top1_agreement,
            }
            for item in found.impacts
        ],
        "floats": [
            {"layer": name, "why": why, "rule": _rule(name, network, judgement)}
            for name, why in found.floats.items()
        ],
        "proposal": _proposal(proposal),
    }


def _rule(name: str, network: Network, judgement: Judgement) -> str:
    """Returns the rule by which a DLA computes a layer in FP16 in an INT8 loadable, if one does."""
    verdict = judgement.verdicts.get(name)
    if verdict is None or verdict.precision != "fp16" or judgement.precision_of(name) != "int8":
        return ""
    from edgekit.dla import load_rules

    kind = network.layer(name).kind
    rules = [rule for rule in load_rules() if rule.runs_in == "fp16" and kind in rule.kinds]
    return rules[0].id if rules else ""


def _proposal(proposal: Proposal | None) -> Mapping[str, Any] | None:
    if proposal is None:
        return None
    return {
        "metric": proposal.metric,
        "min": proposal.minimum,
        "reached": proposal.layers is not None,
        "fp16_layers": list(proposal.layers or ()),
        "kernels": proposal.kernels if proposal.layers is not None else 0,
        "minimal": proposal.minimal,
        "builds": proposal.builds,
        "accuracy": dict(proposal.accuracy),
        "int8": dict(proposal.int8),
    }
