"""Passes and pipelines, and the code that runs them."""
