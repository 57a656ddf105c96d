"""Passes that make one collective of several."""
