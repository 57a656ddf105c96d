"""HLO text: readers, writer."""
