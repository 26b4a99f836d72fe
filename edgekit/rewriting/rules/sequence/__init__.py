"""Recurrences, sums along an axis, gathering and scattering."""
