"""Convolution and deconvolution: NvInfer.h (IConvolutionLayer, IDeconvolutionLayer), guide 8.5."""

from __future__ import annotations

from typing import Any

from tests.dla.limits.cases import ALWAYS, IN_FP16, IN_INT8, NEVER, Case, since
from tests.dla.limits.sheet import Branch, conv, deconv, op

LONG = "1x{64, 96, 128}"
IN_8_6 = since("8.6")


def _case(rule: str, inside: Branch, outside: Branch, found: str, limit: str, **more: Any) -> Case:
    return Case(f"convolution.{rule}", inside, outside, found, limit, **more)


def _row(width: int) -> Branch:
    """512 channels, 1x1: 1 bank of weights, and W / 64 banks of data in INT8, W / 32 in FP16."""
    return conv(1, 1, channels=512, size=(1, width))


def _dilated(dilation: int) -> Branch:
    """32 channels, 512 wide: 1 bank of weights and, in FP16, one bank a row of 2 x dilation + 1."""
    return conv(3, 1, channels=32, size=(2 * dilation + 1, 512), dilations=[dilation, 1])


def _full(inside: Branch, outside: Branch, found: str, **more: Any) -> tuple[Case, Case]:
    """What fills the buffer in FP16: refused before TensorRT 8.6, a risk from then on."""
    limit = "fewer than 16"
    return (
        _case("cbuf_limit", inside, outside, found, limit, breaks=~IN_8_6, disputed=ALWAYS, **more),
        _case(
            "cbuf_unsure",
            inside,
            outside,
            found,
            limit,
            breaks=IN_8_6,
            risk=True,
            outside_ok=NEVER,
            **more,
        ),
    )


CONVOLUTION = [
    _case("kernel", conv(32, 32), conv(33, 32), "33x32", "1..32"),
    _case("kernel", conv(1, 32), conv(1, 33), "1x33", "1..32"),
    _case("padding", conv(32, 32, pads=[31] * 4), conv(32, 32, pads=[31, 31, 32, 31]), "32",
          "0..31"),
    # a kernel of 33 by dilation leaves room for a padding of 32
    _case("padding", conv(32, 1, pads=[31, 0, 31, 0]),
          conv(17, 1, dilations=[2, 1], pads=[32, 0, 0, 0]), "32", "0..31"),
    _case("padding_kernel", conv(3, 3, pads=[2] * 4), conv(3, 3, pads=[2, 2, 2, 3]), "2x2x2x3",
          "3x3"),
    _case("padding_kernel", conv(1, 1), conv(1, 1, pads=[1, 0, 0, 0]), "1x0x0x0", "1x1"),
    _case("padding_kernel", conv(3, 3, dilations=[2, 2], pads=[4] * 4),
          conv(3, 3, dilations=[2, 2], pads=[4, 5, 4, 4]), "4x5x4x4", "5x5"),
    _case("padding_dilated", conv(3, 3, dilations=[2, 2], pads=[2] * 4),
          conv(3, 3, dilations=[2, 2], pads=[3, 2, 2, 2]), "3x2x2x2", "3x3", risk=True),
    _case("stride", conv(3, 3, size=(20, 20), strides=[8, 8]),
          conv(3, 3, size=(20, 20), strides=[8, 9]), "8x9", "1..8"),
    _case("dilation", conv(3, 3, dilations=[32, 32]), conv(3, 3, dilations=[32, 33]), "32x33",
          "1..32"),
    _case("output_maps", conv(1, 1, maps=8192), conv(1, 1, maps=8193), "8193", "1..8192"),
    _case("groups", conv(1, 1, channels=8192, maps=8192, groups=8192),
          conv(1, 1, channels=8193, maps=8193, groups=8193), "8193", "1..8192"),
    _case("weights", conv(3, 3), op("Conv", (1, 4, 8, 8), (4, 4, 3, 3)), "computed", "constant"),
    _case("dims", conv(3, 3), conv(3, 3, 3), "3", "2"),
    _case("dims", conv(3), conv(1, 1, 1), "3", "2", kind="CONVOLUTION"),
    # 15 banks are certain; 16, in INT8 what has 16 or more in FP16, was refused by TensorRT 8.5.2
    # and is a risk later; 17 a refusal
    *_full(_row(448), _row(480), "16", tried=IN_FP16),
    _case("cbuf", _row(448), _row(481), "17", "16", breaks=IN_FP16, outside_ok=IN_8_6),
    *_full(_row(448), _row(896), "29", tried=IN_INT8),
    _case("cbuf", _row(960), _row(961), "17", "16", inside_ok=IN_8_6, tried=IN_INT8),
    # NVIDIA/TensorRT#3499: TensorRT 8.5.2 refused it in a build for INT8 and FP16
    *_full(conv(3, 3, channels=512, size=(3, 80)), conv(3, 3, channels=512, size=(3, 160), maps=1),
           "16"),
    _case("cbuf", _dilated(6), _dilated(8), "18", "16", breaks=IN_FP16, outside_ok=IN_8_6),
    *_full(_dilated(6), _dilated(7), "16"),
    # 32x32 on 32x32: a bank of weights and a bank of data for every 32 bytes of channels
    _case("cbuf", conv(32, 32, channels=96, maps=1), conv(32, 32, channels=257, maps=1), "18",
          "16", tried=IN_INT8),
    _case("cbuf", conv(32, 32, channels=112, maps=1), conv(32, 32, channels=129, maps=1), "18",
          "16", breaks=IN_FP16, outside_ok=IN_8_6),
    # a kernel of a grouped convolution has the channels of one group
    *_full(conv(32, 32, channels=96, maps=8, groups=8), conv(32, 32, channels=128, maps=1), "16"),
    # VGG's fc6: 4096 x 512 x 7 x 7
    _case("full_window", conv(7, 7, channels=512, maps=4095), conv(7, 7, channels=512, maps=4096),
          "102760448", "fewer weights than", risk=True),
]  # fmt: skip


def _de(rule: str, inside: Branch, outside: Branch, found: str, limit: str, **more: Any) -> Case:
    return Case(f"deconvolution.{rule}", inside, outside, found, limit, **more)


DECONVOLUTION = [
    _de("kernel", deconv(32, 1), deconv(33, 1), "33x1", "1..32"),
    _de("kernel", deconv(1, 32), deconv(1, 63), "1x63", LONG),
    _de("kernel", deconv(1, 64), deconv(1, 65), "1x65", LONG),
    _de("kernel", deconv(64, 1), deconv(65, 1), "65x1", LONG),
    _de("kernel", deconv(1, 96), deconv(1, 97), "1x97", LONG),
    _de("kernel", deconv(96, 1), deconv(95, 1), "95x1", LONG),
    _de("kernel", deconv(1, 128), deconv(1, 129), "1x129", LONG),
    _de("kernel", deconv(128, 1), deconv(128, 2), "128x2", LONG),
    _de("kernel", deconv(1, 64), deconv(64, 64), "64x64", LONG),
    _de("stride", deconv(1, 1, strides=[32, 1]), deconv(1, 1, strides=[33, 1]), "33x1", "1..32"),
    _de("stride", deconv(1, 1, strides=[1, 64]), deconv(1, 1, strides=[1, 65]), "1x65", LONG),
    _de("stride", deconv(1, 1, strides=[96, 1]), deconv(1, 1, strides=[95, 1]), "95x1", LONG),
    _de("stride", deconv(1, 1, strides=[128, 1]), deconv(1, 1, strides=[128, 2]), "128x2", LONG),
    *(
        _de("stride", deconv(1, 1, strides=inside), deconv(1, 1, strides=outside), "x", LONG)
        for inside, outside in (
            ([1, 96], [1, 97]), ([1, 128], [1, 127]), ([64, 1], [65, 1]), ([1, 96], [2, 96]),
        )
    ),
    _de("square_kernel", deconv(22, 22), deconv(23, 23), "23", "23x23 to 32x32"),
    _de("square_kernel", deconv(31, 32), deconv(32, 32), "32", "23x23 to 32x32"),
    _de("square_kernel", deconv(23, 24), deconv(27, 27), "27", "23x23 to 32x32"),
    _de("square_stride", deconv(1, 1, strides=[22, 22]), deconv(1, 1, strides=[23, 23]), "23",
        "23x23 to 32x32"),
    _de("square_stride", deconv(1, 1, strides=[32, 31]), deconv(1, 1, strides=[32, 32]), "32",
        "23x23 to 32x32"),
    _de("padding", deconv(3, 3), deconv(3, 3, pads=[0, 0, 0, 1]), "0x0x0x1", "0"),
    _de("padding", deconv(2, 2, strides=[2, 2], auto_pad="SAME_UPPER"),
        deconv(3, 3, strides=[1, 1], auto_pad="SAME_UPPER"), "1x1x1x1", "0"),
    # output padding is taken out of the padding at the end, which leaves that at the beginning
    _de("padding", deconv(2, 2, strides=[2, 2]),
        deconv(3, 3, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]), "1x1x0x0", "0"),
    _de("groups", deconv(2, 2, channels=2), deconv(2, 2, channels=2, groups=2), "2", "1"),
    _de("dilation", deconv(2, 2), deconv(2, 2, dilations=[1, 2]), "1x2", "1"),
    _de("channels", deconv(1, 1, maps=8192), deconv(1, 1, maps=8193), "8193", "1..8192"),
    _de("channels", deconv(1, 1, channels=8192), deconv(1, 1, channels=8193), "8193", "1..8192"),
    _de("weights", deconv(2, 2), op("ConvTranspose", (1, 1, 2, 2), (1, 1, 2, 2)), "computed",
        "constant"),
    _de("dims", deconv(2, 2), deconv(2, 2, 2, size=(2, 2, 2)), "3", "2"),
]  # fmt: skip

CASES = [*CONVOLUTION, *DECONVOLUTION]
