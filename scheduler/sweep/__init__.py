"""Runs a pipeline with every combination of some option values, and simulates each."""
