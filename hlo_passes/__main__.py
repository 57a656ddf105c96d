"""`python -m hlo_passes`: the command line."""

from hlo_passes.cli.main import console_main

console_main()
