"""The option `--xla=0.12` of every command that runs passes, prices or simulates."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hlo_passes.passes.framework.spec import warn_of_old_name
from hlo_passes.xla_release import RELEASE_NAMES

_NAME = "--xla"
_OLD_NAME = "--xla-version"


def add_xla_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--xla`; '' where it is not given."""
    parser.add_argument(
        _NAME, _OLD_NAME, action=_Release, default="", metavar="RELEASE",
        help=f"the release of XLA to follow: {', '.join(RELEASE_NAMES)}, or a version "
        "after one of them; default: what the module says, else the jaxlib installed",
    )  # fmt: skip


class _Release(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        if option_string == _OLD_NAME:
            warn_of_old_name(_OLD_NAME, _NAME)
        setattr(namespace, self.dest, values)
