"""Passes that say how arrays are divided over devices."""
