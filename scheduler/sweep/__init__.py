"""A pipeline run with every combination of some option values, each simulated."""
