"""Passes, pipelines, their text, and the table of all passes."""
