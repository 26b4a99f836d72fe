"""Activations, scales, arithmetic and logic.

What has no exact form in the DLA's operations stands in ``dla/reconstruction.yaml`` (``without``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite.pointwise._approx_gelu_erf import ApproxGeluErf
from edgekit.rewrite.pointwise._approx_gelu_sigmoid import ApproxGeluSigmoid
from edgekit.rewrite.pointwise._approx_mish import ApproxMish
from edgekit.rewrite.pointwise._approx_sigmoid_hard_sigmoid import ApproxSigmoidHardSigmoid
from edgekit.rewrite.pointwise._approx_silu_hard_swish import ApproxSiluHardSwish
from edgekit.rewrite.pointwise._approx_softplus_relu import ApproxSoftplusRelu
from edgekit.rewrite.pointwise._broadcast_operand import BroadcastOperand
from edgekit.rewrite.pointwise._clip import Clip
from edgekit.rewrite.pointwise._compare_constant import CompareConstant
from edgekit.rewrite.pointwise._elu import Elu
from edgekit.rewrite.pointwise._gelu_tanh import GeluTanh
from edgekit.rewrite.pointwise._hard_sigmoid import HardSigmoid
from edgekit.rewrite.pointwise._hard_swish import HardSwish
from edgekit.rewrite.pointwise._identity import Identity
from edgekit.rewrite.pointwise._leaky_relu import LeakyRelu
from edgekit.rewrite.pointwise._logic import Logic
from edgekit.rewrite.pointwise._max_min_constant import MaxMinConstant
from edgekit.rewrite.pointwise._mean_op import MeanOp
from edgekit.rewrite.pointwise._min_op import MinOp
from edgekit.rewrite.pointwise._mish import Mish
from edgekit.rewrite.pointwise._neg import Neg
from edgekit.rewrite.pointwise._pow import Pow
from edgekit.rewrite.pointwise._prelu import Prelu
from edgekit.rewrite.pointwise._prelu_form import PreluForm
from edgekit.rewrite.pointwise._reciprocal import Reciprocal
from edgekit.rewrite.pointwise._relu_form import ReluForm
from edgekit.rewrite.pointwise._scale_chain import ScaleChain
from edgekit.rewrite.pointwise._scale_form import ScaleForm
from edgekit.rewrite.pointwise._sigmoid_form import SigmoidForm
from edgekit.rewrite.pointwise._silu import Silu
from edgekit.rewrite.pointwise._soft_shrink import SoftShrink
from edgekit.rewrite.pointwise._softsign import Softsign
from edgekit.rewrite.pointwise._sub import Sub
from edgekit.rewrite.pointwise._where import Where

if TYPE_CHECKING:
    from edgekit.rewrite._types import Rewrite

__all__ = ["REWRITES"]

# in the order in which they are tried at a node: whole functions before their parts
REWRITES: tuple[Rewrite, ...] = (
    HardSwish(),
    HardSigmoid(),
    GeluTanh(),
    Silu(),
    SigmoidForm(),
    Mish(),
    Elu(),
    Softsign(),
    SoftShrink(),
    PreluForm(),
    Prelu(),
    LeakyRelu(),
    MaxMinConstant(),
    Clip(),
    ReluForm(),
    Where(),
    Logic(),
    CompareConstant(),
    ScaleChain(),
    ScaleForm(),
    BroadcastOperand(),
    Identity(),
    Neg(),
    Pow(),
    Reciprocal(),
    MeanOp(),
    MinOp(),
    Sub(),
    ApproxGeluErf(),
    ApproxGeluSigmoid(),
    ApproxMish(),
    ApproxSiluHardSwish(),
    ApproxSigmoidHardSigmoid(),
    ApproxSoftplusRelu(),
)
