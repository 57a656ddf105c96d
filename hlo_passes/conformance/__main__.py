"""`python -m hlo_passes.conformance DIR`."""

import sys

from hlo_passes.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["conformance", *sys.argv[1:]]))
