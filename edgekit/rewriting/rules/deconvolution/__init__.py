"""Deconvolutions and resizing."""
