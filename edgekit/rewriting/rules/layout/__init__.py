"""Shapes, transpositions, and what moves elements."""
