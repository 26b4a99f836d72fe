"""Exact graph rewrites: one file each, applied where they help, proved when applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._callable import make_callable
from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.rewrite._all import APPROXIMATE, rewrites
    from edgekit.rewrite._apply import rewrite
    from edgekit.rewrite._chosen import chosen
    from edgekit.rewrite._claim import Claim, claim_of_document, claim_of_model
    from edgekit.rewrite._collector import collector_held
    from edgekit.rewrite._docs import rewrites_page
    from edgekit.rewrite._list import rewrite_list
    from edgekit.rewrite._offer import offers
    from edgekit.rewrite._raise_opset import obstacle, raise_opset
    from edgekit.rewrite._record import record_document
    from edgekit.rewrite._record_read import record_of
    from edgekit.rewrite._reweigh import check_file, reweigh
    from edgekit.rewrite._same_network import check_network
    from edgekit.rewrite._types import Applied, Match, Node, Rewrite
    from edgekit.rewrite._verify import refusal, verify
    from edgekit.rewrite._whole import network_error, whole_network

__all__ = [
    "APPROXIMATE",
    "Applied",
    "Claim",
    "Match",
    "Node",
    "Rewrite",
    "check_file",
    "check_network",
    "chosen",
    "claim_of_document",
    "claim_of_model",
    "collector_held",
    "network_error",
    "obstacle",
    "offers",
    "raise_opset",
    "record_document",
    "record_of",
    "refusal",
    "reweigh",
    "rewrite",
    "rewrite_list",
    "rewrites",
    "rewrites_page",
    "verify",
    "whole_network",
]

__getattr__ = lazy(
    __name__,
    {
        "_all": "APPROXIMATE rewrites",
        "_apply": "rewrite",
        "_chosen": "chosen",
        "_claim": "Claim claim_of_document claim_of_model",
        "_collector": "collector_held",
        "_docs": "rewrites_page",
        "_list": "rewrite_list",
        "_offer": "offers",
        "_raise_opset": "obstacle raise_opset",
        "_record": "record_document",
        "_record_read": "record_of",
        "_reweigh": "check_file reweigh",
        "_same_network": "check_network",
        "_types": "Applied Match Node Rewrite",
        "_verify": "refusal verify",
        "_whole": "network_error whole_network",
    },
)
make_callable(__name__)
