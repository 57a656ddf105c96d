"""Which pass, which rewrite of it, and the smallest module that shows the failure."""
