"""Passes inside XLA's own compilations: installing, filtering, caching, removing."""
