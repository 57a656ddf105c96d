"""Lists of rules as text: XLA's list with changes, or a separate list.

    -avoid-waste                       XLA's without that rule
    -kStartAtZeroDepth                 without all rules that XLA logs so
    async-depth<less-stall             put one before another
    async-depth>schedule-done          put it directly after
    force-early less-stall original-order       these and no others

Words are separated by spaces and taken from left to right. A name may be that of a rule
of another distribution (entry points of the group `hlo_passes.rules`), which
`NAME<OTHER` puts into XLA's list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hlo_passes import plugins
from hlo_passes.errors import UsageError, nearest
from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.rules import RULES

_MOVE: Final = re.compile(r"([^<>]+)([<>])([^<>]+)")


def parse_rules(text: str, known: Sequence[Rule] = RULES) -> tuple[Rule, ...]:
    """The rules that a text lists.

    Args:
        text: as above; '' for `known` itself.
        known: rules that the text may name, in XLA's order.

    Raises UsageError U215 for a name that no rule has, U216 for words that do not mix,
    U014 and U015 for a rule of another distribution that cannot be used.
    """
    words = text.split()
    edits = [word for word in words if word.startswith("-") or _MOVE.fullmatch(word)]
    if not edits and words:
        return tuple(rule for word in words for rule in _named(word, known))
    if len(edits) != len(words):
        raise UsageError(
            f"rules={text}: names for a whole list are mixed with changes to XLA's "
            "list",
            code="U216",
            hint="use either only names, or -NAME, NAME<OTHER, NAME>OTHER",
        )
    rules = list(known)
    for word in edits:
        if word.startswith("-"):
            dropped = _named(word[1:], known)
            rules = [rule for rule in rules if rule not in dropped]
        else:
            rules = _moved(rules, word, known)
    return tuple(rules)


def _moved(rules: list[Rule], word: str, known: Sequence[Rule]) -> list[Rule]:
    name, side, other = _MOVE.fullmatch(word).groups()  # type: ignore[union-attr]
    moving = _named(name, known)
    anchors = _named(other, known)
    rest = [rule for rule in rules if rule not in moving]
    places = [k for k, rule in enumerate(rest) if rule in anchors]
    if not places:
        raise UsageError(
            f"rules: {word}: {other} is not in the list any more", code="U216"
        )
    at = places[0] if side == "<" else places[-1] + 1
    return [*rest[:at], *moving, *rest[at:]]


def _named(word: str, known: Sequence[Rule]) -> tuple[Rule, ...]:
    """Rules of a name, or all that XLA logs under it."""
    found = tuple(rule for rule in known if word in (rule.name, rule.reason))
    if found:
        return found
    offer = plugins.find_offer(plugins.RULES, word)
    if offer is not None:
        return (_loaded(offer),)
    names = [n for rule in known for n in (rule.name, rule.reason)]
    names += plugins.offers(plugins.RULES)
    raise UsageError(
        f"unknown rule {word}",
        code="U215",
        hint=nearest(word, names) or "docs/scheduler.md lists them",
    )


def _loaded(offer: plugins.Offer) -> Rule:
    rule = plugins.load(offer)
    if not isinstance(rule, Rule):
        raise offer.unusable(f"{rule!r} is not a Rule")
    # The name by which it was found is the one that a list of rules has.
    return replace(rule, name=offer.name)
