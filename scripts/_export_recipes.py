"""Which networks scripts/make_exports.py exports, and how each is built from a public package."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["RECIPES", "Recipe"]

Make = Callable[[], Any]
Shapes = Mapping[str, tuple[int, ...]]
SEGMENTERS = {"deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large"}
DETECTORS = {
    "ssd300_vgg16",
    "ssdlite320_mobilenet_v3_large",
    "retinanet_resnet50_fpn",
    "fasterrcnn_mobilenet_v3_large_320_fpn",
    "fcos_resnet50_fpn",
}

SMALL: Shapes = {"images": (2, 3, 64, 96)}
SDPA = {"DistilBertModel", "ViTModel", "Dinov2Model"}
TOKENS = {"input_ids": (1, 128), "attention_mask": (1, 128)}
WORDS = {"input_ids": 1000, "attention_mask": 2}
LAST = "last_hidden_state"
BOXES = "logits pred_boxes"
NO_TIMM = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}


@dataclass(frozen=True)
class Recipe:
    """How one export is made.

    Attributes:
        family: The network's task.
        package: The PyPI package with the network's code.
        make: Returns a PyTorch module, or the ONNX file's bytes.
        inputs: Shape by input name; for a module only.
        dynamo: With PyTorch's newer exporter.
        opset: Version of ONNX's own operators to ask for.
        half: In FP16.
        integers: Upper bound by the name of an integer input.
        exporter: The PyPI package that writes the ONNX file.
    """

    family: str
    package: str
    make: Make
    inputs: Shapes = field(default_factory=dict)
    dynamo: bool = False
    opset: int = 17
    half: bool = False
    integers: Mapping[str, int] = field(default_factory=dict)
    exporter: str = "torch"


RECIPES: dict[str, Recipe] = {}


def image(size: int, name: str = "images") -> Shapes:
    """The one input of a network for images."""
    return {name: (1, 3, size, size)}


def pick_outputs(inner: Any, pick: Callable[..., Any]) -> Any:
    """A module that calls ``pick(inner, *inputs)``."""
    import torch

    class Picked(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *inputs: Any) -> Any:
            return pick(self.inner, *inputs)

    return Picked()


# --- torchvision


def vision(kind: str, pick: Callable[..., Any] | None = None, /, **options: Any) -> Make:
    """A model of torchvision without trained weights."""

    def make() -> Any:
        import torchvision

        if "backbone" in kind or kind in DETECTORS or kind in SEGMENTERS:
            options.setdefault("weights_backbone", None)
        model = torchvision.models.get_model(kind, weights=None, **options)
        return pick_outputs(model, pick) if pick else model

    return make


def main_output(model: Any, x: Any) -> Any:
    """The segmentation's main result."""
    return model(x)["out"]


def heads(model: Any, x: Any) -> Any:
    """An SSD's classes and boxes before the suppression."""
    result = model.head(list(model.backbone(x).values()))
    return result["cls_logits"], result["bbox_regression"]


def detections(model: Any, x: Any) -> Any:
    """A detector's boxes, scores and labels after the suppression."""
    result = model([x[0]])[0]
    return result["boxes"], result["scores"], result["labels"]


for kind, dynamo, opset, size in [
    ("resnet18", False, 13, 224),
    ("resnet50", True, 18, 224),
    ("resnext50_32x4d", False, 17, 224),
    ("mobilenet_v2", False, 11, 224),
    ("mobilenet_v3_large", True, 18, 224),
    ("mobilenet_v3_small", False, 17, 224),
    ("efficientnet_b0", False, 17, 224),
    ("efficientnet_v2_s", True, 20, 224),
    ("densenet121", False, 17, 224),
    ("googlenet", False, 17, 224),
    ("inception_v3", True, 18, 299),
    ("squeezenet1_1", False, 9, 224),
    ("shufflenet_v2_x1_0", False, 13, 224),
    ("mnasnet1_0", False, 17, 224),
    ("regnet_y_400mf", True, 18, 224),
    ("vgg11_bn", False, 12, 224),
    ("alexnet", True, 18, 224),
    ("convnext_tiny", True, 18, 224),
    ("swin_t", False, 17, 224),
    ("swin_v2_t", True, 18, 224),
    ("vit_b_16", True, 18, 224),
    ("maxvit_t", False, 17, 224),
]:
    aux = (
        {"aux_logits": False, "init_weights": True} if kind in {"googlenet", "inception_v3"} else {}
    )
    RECIPES[kind] = Recipe(
        "classification", "torchvision", vision(kind, **aux), image(size), dynamo, opset
    )
for kind, dynamo, size in [
    ("deeplabv3_mobilenet_v3_large", False, 520),
    ("fcn_resnet50", True, 520),
    ("lraspp_mobilenet_v3_large", False, 520),
]:
    RECIPES[kind] = Recipe(
        "segmentation", "torchvision", vision(kind, main_output), image(size), dynamo, 18
    )
for kind, pick, dynamo, size in [
    ("ssd300_vgg16", heads, False, 300),
    ("ssdlite320_mobilenet_v3_large", heads, True, 320),
    ("retinanet_resnet50_fpn", heads, False, 512),
]:
    RECIPES[kind] = Recipe("detection", "torchvision", vision(kind, pick), image(size), dynamo, 18)
RECIPES["ssdlite320_nms"] = Recipe(
    "detection", "torchvision", vision("ssdlite320_mobilenet_v3_large", detections), image(320)
)
RECIPES["fasterrcnn_mobilenet_320"] = Recipe(
    "detection",
    "torchvision",
    vision("fasterrcnn_mobilenet_v3_large_320_fpn", detections),
    image(320),
)
RECIPES["r3d_18"] = Recipe(
    "video", "torchvision", vision("r3d_18"), {"clip": (1, 3, 8, 112, 112)}, True, 18
)
RECIPES["resnet50_fp16"] = Recipe(
    "classification", "torchvision", vision("resnet50"), image(224), True, 18, half=True
)


# --- timm


def timm(kind: str, **options: Any) -> Make:
    """A model of timm without trained weights."""

    def make() -> Any:
        import timm

        return timm.create_model(kind, pretrained=False, exportable=True, **options)

    return make


for kind, dynamo, opset, size in [
    ("repvgg_a0", False, 17, 224),
    ("mobileone_s0", False, 17, 224),
    ("ghostnet_100", False, 17, 224),
    ("hrnet_w18_small", True, 18, 224),
    ("edgenext_xx_small", True, 18, 256),
    ("mobilevit_xs", False, 17, 256),
    ("fastvit_t8", True, 18, 256),
    ("levit_128s", False, 17, 224),
    ("deit_tiny_patch16_224", False, 14, 224),
    ("mixer_s16_224", True, 18, 224),
    ("coatnet_nano_rw_224", True, 20, 224),
    ("poolformer_s12", False, 17, 224),
    ("resnest14d", False, 17, 224),
    ("res2net50_26w_4s", False, 17, 224),
    ("nfnet_l0", True, 18, 224),
    ("efficientvit_b0", False, 17, 224),
    ("mobilenetv4_conv_small", False, 17, 224),
    ("mobilenetv4_hybrid_medium", True, 20, 224),
    ("dla34", False, 17, 224),
    ("ese_vovnet19b_dw", True, 18, 224),
    ("pvt_v2_b0", False, 17, 224),
    ("convnextv2_nano", False, 17, 224),
    ("xception41", False, 17, 299),
    ("swin_s3_tiny_224", True, 18, 224),
    ("efficientformer_l1", False, 17, 224),
    ("tf_efficientnet_lite0", False, 13, 224),
    ("cspdarknet53", False, 17, 256),
    ("inception_resnet_v2", False, 17, 299),
    ("eca_botnext26ts_256", False, 17, 256),
    ("vit_small_patch14_dinov2", True, 18, 224),
    ("gernet_s", True, 18, 224),
]:
    make = timm(kind, img_size=224) if "dinov2" in kind else timm(kind)
    RECIPES[f"timm_{kind}"] = Recipe("classification", "timm", make, image(size), dynamo, opset)


# --- Ultralytics


def yolo(file: str, **options: Any) -> Make:
    """The export of one of Ultralytics' YAML files by its own exporter."""

    def make() -> bytes:
        os.environ["YOLO_AUTOINSTALL"] = "false"
        from ultralytics import RTDETR, YOLO

        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            model = (RTDETR if file.startswith("rtdetr") else YOLO)(file)
            model.model.pt_path = str(Path(folder) / "network.pt")
            spread_parameters(model.model)
            written = model.export(format="onnx", device="cpu", **options)
            return Path(folder, written).read_bytes()

    return make


def spread_parameters(module: Any) -> None:
    """Gives biases and normalisations, which begin as 0 and 1, values as of a trained network."""
    import torch

    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if not value.is_floating_point() or value.numel() < 2 or ".dfl." in name:
                continue
            if name.endswith("running_var"):
                value.uniform_(0.8, 1.2)
            elif name.endswith("running_mean"):
                value.normal_(0, 0.1)
            elif value.min() == value.max():
                value.add_(torch.randn_like(value), alpha=0.02)


YOLOS: list[tuple[str, str, str, Mapping[str, object]]] = [
    ("yolov3-tinyu", "yolov3-tiny.yaml", "detection", {}),
    ("yolov5nu", "yolov5n.yaml", "detection", {}),
    ("yolov5n6u", "yolov5n6.yaml", "detection", {}),
    ("yolov6n", "yolov6n.yaml", "detection", {}),
    ("yolov8n", "yolov8n.yaml", "detection", {}),
    ("yolov8s-opset12", "yolov8s.yaml", "detection", {"opset": 12, "imgsz": 416}),
    ("yolov8n-seg", "yolov8n-seg.yaml", "segmentation", {}),
    ("yolov8n-pose", "yolov8n-pose.yaml", "pose", {}),
    ("yolov8n-obb", "yolov8n-obb.yaml", "detection", {}),
    ("yolov8n-cls", "yolov8n-cls.yaml", "classification", {}),
    ("yolov8n-nms", "yolov8n.yaml", "detection", {"nms": True}),
    ("yolov9t", "yolov9t.yaml", "detection", {}),
    ("yolov10n", "yolov10n.yaml", "detection", {}),
    ("yolo11n", "yolo11n.yaml", "detection", {}),
    ("yolo11n-seg", "yolo11n-seg.yaml", "segmentation", {}),
    ("yolo11n-pose", "yolo11n-pose.yaml", "pose", {}),
    ("yolo12n", "yolo12n.yaml", "detection", {}),
    ("yolo26n", "yolo26n.yaml", "detection", {}),
    ("yolo26n-seg", "yolo26n-seg.yaml", "segmentation", {}),
    ("rtdetr-l", "rtdetr-l.yaml", "detection", {}),
]
for name, file, family, more in YOLOS:
    RECIPES[name] = Recipe(family, "ultralytics", yolo(file, **more), exporter="ultralytics")


def yolo_end_to_end(file: str) -> Make:
    """A network of Ultralytics whose own top-k chooses the boxes, for PyTorch's exporters."""

    def make() -> Any:
        from ultralytics.nn.tasks import DetectionModel, PoseModel, SegmentationModel

        kinds = {"seg": SegmentationModel, "pose": PoseModel}
        kind = kinds.get(Path(file).stem.partition("-")[2], DetectionModel)
        network = kind(file, verbose=False)
        network.model[-1].export = True
        network.model[-1].end2end = "10" in file or "26" in file
        return network

    return make


def yolo_anchors(form: str) -> Make:
    """YOLOv5's and v7's original heads, which no package has: rebuilt for edgekit's tests."""

    def make() -> Any:
        from tests.detection.yolov5 import network

        return network(form)

    return make


for name, make, family, dynamo in (
    ("yolov10n-end2end", yolo_end_to_end("yolov10n.yaml"), "detection", False),
    ("yolo26n-seg-end2end", yolo_end_to_end("yolo26n-seg.yaml"), "segmentation", True),
    ("yolo26n-pose-end2end", yolo_end_to_end("yolo26n-pose.yaml"), "pose", False),
    ("yolov8n-dynamo", yolo_end_to_end("yolov8n.yaml"), "detection", True),
):
    RECIPES[name] = Recipe(family, "ultralytics", make, SMALL, dynamo, 18 if dynamo else 17)
for name, form, dynamo in (
    ("yolov5-anchors", "v5", False),
    ("yolov5-anchors-seg", "v5-seg", True),
    ("yolov7-anchors", "v7", False),
):
    RECIPES[name] = Recipe(
        "detection", "torch", yolo_anchors(form), SMALL, dynamo, 18 if dynamo else 17
    )


# --- others with PyTorch


def recurrent(kind: str, **options: Any) -> Make:
    """torch.nn.LSTM or GRU with a linear layer behind it."""

    def make() -> Any:
        import torch

        class Recurrent(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.cells = getattr(torch.nn, kind)(64, 128, batch_first=True, **options)
                self.head = torch.nn.Linear(256 if options.get("bidirectional") else 128, 10)

            def forward(self, x: Any) -> Any:
                return self.head(self.cells(x)[0])

        return Recurrent()

    return make


RECURRENT: list[tuple[str, str, bool, Mapping[str, object]]] = [
    ("lstm", "LSTM", False, {}),
    ("lstm_two_layers_both_ways", "LSTM", False, {"num_layers": 2, "bidirectional": True}),
    ("lstm_dynamo", "LSTM", True, {}),
    ("gru", "GRU", False, {}),
    ("gru_both_ways", "GRU", False, {"bidirectional": True}),
    ("gru_dynamo", "GRU", True, {}),
]
for name, kind, dynamo, more in RECURRENT:
    RECIPES[name] = Recipe(
        "sequence", "torch", recurrent(kind, **more), {"sequence": (1, 32, 64)}, dynamo, 18
    )


def retinaface() -> Any:
    """RetinaFace with ResNet-50."""
    from retinaface.network import RetinaFace

    return RetinaFace("Resnet50", False, 256, {"layer2": 1, "layer3": 2, "layer4": 3}, 256)


RECIPES["retinaface_resnet50"] = Recipe("detection", "retinaface-pytorch", retinaface, image(640))


def yolox(name: str) -> Make:
    """A YOLOX as its export script makes it: without the decoding of boxes."""

    def make() -> Any:
        import torch
        from yolox.config import YoloxConfig
        from yolox.models.network_blocks import SiLU
        from yolox.utils import replace_module

        model = replace_module(YoloxConfig.get_named_config(name).get_model(), torch.nn.SiLU, SiLU)
        model.head.decode_in_inference = False
        return model

    return make


for kind, size in [("yolox-nano", 416), ("yolox-tiny", 416), ("yolox-s", 640)]:
    RECIPES[kind] = Recipe("detection", "pixeltable-yolox", yolox(kind), image(size), opset=11)


# --- Hugging Face transformers


def hf_net(model: str, result: str, config: str = "", /, **options: Any) -> Make:
    """A model of transformers from its configuration; ``result`` names the output."""

    def make() -> Any:
        import transformers

        settings = getattr(transformers, config or f"{stem(model)}Config")(
            **{key: value() if callable(value) else value for key, value in options.items()}
        )
        settings._attn_implementation = "sdpa" if model in SDPA else "eager"
        inner = getattr(transformers, model)._from_config(settings)
        names = result.split()

        def pick(module: Any, *inputs: Any) -> Any:
            found = module(*inputs, return_dict=True)
            values = tuple(found[name] for name in names)
            return values if len(values) > 1 else values[0]

        return pick_outputs(inner, pick)

    return make


def stem(model: str) -> str:
    """The part of a class's name that its configuration shares."""
    for end in (
        "ForObjectDetection",
        "ForSemanticSegmentation",
        "ForImageClassification",
        "ForDepthEstimation",
        "EncoderModel",
        "LMHeadModel",
        "Model",
    ):
        if model.endswith(end):
            return model.removesuffix(end)
    return model


def resnet_backbone() -> Any:
    """ResNet-50 as a backbone, from its configuration."""
    import transformers

    return transformers.ResNetConfig(out_features=["stage4"])


def whisper() -> Any:
    """The encoder of Whisper tiny."""
    import transformers

    settings = transformers.WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536
    )
    settings._attn_implementation = "sdpa"
    model = transformers.models.whisper.modeling_whisper.WhisperEncoder(settings)
    return pick_outputs(model, lambda module, x: module(x, return_dict=True)["last_hidden_state"])


for name, family, make, inputs, dynamo, opset in [
    ("bert_base", "language", hf_net("BertModel", LAST), TOKENS, False, 17),
    ("bert_base_dynamo", "language", hf_net("BertModel", LAST), TOKENS, True, 18),
    ("distilbert", "language", hf_net("DistilBertModel", LAST), TOKENS, False, 17),
    ("electra_small", "language", hf_net("ElectraModel", LAST, embedding_size=128, hidden_size=256,
     num_attention_heads=4, intermediate_size=1024), TOKENS, True, 20),
    ("gpt2", "language", hf_net("GPT2LMHeadModel", "logits", use_cache=False, n_layer=6),
     {"input_ids": (1, 64)}, True, 18),
    ("t5_encoder", "language", hf_net("T5EncoderModel", LAST), TOKENS, False, 17),
    ("vit_base", "classification", hf_net("ViTModel", LAST), image(224), False, 17),
    ("dinov2_base", "features", hf_net("Dinov2Model", LAST, image_size=224), image(224), True, 18),
    ("swin_tiny", "classification", hf_net("SwinForImageClassification", "logits"), image(224),
     False, 17),
    ("convnextv2_tiny", "classification", hf_net("ConvNextV2ForImageClassification", "logits"),
     image(224), True, 18),
    ("beit_base", "classification", hf_net("BeitForImageClassification", "logits"), image(224),
     False, 17),
    ("segformer_b0", "segmentation", hf_net("SegformerForSemanticSegmentation", "logits"),
     image(512), False, 17),
    ("segformer_b0_dynamo", "segmentation", hf_net("SegformerForSemanticSegmentation", "logits"),
     image(512), True, 18),
    ("dpt_small", "depth", hf_net("DPTForDepthEstimation", "predicted_depth", num_hidden_layers=6,
     backbone_out_indices=(1, 2, 3, 5)), image(384), False, 17),
    ("depth_anything_small", "depth", hf_net("DepthAnythingForDepthEstimation", "predicted_depth"),
     image(518), False, 17),
    ("detr_resnet50", "detection", hf_net("DetrForObjectDetection", BOXES,
     backbone_config=resnet_backbone, **NO_TIMM), image(800), False, 17),
    ("conditional_detr", "detection", hf_net("ConditionalDetrForObjectDetection", BOXES,
     backbone_config=resnet_backbone, **NO_TIMM), image(640), True, 18),
    ("deformable_detr", "detection", hf_net("DeformableDetrForObjectDetection", BOXES,
     backbone_config=resnet_backbone, num_feature_levels=1, disable_custom_kernels=True, **NO_TIMM),
     image(640), True, 20),
    ("yolos_tiny", "detection", hf_net("YolosForObjectDetection", BOXES, hidden_size=192,
     num_attention_heads=3, intermediate_size=768, image_size=[512, 864]), image(512), False, 17),
    ("rtdetr_r50", "detection", hf_net("RTDetrForObjectDetection", BOXES), image(640), False, 17),
    ("rtdetrv2_r50", "detection", hf_net("RTDetrV2ForObjectDetection", BOXES), image(640),
     True, 18),
    ("dfine", "detection", hf_net("DFineForObjectDetection", BOXES), image(640), False, 17),
    ("clip_vision", "features", hf_net("CLIPVisionModel", LAST, "CLIPVisionConfig"), image(224),
     False, 17),
    ("wav2vec2_base", "speech", hf_net("Wav2Vec2Model", LAST, num_hidden_layers=4),
     {"samples": (1, 16000)}, False, 17),
    ("whisper_tiny_encoder", "speech", whisper, {"mel": (1, 80, 3000)}, False, 17),
    ("whisper_tiny_encoder_dynamo", "speech", whisper, {"mel": (1, 80, 3000)}, True, 18),
]:  # fmt: skip
    bounds = {key: bound for key, bound in WORDS.items() if key in inputs}
    RECIPES[f"hf_{name}"] = Recipe(
        family, "transformers", make, inputs, dynamo, opset, integers=bounds
    )


# --- PaddleOCR, as Paddle2ONNX wrote the files


def paddle(file: str, **sizes: int) -> Make:
    """A network of rapidocr-onnxruntime with its free dimensions set."""

    def make() -> bytes:
        from importlib.util import find_spec

        import onnx

        folder = Path(str(find_spec("rapidocr_onnxruntime").origin)).parent / "models"  # type: ignore[union-attr]
        model = onnx.load(folder / file)
        dims = model.graph.input[0].type.tensor_type.shape.dim
        for dim, size in zip(dims, sizes.values(), strict=True):
            dim.dim_value = size
        for value in [*model.graph.value_info, *model.graph.output]:
            value.type.tensor_type.ClearField("shape")
        return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())

    return make


for name, file, rows, columns in [
    ("ppocr_v4_detection", "ch_PP-OCRv4_det_infer.onnx", 640, 640),
    ("ppocr_v4_recognition", "ch_PP-OCRv4_rec_infer.onnx", 48, 320),
    ("ppocr_v2_direction", "ch_ppocr_mobile_v2.0_cls_infer.onnx", 48, 192),
]:
    RECIPES[name] = Recipe(
        "text",
        "rapidocr-onnxruntime",
        paddle(file, n=1, c=3, h=rows, w=columns),
        exporter="paddle2onnx",
    )


# --- Keras, NHWC


def keras(kind: str, size: int, opset: int, **options: Any) -> Make:
    """The export of a network of keras.applications by tf2onnx."""

    def make() -> bytes:
        import keras
        import tensorflow as tf
        import tf2onnx

        keras.utils.set_random_seed(20)
        model = getattr(keras.applications, kind)(weights=None, **options)
        signature = (tf.TensorSpec((1, size, size, 3), tf.float32, name="input"),)
        call = tf.function(lambda x: model(x, training=False), input_signature=signature)
        proto, _ = tf2onnx.convert.from_function(call, signature, opset=opset)
        return bytes(proto.SerializeToString())

    return make


for name, kind, size, opset in [
    ("keras_mobilenet", "MobileNet", 224, 13),
    ("keras_mobilenet_v2", "MobileNetV2", 224, 15),
    ("keras_mobilenet_v3_small", "MobileNetV3Small", 224, 17),
    ("keras_efficientnet_b0", "EfficientNetB0", 224, 17),
    ("keras_resnet50_v2", "ResNet50V2", 224, 13),
    ("keras_xception", "Xception", 299, 17),
    ("keras_nasnet_mobile", "NASNetMobile", 224, 17),
    ("keras_densenet121", "DenseNet121", 224, 17),
]:
    RECIPES[name] = Recipe(
        "classification", "tensorflow-cpu", keras(kind, size, opset), exporter="tf2onnx"
    )
