"""Collectives written as other collectives, and as what is not a collective."""
