"""Convolutions and matrix products."""
