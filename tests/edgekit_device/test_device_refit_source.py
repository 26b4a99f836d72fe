"""Weights from the user's own ONNX file on the board, of which engines are parts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import compose

from edgekit.tensorrt.artefacts import _EngineWeights
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import WeightEntry
from edgekit_device.runtime.refit import fill_from_onnx
from edgekit_device.store.root import Root
from edgekit_device.tensorrt.weights import named_weights, weight_origins
from tests.edgekit_device.device_trt_toys import network, weights_of

COUNTED = ("tmp_batch_norm_weight", "tmp_batch_norm_weight_0")


def parts_and_whole() -> tuple[dict[str, onnx.ModelProto], onnx.ModelProto]:
    """Two networks, each an engine's part, and the file that has both."""
    parts = {
        prefix: compose.add_prefix(network(seed=seed), prefix)
        for seed, prefix in enumerate(("a_", "b_"))
    }
    whole = onnx.ModelProto()
    for part in parts.values():
        whole.MergeFrom(part)
    del whole.opset_import[1:]
    return parts, whole


def manifest_of(parts: dict[str, onnx.ModelProto]) -> Any:
    """What the host writes of two stripped engines."""
    store = _EngineWeights(None)
    for key, model in parts.items():
        names = [f"{key}{name}" for name in ("conv_w", "fc_w", "fc_b")]
        store.take(
            SimpleNamespace(key="engine_" + key),  # type: ignore[arg-type]
            SimpleNamespace(weights=dict.fromkeys([*names, *COUNTED])),  # type: ignore[arg-type]
            {"m": model.SerializeToString()},
            SimpleNamespace(model="m", data={}),  # type: ignore[arg-type]
        )
    entries = {
        name: WeightEntry(one.digest, one.dtype, one.shape, 1, one.source, one.transform)
        for name, one in store.weights.items()
    }
    return SimpleNamespace(weights=entries), store


def test_each_engines_folded_weights_are_found_in_the_whole_file(tmp_path: Path) -> None:
    parts, whole = parts_and_whole()
    manifest, store = manifest_of(parts)
    assert len(manifest.weights) == 10
    root = Root(tmp_path / "root")
    root.folder.mkdir()
    (tmp_path / "user.onnx").write_bytes(whole.SerializeToString())
    assert fill_from_onnx(root, manifest, tmp_path / "user.onnx") == 10
    for entry in manifest.weights.values():
        assert bytes(root.store.read(entry.digest)) == store.values[entry.digest].tobytes()


def test_another_files_weights_are_still_refused(tmp_path: Path) -> None:
    manifest, _ = manifest_of(parts_and_whole()[0])
    root = Root(tmp_path / "root")
    root.folder.mkdir()
    (tmp_path / "other.onnx").write_bytes(
        compose.add_prefix(network(seed=5), "a_").SerializeToString()
    )
    with pytest.raises(DeviceError) as caught:
        fill_from_onnx(root, manifest, tmp_path / "other.onnx")
    assert caught.value.code == "refit.mismatch"
    assert "engine_b_/tmp_batch_norm_weight" in caught.value.message


@pytest.mark.parametrize("version", ["10.3.0", "11.4.0"])
def test_a_counted_name_leads_to_its_node(version: str) -> None:
    data = network().SerializeToString()
    counted = weights_of(network(), version)
    found = weight_origins(data, None, counted)
    assert set(found.values()) == {"batch-norm-scale:n", "batch-norm-bias:n"}
    by_node = named_weights(data, None, found.values())
    for name, node in found.items():
        np.testing.assert_array_equal(by_node[node], counted[name])
