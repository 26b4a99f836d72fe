"""The result of a build: segments, engines, and the weights removed by stripping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import array, document, long_text, member, text
from edgekit_device.protocol.codec import digest as sha256
from edgekit_device.protocol.codec import shape as sizes

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network.plugins import Plugin
    from edgekit_device.protocol.manifest import EngineEntry, PluginEntry


@document(frozen=True)
class EngineSegment:
    """A maximal run of layers on one device, as a separate ONNX model.

    Attributes:
        index: Position in the running order.
        device: "GPU", "DLA0" or "DLA1".
        layers: Layer names.
        inputs: Tensor names read: graph inputs or outputs of earlier segments.
        outputs: Tensor names written for later segments or the caller.
        engine: SHA-256 (hex) of the engine file's bytes in ``Artefacts.engines``.
    """

    index: int = member(fields.count)
    device: str = member(fields.device)
    layers: tuple[str, ...] = member(array(long_text))
    inputs: tuple[str, ...] = member(array(long_text))
    outputs: tuple[str, ...] = member(array(long_text))
    engine: str = member(sha256)


@document(frozen=True)
class Weight:
    """One tensor that a stripped engine lacks.

    Attributes:
        name: Initializer name in the engines (same name, same bytes, in every engine).
        source: Weight name in the user's ONNX model.
        transform: From the source to the value: "none", "fp16", "int8:AXIS" (codes) or
            "int8-scale:AXIS" (FP32 scales); AXIS is the output channel axis. For weights that
            TensorRT's parser computes: "batch-norm-scale:TENSOR", "batch-norm-bias:TENSOR" or
            "constant-of-shape:TENSOR"; TENSOR is the node's first output, also in ``source``.
        digest: SHA-256 (hex) of the value's little-endian C-order bytes.
        dtype: NumPy type name.
        shape: Static shape.
    """

    name: str = member(long_text)
    source: str = member(long_text)
    transform: str = member(long_text)
    digest: str = member(sha256)
    dtype: str = member(text())
    shape: tuple[int, ...] = member(sizes())


@document(frozen=True, eq=False)
class Artefacts:
    """The result of a backend's build.

    Attributes:
        backend: "reference" or "tensorrt".
        lanes: Segments in running order by plan variant (``Plan.plans``), with its share.
        engines: Stripped engine bytes by SHA-256 (for the reference backend an ONNX model whose
            weights are EXTERNAL tensors with location "stripped").
        weights: Every weight that the engines lack, by name.
        values: The weights' values by SHA-256; may be memory maps.
        fingerprint: Requirements of the engines: backend, runtime, versions, machine.
        inputs: Network inputs, in the model's order.
        outputs: Network outputs, in the model's order.
        notes: Notes for the user, such as layers that fell back to FP16.
        entries: Loader data of engines that TensorRT built, by their digest: the manifest's
            ``engines``.
        functions: The user's own plugins that this machine runs as functions.
        plugins: Plugins to register before the engines are loaded: the manifest's ``plugins``.
        libraries: The plugins' libraries by SHA-256.
    """

    backend: str
    lanes: tuple[tuple[float, tuple[EngineSegment, ...]], ...]
    engines: Mapping[str, bytes]
    weights: Mapping[str, Weight]
    values: Mapping[str, np.ndarray]
    fingerprint: Mapping[str, str]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    entries: Mapping[str, EngineEntry] = field(default_factory=dict)
    functions: tuple[Plugin, ...] = ()
    plugins: tuple[PluginEntry, ...] = ()
    libraries: Mapping[str, bytes] = field(default_factory=dict)
