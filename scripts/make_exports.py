"""Makes the real exports of tests/data/exports: graphs from public packages, with seeded weights.

scripts/make_exports.py            make each export whose packages are installed
scripts/make_exports.py NAME...    make these

Needs an environment of its own (Python 3.11):

    pip install --no-deps torch==2.9.1 torchvision==0.24.1 timm==1.0.22 transformers==4.57.1
        ultralytics==8.4.190 ultralytics-thop==2.2.3 onnxslim==0.1.98 rapidocr-onnxruntime==1.4.4
        retinaface-pytorch==0.0.8 pixeltable-yolox==0.4.3 huggingface_hub==0.36.0
        tokenizers==0.22.2, and the nvidia-* packages that torch's metadata names, without which
        it does not import
    pip install onnx==1.23.2 onnxruntime==1.32.0 onnxscript==0.7.2 pillow pyyaml sympy networkx
        jinja2 fsspec filelock requests tqdm regex safetensors packaging matplotlib polars psutil
        opencv-python-headless loguru tabulate

The Keras exports need another one: tensorflow-cpu==2.19.1, tf2onnx==1.17.0, onnxruntime.

There are no other downloads: _export_recipes.py builds each network from its code or configuration,
with seeded random weights, and exports it as its users do. ONNX Runtime runs it once on the
weights that tests/exports.py draws; a result that is not finite stops the export.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import lzma
import math
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import yaml
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent.parent))

from _export_recipes import RECIPES, Recipe, spread_parameters

from tests.exports import FLOATS, FOLDER, RECORD, Export, digest, exports, load, tensors

LICENCES = {
    "torch": "BSD-3-Clause",
    "torchvision": "BSD-3-Clause",
    "timm": "Apache-2.0",
    "transformers": "Apache-2.0",
    "ultralytics": "AGPL-3.0-only",
    "rapidocr-onnxruntime": "Apache-2.0",
    "retinaface-pytorch": "MIT",
    "pixeltable-yolox": "Apache-2.0",
    "tensorflow-cpu": "Apache-2.0",
}
SEED = 20
# a tensor stays as it is where it is this small, or packs to this share of its size or less
# (masks, grids of anchors, constants)
SMALL = 16
PACKED = 0.25


def export_proto(recipe: Recipe) -> onnx.ModelProto:
    """The model as the exporter writes it."""
    made = recipe.make()
    if isinstance(made, bytes):
        return onnx.load_model_from_string(made)
    import torch

    spread_parameters(made)
    made.eval()
    kind = torch.float16 if recipe.half else torch.float32
    made.to(kind)
    inputs = tuple(
        torch.ones(shape, dtype=torch.int64)
        if name in recipe.integers
        else torch.randn(shape, dtype=kind)
        for name, shape in recipe.inputs.items()
    )
    options: dict[str, Any] = {"input_names": list(recipe.inputs), "opset_version": recipe.opset}
    with torch.no_grad():
        if recipe.dynamo:
            program = torch.onnx.export(made, inputs, dynamo=True, verbose=False, **options)
            model: onnx.ModelProto = program.model_proto
            return model
        file = io.BytesIO()
        torch.onnx.export(made, inputs, file, dynamo=False, **options)
        return onnx.load_model_from_string(file.getvalue())


def strip_values(tensor: TensorProto) -> None:
    """Replaces the values of a large float tensor by a record of their distribution."""
    if tensor.data_type not in FLOATS or math.prod(tensor.dims) <= SMALL:
        return
    values = numpy_helper.to_array(tensor)
    raw = values.tobytes()
    packed = len(lzma.compress(raw[: 1 << 20], preset=0)) / min(len(raw), 1 << 20)
    # small grids and tables of anchors hardly pack, but repeat their values
    repeats = np.unique(values).size <= PACKED * values.size
    if not np.isfinite(values).all() or packed <= PACKED or repeats:
        return
    wide = values.astype(np.float64)
    record = (wide.mean(), wide.std(), wide.min(), wide.max())
    bare = helper.make_tensor(tensor.name, tensor.data_type, (0,), [])
    bare.dims[:] = tensor.dims
    bare.doc_string = RECORD + " ".join(f"{number:.4g}" for number in record)
    tensor.CopyFrom(bare)


def tidy_model(model: onnx.ModelProto) -> None:
    """Removes the exporter's notes about Python code and paths."""
    model.doc_string = ""
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        del value.metadata_props[:]
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
        tensor.doc_string = ""
    del model.graph.metadata_props[:]
    del model.metadata_props[:]


def input_shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Shape by input name; fails where a size is not given."""
    weights = {tensor.name for tensor in model.graph.initializer}
    found = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
        if value.name not in weights
    }
    if any(size < 1 for shape in found.values() for size in shape):
        raise ValueError(f"free sizes: {found}")
    return found


def run_once(name: str, recipe: Recipe) -> None:
    """Runs the export once on its seeded weights; fails where a result is not finite."""
    model = load(name)
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), quiet, ["CPUExecutionProvider"])
    rng = np.random.default_rng(SEED)
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    feed = {
        value.name: rng.standard_normal(value.shape).astype(kinds[value.type])
        if value.type in kinds
        else rng.integers(0, recipe.integers[value.name], value.shape)
        for value in session.get_inputs()
    }
    for value, result in zip(session.get_outputs(), session.run(None, feed), strict=True):
        if not np.isfinite(result).all():
            raise ValueError(f"{value.name} is not finite")


def make_export(name: str, recipe: Recipe) -> Export:
    """Makes, packs and runs one export."""
    if recipe.exporter != "tf2onnx":
        import torch

        torch.manual_seed(SEED)
    model = export_proto(recipe)
    writer = f"{model.producer_name} {model.producer_version}".strip()
    if recipe.exporter == "torch":
        writer += " (dynamo=True)" if recipe.dynamo else " (dynamo=False)"
    else:
        writer = f"{recipe.exporter}: {writer}"
    tidy_model(model)
    for tensor in tensors(model.graph):
        strip_values(tensor)
    opset = next(each.version for each in model.opset_import if each.domain in {"", "ai.onnx"})
    version = importlib.metadata.version(recipe.package)
    path = FOLDER / f"{name}.onnx.xz"
    path.write_bytes(lzma.compress(model.SerializeToString(deterministic=True), preset=9))
    try:
        run_once(name, recipe)
    except Exception:
        path.unlink()
        raise
    return Export(
        name,
        recipe.family,
        f"{recipe.package} {version}",
        LICENCES[recipe.package],
        writer,
        opset,
        input_shapes(model),
        digest(path),
    )


def main() -> int:
    """Makes the exports that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *RECIPES], metavar="NAME")
    names = parser.parse_args().names or list(RECIPES)
    FOLDER.mkdir(exist_ok=True)
    failed = []
    for name in names:
        recipe = RECIPES[name]
        try:
            importlib.metadata.version(recipe.package)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name}: left out, {recipe.package} is not installed", flush=True)
            continue
        try:
            row = make_export(name, recipe)
        except Exception:
            traceback.print_exc()
            failed.append(name)
            continue
        rows = {each.name: each for each in exports()} | {name: row}
        text = yaml.safe_dump(
            {"exports": [asdict(rows[each]) for each in sorted(rows)]},
            sort_keys=False,
            default_flow_style=None,
            width=100,
        )
        (FOLDER / "index.yaml").write_text(text, encoding="utf-8")
        print(f"{name}: {row.path.stat().st_size} bytes", flush=True)
    if failed:
        print("failed:", *failed)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
