"""Latency estimators, each by its XLA counterpart, and the stack that joins them."""
