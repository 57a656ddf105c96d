"""Passes inside XLA's own compilations: install, filter, cache, remove."""
