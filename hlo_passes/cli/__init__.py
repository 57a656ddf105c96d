"""The command `hlo-passes`."""
