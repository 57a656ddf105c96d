"""Passes that choose how arrays lie in memory."""
