"""Activation scales for INT8: measured on data, or read from TensorRT's calibration caches,
and both directions between scales and Q/DQ nodes. Start with
``calibrate`` in ``calibration.calibrate``.
"""
