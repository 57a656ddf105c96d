"""Collectives made of others, folded into others, or found to be unnecessary."""
