"""Sizes of tiles, where kernels of the older API import them from."""

from optimum_neuron.nki.older.language import tile_size

__all__ = ["tile_size"]
