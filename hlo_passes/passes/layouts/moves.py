"""Better choices of two, everywhere at once, as a smallest cut.

    now       %a: (0,1)   %b: (0,1)   %c: (1,0)
    other     %a: (1,0)   %b: (1,0)   %c: (1,0)      best mixture: each of %a, %b, %c
                                                     takes the one or the other

A group costs its bytes for every order but one that a member wants. That an order is
wanted at all is one term: a node of the network that goes with any of the members that
want it. This holds as long as members want the order all with their first choice, or
all with their second; a choice that would break it keeps its first.

For choices of two orders each the result is exact where nothing had to be kept. For
more it is a step of expansion (Boykov, Veksler, Zabih 2001): never worse than before.
"""

from __future__ import annotations

from math import inf
from typing import Final

from hlo_passes.passes.layouts.cut import SINK, SOURCE, Network
from hlo_passes.passes.layouts.problem import Choice, Chosen, Group, Part
from hlo_passes.passes.layouts.ties import Order, orders_for

#: Fixed orders that expansions start from.
_MOST_SEEDS: Final = 8
#: Rounds over all of them; each must find something, or it is the last.
_MOST_ROUNDS: Final = 3


def best_of_two(part: Part, now: Chosen, other: Chosen) -> tuple[Chosen, bool]:
    """The cheapest mixture of two ways to choose, and whether it surely is one."""
    other = dict(other)
    kept = _keep_apart(part, now, other)
    network = Network()
    node_of: dict[Choice, int] = {}

    def node(choice: Choice) -> int:
        if choice not in node_of:
            node_of[choice] = network.node()
        return node_of[choice]

    for group in part.groups:
        for with_now, with_other in _wanted(group, now, other).values():
            if with_now and not with_other:
                wanted = network.node()
                network.add(wanted, SINK, group.size)
                for choice in with_now:
                    network.add(node(choice), wanted, inf)
            elif with_other and not with_now:
                wanted = network.node()
                network.add(SOURCE, wanted, group.size)
                for choice in with_other:
                    network.add(wanted, node(choice), inf)
    moves = network.sink_side()
    chosen = {
        choice: other[choice] if choice in node_of and moves[node_of[choice]] else order
        for choice, order in now.items()
    }
    return chosen, not kept


def _wanted(
    group: Group, now: Chosen, other: Chosen
) -> dict[Order, tuple[list[Choice], list[Choice]]]:
    """By order: the choices that want it as they are now, and with the other.

    Orders that somebody wants in either case are left out.
    """
    found: dict[Order, tuple[list[Choice], list[Choice]]] = {}
    always: dict[Order, None] = {}
    for member in group.members:
        if member.choice is None:
            always[member.fixed] = None
            continue
        pair = [member.wants(chosen[member.choice]) for chosen in (now, other)]
        if pair[0] == pair[1]:
            always[pair[0]] = None
            continue
        for k, order in enumerate(pair):
            found.setdefault(order, ([], []))[k].append(member.choice)
    return {order: both for order, both in found.items() if order not in always}


def _keep_apart(part: Part, now: Chosen, other: Chosen) -> bool:
    """Let choices keep what they have now where orders are wanted in both ways.

    Returns:
        Whether any was kept; `other` is changed.
    """
    kept = False
    work = dict.fromkeys(part.groups)
    while work:
        group, _ = work.popitem()
        while mixed := [
            with_other
            for with_now, with_other in _wanted(group, now, other).values()
            if with_now and with_other
        ]:
            kept = True
            for choice in mixed[0]:
                other[choice] = now[choice]
                work.update(choice.groups)
    return kept


def of_two_orders(part: Part) -> Chosen | None:
    """The cheapest choice where each has at most two orders; None if not found so."""
    if not part.is_complete or any(len(c.orders) > 2 for c in part.choices):
        return None
    first: Chosen = {}
    for choice in part.choices:
        if choice not in first:
            _name_alike(choice, first)
    other = {choice: _both(choice, first)[1] for choice in first}
    chosen, is_exact = best_of_two(part, first, other)
    return chosen if is_exact else None


def _name_alike(start: Choice, first: Chosen) -> None:
    """Say which order of each choice is its first: neighbors want it with theirs."""
    first[start] = start.tie.given
    work = [start]
    while work:
        for group in work.pop().groups:
            wanted: tuple[set[Order], set[Order]] = (set(), set())
            for member in group.members:
                if member.choice in first:
                    for k, order in enumerate(_both(member.choice, first)):
                        wanted[k].add(member.wants(order))
            for member in group.members:
                choice = member.choice
                if choice is None or choice in first:
                    continue
                one, other = _both(choice, {choice: choice.tie.given})
                mine = [member.wants(order) for order in (one, other)]
                straight = mine[0] in wanted[0] or mine[1] in wanted[1]
                turned = mine[1] in wanted[0] or mine[0] in wanted[1]
                if straight or turned:
                    first[choice] = one if straight else other
                    work.append(choice)


def _both(choice: Choice, first: Chosen) -> tuple[Order, Order]:
    """The first order of a choice, and the second; the same where there is only one."""
    one = first[choice]
    return one, next((o for o in choice.orders if o != one), one)


def expanded(part: Part, chosen: Chosen) -> Chosen:
    """Choices that no step to one of the fixed orders makes cheaper."""
    targets = _targets(part)
    cost = part.cost(chosen)
    for _ in range(_MOST_ROUNDS):
        before = cost
        for seed in targets:
            found, _ = best_of_two(part, chosen, {**chosen, **seed})
            now = part.cost(found)
            if now < cost:
                chosen, cost = found, now
        if cost == before:
            break
    return chosen


def _targets(part: Part) -> list[Chosen]:
    """From fixed orders on, what all others would choose to agree with them."""
    found: list[Chosen] = []
    for group in part.groups:
        for member in group.members:
            if member.choice is not None:
                continue
            reading = [(m, m.choice) for m in group.members if m.choice]
            if any(
                all(m.wants(t.get(c, ())) == member.fixed for m, c in reading)
                for t in found
            ):
                continue
            found.append(_spread(group, member.fixed))
            if len(found) == _MOST_SEEDS:
                return found
    return found


def _spread(group: Group, order: Order) -> Chosen:
    """Give every choice the order that its neighbors' orders ask for."""
    found: Chosen = {}
    work = [(group, order)]
    while work:
        group, order = work.pop()
        for member in group.members:
            choice = member.choice
            if choice is None or choice in found:
                continue
            fitting = orders_for(member.side, order, len(choice.orders)) or []
            agreed = next((o for o in choice.orders if o in fitting), None)
            if agreed is None:
                continue
            found[choice] = agreed
            work += [
                (g, m.wants(agreed))
                for g in choice.groups
                for m in g.members
                if m.choice is choice
            ]
    return found
