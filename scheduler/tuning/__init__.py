"""What can be set to make a step faster, and the search for the best settings."""
