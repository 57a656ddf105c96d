"""Passes that choose how collectives are carried out: memory and kernels."""
