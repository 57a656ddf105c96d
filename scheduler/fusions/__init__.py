"""The cost of a loop or input fusion: cost analysis, kernel shape, roofline."""
