"""Preprocessing of calibration data, and the preprocessing that common network families need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from edgekit.quantize.data.images import ImageOptions, with_preset
from edgekit.quantize.data.rows import row_layout
from edgekit.text import yaml_line

if TYPE_CHECKING:
    from edgekit.network.model import Model
    from edgekit_device.detection.head import Head

#: Kinds of calibration data; arrays come from files or a function.
DataKind = Literal["images", "arrays", "synthetic"]
_CLASSES = (1000, 1001)
_COLOURS = 3
# sides of Ultralytics' models are multiples of their largest stride
_STRIDE, _LEAST = 32, 320


@dataclass(frozen=True)
class ModelTraits:
    """The properties of a model that the hint is based on.

    Attributes:
        name: The only input's name.
        shape: Its shape, of four dimensions.
        outputs: Shapes of the outputs, -1 for an open dimension.
    """

    name: str
    shape: tuple[int, ...]
    outputs: tuple[tuple[int, ...], ...]

    @property
    def first(self) -> bool:
        """True if the input holds RGB images with channels before rows and columns."""
        return self.shape[1] == _COLOURS

    @property
    def last(self) -> bool:
        """True if the input holds RGB images with channels last."""
        return self.shape[3] == _COLOURS and not self.first

    @property
    def classes(self) -> int:
        """Number of ImageNet classes of an output (with or without a background class), or 0."""
        return next((s[-1] for s in self.outputs if s and s[-1] in _CLASSES), 0)

    def __str__(self) -> str:
        classes = f", {self.classes} classes" if self.classes else ""
        return f"input {self.name!r} {'x'.join(map(str, self.shape))}{classes}"


@dataclass(frozen=True)
class Family:
    """Networks that need the same preprocessing.

    Attributes:
        name: The library or origin of the networks.
        wants: Their preprocessing, in the configuration's keys.
        source: The source of this preprocessing.
        fits: Returns True if a network looks like this family.
    """

    name: str
    wants: str
    source: str
    fits: Callable[[ModelTraits], bool]


def _fits_ultralytics(looks: ModelTraits) -> bool:
    high, wide = looks.shape[2:]
    fits = looks.first and min(high, wide) >= _LEAST and not (high % _STRIDE or wide % _STRIDE)
    # the raw result of a YOLO detector, such as [1, 84, 8400]: more places than classes
    detects = high == wide == 640 and any(
        len(shape) == 3 and max(shape) > _CLASSES[-1] for shape in looks.outputs
    )
    return fits and not looks.classes and (looks.name == "images" or detects)


#: The families, the more special first.
FAMILIES = (
    Family(
        "Ultralytics",
        "calibration: {preset: yolo} (pixels from 0 to 1, mean and std: none)",
        "github.com/ultralytics/ultralytics, ultralytics/data/augment.py (LetterBox) and "
        "ultralytics/engine/predictor.py (preprocess: im /= 255)",
        _fits_ultralytics,
    ),
    Family(
        "torchvision",
        "calibration: {preset: imagenet} (mean 0.485, 0.456, 0.406, std 0.229, 0.224, 0.225)",
        "github.com/pytorch/vision, torchvision/transforms/_presets.py (ImageClassification)",
        lambda looks: looks.first and looks.classes > 0,
    ),
    Family(
        "Keras",
        "calibration: {preset: tf} (MobileNet, Inception, Xception: pixels from -1 to 1) or "
        "{preset: caffe} (ResNet, VGG: BGR less the means)",
        "github.com/keras-team/keras, keras/src/applications/imagenet_utils.py "
        "(preprocess_input, modes tf and caffe)",
        lambda looks: looks.last and min(looks.shape[1:3]) >= _STRIDE,
    ),
)


@dataclass(frozen=True)
class HeadPictures:
    """The preparation of pictures with which networks of a kind of head were trained.

    Attributes:
        name: The networks.
        options: The preparation. Bars of a letterbox have the mean colour if their value after
            the normalisation is 0 in the source.
        source: The source of this preparation.
        fits: Returns True if a head is of this kind.
    """

    name: str
    options: ImageOptions
    source: str
    fits: Callable[[Head], bool]

    @property
    def keys(self) -> dict[str, object]:
        """The preparation by keys of the configuration's ``calibration``."""
        return {key: value for key, value in asdict(self.options).items() if value is not None}

    @property
    def yaml(self) -> str:
        """The line of a configuration that gives this preparation."""
        return yaml_line({"calibration": self.keys})


def _vgg16(head: Head) -> bool:
    """Returns True for SSD300 of VGG16: 4 priors at each place of its first map."""
    return head.family == "SSD" and head.prior is not None and len(head.prior.levels[0].priors) == 4


# Each network is trained with one of these; its weights do not show which. The first row that fits
# counts, so special rows precede general rows, and the last row fits every head. A file that
# normalises its input itself is not recognised as such: its user gives the options.
HEAD_PICTURES = (
    HeadPictures(
        "YOLOX",
        ImageOptions(resize="letterbox", pad=114, color="BGR", scale=1.0),
        "github.com/Megvii-BaseDetection/YOLOX, yolox/data/data_augment.py (preproc)",
        lambda head: head.point is not None,
    ),
    HeadPictures(
        "SSD300 of VGG16",
        ImageOptions(resize="stretch", scale=1.0, mean=[123.0, 117.0, 104.0]),
        "github.com/pytorch/vision, torchvision/models/detection/ssd.py (image_mean, image_std)",
        _vgg16,
    ),
    HeadPictures(
        "SSD of MobileNet",
        ImageOptions(resize="stretch", mean=[0.5], std=[0.5]),
        "github.com/pytorch/vision, torchvision/models/detection/ssdlite.py (image_mean)",
        lambda head: head.family == "SSD",
    ),
    HeadPictures(
        "RetinaFace",
        ImageOptions(
            resize="letterbox",
            pad=[104, 117, 123],
            color="BGR",
            scale=1.0,
            mean=[104.0, 117.0, 123.0],
        ),
        "github.com/biubug6/Pytorch_Retinaface, detect.py",
        lambda head: head.family == "RetinaFace",
    ),
    HeadPictures(
        "RetinaNet",
        ImageOptions(preset="imagenet", resize="letterbox", pad=[124, 116, 104]),
        "github.com/pytorch/vision, torchvision/models/detection/transform.py",
        lambda head: head.prior is not None,
    ),
    HeadPictures(
        "RT-DETR and D-FINE",
        ImageOptions(resize="stretch"),
        "github.com/huggingface/transformers, RTDetrImageProcessor (do_normalize=False), and "
        "github.com/ultralytics/ultralytics, RTDETRPredictor (scale_fill)",
        lambda head: head.family in ("RT-DETR", "D-FINE"),
    ),
    HeadPictures(
        "DETR",
        ImageOptions(preset="imagenet", resize="stretch"),
        "github.com/huggingface/transformers, DetrImageProcessor; a fixed size stretches pictures",
        lambda head: head.query is not None,
    ),
    HeadPictures(
        "PaddleOCR's detector",
        ImageOptions(preset="imagenet", resize="stretch", color="BGR"),
        "github.com/PaddlePaddle/PaddleOCR, configs/det/ch_PP-OCRv3/ch_PP-OCRv3_det_student.yml "
        "(DecodeImage img_mode: BGR, NormalizeImage)",
        lambda head: head.text_map is not None,
    ),
    HeadPictures(
        "PaddleOCR's recogniser",
        ImageOptions(resize="letterbox", pad=128, color="BGR", mean=[0.5], std=[0.5]),
        "github.com/PaddlePaddle/PaddleOCR, tools/infer/predict_rec.py (resize_norm_img)",
        lambda head: head.text_line is not None,
    ),
    HeadPictures(
        "Ultralytics",
        ImageOptions(preset="yolo"),
        "github.com/ultralytics/ultralytics, ultralytics/data/augment.py (LetterBox)",
        lambda head: True,
    ),
)


def head_pictures(head: Head) -> HeadPictures:
    """Returns the usual preparation of pictures for a network with this head."""
    return next(pictures for pictures in HEAD_PICTURES if pictures.fits(head))


def recognise_family(model: Model) -> tuple[Family, ModelTraits] | None:
    """Returns the family that a network looks like, with the evidence; None if it fits none."""
    specs = row_layout(model).specs
    if len(specs) != 1:
        return None
    name, (dtype, shape) = next(iter(specs.items()))
    if len(shape) != 4 or dtype.kind != "f":
        return None
    outputs = tuple(
        tuple(dim.dim_value or -1 for dim in value.type.tensor_type.shape.dim)
        for value in model.proto.graph.output
    )
    looks = ModelTraits(name, tuple(shape), outputs)
    return next(((family, looks) for family in FAMILIES if family.fits(looks)), None)


def describe_preprocessing(
    model: Model, given: ImageOptions, kind: DataKind, *, hint: bool = True
) -> str:
    """Returns a line with the preprocessing of calibration data and that usual for the network.

    Args:
        model: The model.
        given: The image options.
        kind: The kind of the data.
        hint: False if ``given`` is the usual preprocessing.
    """
    if kind == "images":
        text = f"Preprocessing: {_describe_options(given)}"
    elif kind == "arrays":
        text = "Preprocessing: none, arrays are used as they are; mean and std: none"
    else:
        text = "Preprocessing: none, inputs are synthetic; mean and std: none"
    found = recognise_family(model) if hint else None
    if found is None or (
        kind == "images" and (given.preset, given.mean, given.std, given.scale) != (None,) * 4
    ):
        return text
    family, looks = found
    how = {"images": "", "arrays": "; prepare arrays likewise", "synthetic": ", with images"}[kind]
    return (
        f"{text}. Networks of {family.name} look like this ({looks}) and want {family.wants}{how}"
    )


def _describe_options(given: ImageOptions) -> str:
    own = with_preset(given, _COLOURS)
    parts = [
        f"resize {'cover' if own.resize is None else own.resize}",
        f"pixels times {'1/255' if own.scale is None else format(own.scale, 'g')}",
    ]
    for key, values in (("mean", own.mean), ("std", own.std)):
        if values is not None:
            parts.append(f"{key} {', '.join(f'{value:g}' for value in values)}")
    if own.mean is None and own.std is None:
        parts.append("mean and std: none")
    preset = f" (preset {given.preset})" if given.preset is not None else ""
    return ", ".join(parts) + preset
