"""Activations, scales, arithmetic and logic."""
