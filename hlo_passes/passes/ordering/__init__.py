"""Passes that prepare the order of a schedule."""
