"""Enumerations of instructions, where kernels of the older API import them from."""

from optimum_neuron.nki.older.isa import dge_mode, engine, nc_version, oob_mode, reduce_cmd

__all__ = ["dge_mode", "engine", "nc_version", "oob_mode", "reduce_cmd"]
