"""What a loop or input fusion costs: cost analysis, kernel shape, roofline."""
