"""Fake quantisation of quantisation-aware training, as QuantizeLinear and DequantizeLinear.

Fake quantisers read switches and measure ranges while they run, which cannot be exported. In the
exported copy each is replaced by PyTorch's operator with the same values, which both exporters
write as QuantizeLinear and DequantizeLinear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

_INT8, _UINT8 = (-128, 127), (0, 255)
# both symmetric ranges are INT8 for TensorRT: they differ only in saturated negative values
_RANGES = {(-128, 127): _INT8, (-127, 127): _INT8, (0, 255): _UINT8, (0, 127): (0, 127)}


@dataclass(frozen=True)
class _Scales:
    """Scales and zero points of a quantiser: a single value, or a value for each index of
    ``axis``.
    """

    scale: Tensor
    zero: Tensor
    axis: int | None
    codes: tuple[int, int]


def fix_scales(module: nn.Module) -> int:
    """Replaces a module's fake quantisers by operators with their scales, in place.

    Takes PyTorch's (``FakeQuantize`` and its subclasses) and NVIDIA's (``TensorQuantizer`` of
    ModelOpt and pytorch-quantization). A quantiser that is switched off becomes the identity.

    Returns:
        Number of quantisers that are switched on.

    Raises:
        ModelError: "torch.fake_quant": a quantiser has no scale yet, or is not of 8 bits.
    """
    import torch

    found = 0
    # a list, since the loop replaces modules
    for path, quantiser in list(module.named_modules()):
        if isinstance(quantiser, torch.ao.quantization.FakeQuantizeBase):
            is_on, read = bool(quantiser.fake_quant_enabled[0]), _pytorch_scales
        elif any(base.__qualname__ == "TensorQuantizer" for base in type(quantiser).__mro__):
            is_on, read = not getattr(quantiser, "_disabled", False), _nvidia_scales
        else:
            continue
        module.set_submodule(
            path, _operator(read(path, quantiser)) if is_on else torch.nn.Identity()
        )
        found += is_on
    return found


def _pytorch_scales(path: str, quantiser: Any) -> _Scales:
    codes = _RANGES.get((int(quantiser.quant_min), int(quantiser.quant_max)))
    if codes is None:
        raise _refusal(path, f"quantises to {int(quantiser.quant_min)}..{int(quantiser.quant_max)}")
    shifted = quantiser.zero_point[quantiser.zero_point != 0]
    if len(shifted):
        raise _refusal(
            path,
            f"has asymmetric codes (zero point {int(shifted[0])}), which TensorRT lacks",
            hint="train with symmetric codes: -128..127 with zero point 0 (torch.qint8, "
            "torch.per_tensor_symmetric)",
        )
    axis = int(quantiser.ch_axis) if quantiser.is_per_channel else None
    return _Scales(
        quantiser.scale.detach().float(), quantiser.zero_point.detach().int(), axis, codes
    )


def _nvidia_scales(path: str, quantiser: Any) -> _Scales:
    import torch

    if quantiser.num_bits != 8 or getattr(quantiser, "block_sizes", None):
        raise _refusal(path, f"has the format {quantiser.num_bits}")
    amax = getattr(quantiser, "_amax", None)
    if amax is None:
        raise _refusal(path, "has no range yet", hint="calibrate it before: mtq.calibrate")
    codes = _UINT8 if quantiser._unsigned else _INT8
    axis = quantiser.axis[0] if isinstance(quantiser.axis, tuple | list) else quantiser.axis
    scale = amax.detach().float().flatten() / codes[1]
    return _Scales(scale, torch.zeros_like(scale, dtype=torch.int32), axis, codes)


def _refusal(path: str, problem: str, hint: str = "") -> ModelError:
    return ModelError(
        f"the fake quantiser {path} {problem}",
        code="torch.fake_quant",
        where=path,
        hint=hint
        or "INT8 of TensorRT has the codes -128..127; switch it off, or leave its module "
        "in PyTorch",
    )


def _operator(scales: _Scales) -> nn.Module:
    """Returns a module that quantises and dequantises by PyTorch's operator."""
    import torch

    class Quantised(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        scale: Tensor
        zero: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", scales.scale.flatten())
            self.register_buffer("zero", scales.zero.flatten())
            # as numbers: a read of a tensor's value in `forward` cannot be exported
            self.only = (float(self.scale[0]), int(self.zero[0]))

        def forward(self, values: Tensor) -> Tensor:
            if scales.axis is None or len(self.scale) == 1:
                return torch.fake_quantize_per_tensor_affine(values, *self.only, *scales.codes)
            return torch.fake_quantize_per_channel_affine(
                values, self.scale, self.zero, scales.axis, *scales.codes
            )

    return Quantised()
