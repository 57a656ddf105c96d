"""Passes, pipelines, and what runs them."""
