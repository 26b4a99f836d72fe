"""A strict double of TensorRT's Python module, built from names and signatures of real releases.

`double.module(version, flavour)` gives it; `tests/data/tensorrt_api` says where names come from.
What a release lacks, the double refuses; what it has but the double cannot play raises `NotPlayed`.
"""
