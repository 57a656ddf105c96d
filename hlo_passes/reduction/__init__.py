"""Smaller modules out of a module: what `hlo-passes bisect` tries one after another."""
