"""From a PyTorch module to a NEFF: capture, check, transform, lower, pack and cache."""
