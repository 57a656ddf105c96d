"""Judges passes by comparing their results with those of XLA's passes."""
