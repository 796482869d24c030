"""Tools that the SDK installs beside its libraries, for the simulated cores of this machine: `neuron-ls`.

They read what processes tell each other through the claims on cores (`runtime/core_files.py`), start nothing and change
nothing. The sdk distribution installs them as console scripts.

devices.py   devices of the simulated instance, and who holds their cores
ls.py        neuron-ls
"""
