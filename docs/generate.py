"""Write the generated pages: flags, flag_lists, passes, the rules in scheduler.md.

python -m docs.generate            write them
python -m docs.generate --check    name the stale ones; exit 1 if there are any
"""

from __future__ import annotations

import argparse
import pathlib

from docs import flag_lists_page, flags_page, passes_page, rules_table

DOCS = pathlib.Path(__file__).resolve().parent


def pages() -> dict[pathlib.Path, str]:
    """The text that each generated page must have."""
    scheduler = DOCS / "scheduler.md"
    return {
        DOCS / "flag_lists.md": flag_lists_page.page(),
        DOCS / "flags.md": flags_page.page(),
        DOCS / "passes.md": passes_page.page(),
        scheduler: rules_table.page(scheduler.read_text(encoding="utf-8")),
    }


def main() -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [
        (path, text)
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        print(f"{'stale' if check else 'written'}: docs/{path.name}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
