"""Tunes XLA's flags for a program: compiles for absent GPUs, and prices the result."""
