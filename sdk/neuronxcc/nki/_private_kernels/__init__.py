"""Kernels under the names that older scripts import."""
