"""Which release of XLA is followed where the user does not name one.

    followed_release(module, "0.12")    what was asked for
    followed_release(module)            what the module says, else the jaxlib installed

Only the GPU's backend configs of a module show its release: XLA prints all fields of
a collective's, and which there are depends on the release. Among releases with the same
fields the installed jaxlib decides, else the newest of them is taken. Nothing else in a
module is used: header, frontend attributes and metadata are the same in all releases,
and how operands are printed says who printed the text, not who made the module. A
module without such configs (before the GPU's passes) says nothing.

Source: dumps of jaxlib 0.10.2, 0.11.2 and 0.12.0.1.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Final

from hlo_passes.errors import UsageError
from hlo_passes.ir.gpu_config import collective_config
from hlo_passes.ir.module import Module
from hlo_passes.xla_release import (
    NEWEST,
    OLDEST,
    RELEASE_NAMES,
    RELEASES,
    XlaRelease,
    is_beyond_known,
    xla_release,
)

_log = logging.getLogger("hlo_passes")
#: Every release prints these fields: without them, nothing needs to be read.
_OF_ALL_RELEASES: Final = [
    name
    for name, _ in OLDEST.collective_fields
    if all(name in dict(release.collective_fields) for release in RELEASES)
]


def followed_release(module: Module | None = None, xla: str = "") -> XlaRelease:
    """The release to follow.

    Args:
        module: decides where `xla` is empty.
        xla: a version as for `xla_release`, '' where none was named.

    Raises ValueError for a text that does not name a release.
    """
    if xla:
        _warn_of_unknown(xla)
        return xla_release(xla)
    said = () if module is None else releases_of(module)
    installed = installed_release()
    return installed if not said or installed in said else said[-1]


def release_asked_for(module: Module | None, xla: str) -> XlaRelease:
    """As `followed_release`, for what a user wrote.

    Raises UsageError U207 for a text that does not name a release.
    """
    try:
        return followed_release(module, xla)
    except ValueError as problem:
        raise UsageError(
            f"xla={xla} is not a release that is known",
            code="U207",
            hint=f"one of {', '.join(RELEASE_NAMES)}, or one after them",
        ) from problem


def releases_of(module: Module) -> tuple[XlaRelease, ...]:
    """The releases that may have made a module, oldest first; () where it says nothing.

    Complexity: linear in instructions up to the first complete backend config.
    """
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.mentions(_OF_ALL_RELEASES[0]) and (
                found := _releases_with(collective_config(instruction))
            ):
                return found
    return ()


def _releases_with(config: Mapping[str, object]) -> tuple[XlaRelease, ...]:
    """The releases that print the fields of a collective's config; () for a part."""
    printed = [
        r for r in RELEASES if all(name in config for name, _ in r.collective_fields)
    ]
    most = max((len(r.collective_fields) for r in printed), default=0)
    return tuple(r for r in printed if len(r.collective_fields) == most)


def installed_release() -> XlaRelease:
    """The row of the jaxlib that is installed, the newest row without one."""
    return release_of_jaxlib()


@functools.cache
def release_of_jaxlib() -> XlaRelease:
    """As `installed_release`, which tests replace.

    Jaxlib is not imported: its version is in its package's metadata.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("jaxlib")
    except PackageNotFoundError:
        return NEWEST
    try:
        found = xla_release(installed)
    except ValueError:
        _log.warning("jaxlib %s is followed as XLA %s", installed, OLDEST)
        return OLDEST
    _warn_of_unknown(installed)
    return found


@functools.cache
def _warn_of_unknown(version: str) -> None:
    """Say once that a release is newer than what is known."""
    if is_beyond_known(version):
        _log.warning(
            "XLA %s is newer than this version of hlo-passes knows: it is followed "
            "as XLA %s",
            version,
            NEWEST,
        )
