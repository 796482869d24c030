"""Kernels under the vendor's names."""
