"""A scheduled module, run on paper: what is exposed, and why."""
