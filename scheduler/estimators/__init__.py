"""Latency estimators, named after their XLA counterparts, and stacks of them."""
