"""The simulated device at run time: cores and their claims, HBM accounting, execution."""
