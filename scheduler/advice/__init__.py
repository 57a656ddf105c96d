"""Finds what to change about exposed collectives, and simulates each change again."""
