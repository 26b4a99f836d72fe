"""Requested builds and engines that several tests use."""

from edgekit.tensorrt.options import RequestedBuild
from edgekit_device.build.request import EngineSpec, IoSpec, LayerSpec, ProfileShapes

ORIN = "jetson-agx-orin-64gb"
RELEASES = ("8.5.2", "8.6.2", "10.3", "10.3.0.30", "10.7", "11.4.1")


def requested_build(tensorrt="10.3", **other):
    """A build for an AGX Orin that fits its release."""
    strong = tensorrt.startswith("11")
    return RequestedBuild(**{"target": ORIN, "tensorrt": tensorrt, "qdq": strong, **other})


def engine(**other):
    """A hybrid engine as ``edgekit.build.request/1`` has it: a DLA and a GPU layer."""
    layer = {"builder_name": "", "device": "DLA", "precision": "int8", "kind": "CONVOLUTION"}
    tensor = {"dtype": "float32", "shape": [1, 3, 8, 8], "formats": [], "scale": None}
    return {
        "key": "lane0", "kind": "plan", "model": "0" * 64, "data": {}, "device": "DLA0",
        "gpu_fallback": True, "typing": "weak", "precisions": ["fp16", "int8"],
        "layers": [
            {**layer, "name": "conv + relu", "nodes": ["conv", "relu"]},
            {**layer, "name": "soft", "nodes": ["head/soft:0"], "kind": "SOFTMAX",
             "device": "GPU", "precision": "fp16"},
        ],
        "inputs": [{**tensor, "name": "x"}], "outputs": [{**tensor, "name": "y"}],
        "calibration": "1" * 64, "pools": {}, "constraints": "prefer",
        "optimization_level": None, "refit_individual": [], "profiles": [], "attempts": [],
        **other,
    }  # fmt: skip


def strong_engine(**other):
    """The same for a release that takes types from the network."""
    return engine(typing="strong", precisions=[], calibration=None, constraints="none", **other)


def loadable(**other):
    """A DLA loadable."""
    tensor = {"dtype": "int8", "shape": [1, 4, 8, 8], "scale": 0.1}
    return engine(**{
        "kind": "loadable", "gpu_fallback": False,
        "inputs": [{**tensor, "name": "x", "formats": ["DLA_HWC4"]}],
        "outputs": [{**tensor, "name": "y", "formats": ["CHW32"]}], **other,
    })  # fmt: skip


def spec(document):
    """The engine of a document as it is, also one that no board would take."""

    def ios(side):
        return tuple(
            IoSpec(t["name"], t["dtype"], tuple(t["shape"]), tuple(t["formats"]), t["scale"])
            for t in document[side]
        )

    return EngineSpec(**{
        **document,
        "precisions": tuple(document["precisions"]),
        "layers": tuple(LayerSpec(**{**x, "nodes": tuple(x["nodes"])}) for x in document["layers"]),
        "inputs": ios("inputs"), "outputs": ios("outputs"),
        "profiles": tuple(
            {name: ProfileShapes(**sizes) for name, sizes in profile.items()}
            for profile in document["profiles"]
        ),
    })  # fmt: skip
