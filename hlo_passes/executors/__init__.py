"""Where evaluations run: here, in processes of this machine, on a cluster."""
