"""The section of the configuration that says where INT8 scales come from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from edgekit.config._section import FilePath, Positive, Section

__all__ = ["CalibrationSection"]

_LARGEST = 1 << 16
Pixels = Annotated[int, Field(ge=1, le=_LARGEST)]
Sides = Annotated[list[Pixels], Field(min_length=2, max_length=2)]
Share = Annotated[float, Field(gt=0, le=1)]
Level = Annotated[int, Field(ge=0, le=255)]


class CalibrationSection(Section):
    """Where INT8 scales come from."""

    data: FilePath = Field(
        None,
        description="A folder of images, an `.npz` or `.npy` file or a folder of them, relative "
        "to this file, or `python:module:function`, which runs that function; see "
        "[calibration.md](calibration.md). Synthetic seeded inputs when absent, and said so.",
        examples=["images/"],
    )
    cache: FilePath = Field(
        None, description="A TensorRT calibration cache to use instead of data."
    )
    missing: Literal["error", "fp16"] = Field(
        "error",
        description="What a tensor without a scale in the cache means: an error, or FP16 for the "
        "layers that need it.",
    )
    method: Literal["auto", "entropy", "minmax", "percentile", "mse"] = Field(
        "auto",
        description="How a range follows from the values seen; `auto` is the method with the best "
        "SNR on inputs held out, measured here for each network.",
    )
    count: int = Field(
        16, ge=1, le=100_000, description="At most this many samples (of a batch of one)."
    )
    pick: Literal["first", "spread"] = Field(
        "first", description="Which samples of more than `count`: the first, or evenly spread ones."
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of the synthetic inputs.")
    preset: Literal["imagenet", "yolo", "tf", "caffe"] | None = Field(
        None,
        description="Values of the keys below as well-known training pipelines have them; a key "
        "that is given wins.",
    )
    resize: Literal["cover", "letterbox", "stretch"] | Pixels | Sides | None = Field(
        None,
        description="How an image becomes as large as the input: `cover` it and cut the rest off "
        "(the default), fit into it with bars (`letterbox`), `stretch`, or the shorter side or "
        "[height, width] in pixels, from whose middle the input is cut.",
        examples=[256],
    )
    crop: Share | Pixels | Sides | None = Field(
        None,
        description="The middle that is kept: a share of the sides with `resize: cover`, or the "
        "input's size in pixels.",
        examples=[0.875],
    )
    pad: Level | list[Level] | None = Field(
        None, description="Colour of a letterbox's bars, one value or one per channel; 114."
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "area"] | None = Field(
        None, description="Pillow's filter for resizing; `bilinear`."
    )
    color: Literal["RGB", "BGR", "gray"] | None = Field(
        None, description="Order of the channels; `RGB`, and `gray` for an input with one channel."
    )
    scale: Positive | None = Field(
        None, description="What pixels 0 to 255 are multiplied by before mean and std; 1/255."
    )
    mean: list[float] | None = Field(
        None, description="Per-channel mean of image data, after `scale`, in the order of `color`."
    )
    std: list[float] | None = Field(
        None, description="Per-channel deviation of image data, likewise."
    )
    layout: Literal["NCHW", "NHWC"] | None = Field(
        None,
        description="Layout of image data; `NHWC` where only the input's last dimension can be "
        "channels, `NCHW` otherwise.",
    )
    skip_broken: bool = Field(
        False, description="Leave out images that cannot be read, and say which."
    )
    fp16_layers: list[str] = Field(
        default_factory=list,
        description="Globs over names of layers and ONNX nodes that are kept in FP16; see "
        "[sensitivity.md](sensitivity.md).",
        examples=[["conv1", "head.*"]],
    )

    @model_validator(mode="after")
    def _one_source(self) -> CalibrationSection:
        if self.data is not None and self.cache is not None:
            raise ValueError("give 'data' or 'cache', not both")
        return self

    @field_validator("resize", "crop", mode="before")
    @classmethod
    def _sizes(cls, value: object, info: ValidationInfo) -> object:
        # a union would tell of one of its members only
        words = ("cover", "letterbox", "stretch")
        resize = info.field_name == "resize"
        if value is None or (resize and isinstance(value, str) and value in words):
            return value
        if not resize and isinstance(value, float) and 0 < value <= 1:
            return value
        sides = value if isinstance(value, list) and len(value) == 2 else [value]
        if all(type(side) is int and 1 <= side <= _LARGEST for side in sides):
            return value
        first = ", ".join(words) if resize else "a share such as 0.875"
        raise ValueError(f"give {first}, a size in pixels or [height, width]")
