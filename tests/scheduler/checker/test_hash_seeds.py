"""Equal modules give equal bytes, whatever the hash seed.

Twenty seeds and a thousand modules: `python -m tests.scheduler.checker.schedule_digest`.
"""

from __future__ import annotations

from tests.scheduler.checker.schedule_digest import digests_under


def test_schedules_do_not_depend_on_the_hash_seed() -> None:
    first, second = (digests_under(seed, modules=8, policies=6) for seed in (1, 2))
    assert len(first) == 8
    assert first == second
