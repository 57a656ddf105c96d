"""Names that differ only in the number of their layer.

params['layers'][0]['up'], params['layers'][1]['up']     params['layers'][*]['up']
jit(f)/layers_0/dot, jit(f)/layers_1/dot                 jit(f)/layers_*/dot
blocks[0][0], blocks[0][1], blocks[1][0], blocks[1][1]   blocks[*][0], blocks[*][1]

Only one number of a name is that of its layer: one that follows a word such as 'layers'
if such a number varies, else the one with the most values, else the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9])[0-9]+(?![A-Za-z0-9])")
_LAYER: Final = re.compile(
    r"(?:layer|block|stage|step)s?['\"\]]*[\[._/'\"]*\Z|\bh[\[._]+\Z"
)
ANY_LAYER: Final = "*"


def without_layers(names: Iterable[str]) -> dict[str, str]:
    """What each name is without the number of its layer; itself if it has none."""
    # Names that differ in numbers only are alike.
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(_NUMBER.sub(ANY_LAYER, name), []).append(name)
    found: dict[str, str] = {}
    for members in alike.values():
        position = _layer_position(members)
        for name in members:
            found[name] = name if position is None else _starred(name, position)
    return found


def _layer_position(names: list[str]) -> int | None:
    """Which of their numbers is that of the layer; None if none of them varies."""
    columns = zip(*(_NUMBER.findall(name) for name in names), strict=True)
    values = [len(set(column)) for column in columns]
    varying = [k for k, count in enumerate(values) if count > 1]
    starts = [match.start() for match in _NUMBER.finditer(names[0])]
    return min(
        varying,
        key=lambda k: (not _LAYER.search(names[0][: starts[k]]), -values[k], k),
        default=None,
    )


def _starred(name: str, position: int) -> str:
    match = list(_NUMBER.finditer(name))[position]
    return name[: match.start()] + ANY_LAYER + name[match.end() :]
