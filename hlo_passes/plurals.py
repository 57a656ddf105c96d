"""Counts of things in sentences: '1 module', '2 modules', '3 processes'."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """A number and what it counts."""
    return f"{count} {plural(count, noun)}"


def plural(count: int, noun: str) -> str:
    """A noun in the form that follows a number."""
    if count == 1:
        return noun
    return noun + ("es" if noun.endswith("s") else "s")
