"""The rewrites of this subject in the order in which they are tried at a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewriting.rules.pointwise.activations import (
    Elu,
    HardSigmoid,
    HardSwish,
    Mish,
    SigmoidForm,
    Silu,
    SoftShrink,
    Softsign,
)
from edgekit.rewriting.rules.pointwise.approximations import (
    ApproxGeluErf,
    ApproxGeluSigmoid,
    ApproxMish,
    ApproxSigmoidHardSigmoid,
    ApproxSiluHardSwish,
    ApproxSoftplusRelu,
)
from edgekit.rewriting.rules.pointwise.arithmetic import (
    Identity,
    MeanOp,
    MinOp,
    Neg,
    Pow,
    Reciprocal,
    ScaleChain,
    ScaleForm,
    Sub,
)
from edgekit.rewriting.rules.pointwise.broadcasting import BroadcastOperand
from edgekit.rewriting.rules.pointwise.clipping import Clip, MaxMinConstant
from edgekit.rewriting.rules.pointwise.gelu import GeluTanh
from edgekit.rewriting.rules.pointwise.logic import CompareConstant, Logic, Where
from edgekit.rewriting.rules.pointwise.rectifiers import LeakyRelu, Prelu, PreluForm, ReluForm

if TYPE_CHECKING:
    from edgekit.rewriting.graph import Rewrite


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
