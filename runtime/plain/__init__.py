"""Any HLO module -> plain HLO, which XLA's CPU pipeline takes whole."""
