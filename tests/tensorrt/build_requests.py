"""Requested builds that several tests use."""

from edgekit.tensorrt.options import RequestedBuild

ORIN = "jetson-agx-orin-64gb"
RELEASES = ("8.5.2", "8.6.2", "10.3", "10.3.0.30", "10.7", "11.4.1")


def requested_build(tensorrt="10.3", **other):
    """A build for an AGX Orin that fits its release."""
    strong = tensorrt.startswith("11")
    return RequestedBuild(**{"target": ORIN, "tensorrt": tensorrt, "qdq": strong, **other})
