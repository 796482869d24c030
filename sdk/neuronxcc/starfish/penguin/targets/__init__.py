"""The older place of the grid of cores, for scripts that import it from there."""
