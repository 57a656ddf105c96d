"""Passes that remove what is dead, equal or trivial."""
