"""Pooling and reductions."""
