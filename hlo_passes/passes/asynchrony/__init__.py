"""Passes that split operations into start and done, and join them again."""
