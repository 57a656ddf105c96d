"""Records what a script compiles; the command is `hlo-passes capture`."""
