"""Judging passes by what XLA's own passes made of the same modules."""
