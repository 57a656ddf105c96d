"""Finds the pass that does harm, the rewrite, and the smallest module that shows it."""
