"""Passes over while loops."""
