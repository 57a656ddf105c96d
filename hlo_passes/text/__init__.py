"""HLO text: the readers and the writer."""
