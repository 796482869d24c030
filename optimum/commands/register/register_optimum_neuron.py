"""Registers our commands with optimum-cli, which imports every file of this folder.

There is no `__init__.py` in this folder or above it: `optimum` is a namespace shared by many distributions.
"""

from optimum.commands.export.base import ExportCommand

from optimum_neuron.cli import NeuronCommand, NeuronExportCommand

REGISTER_COMMANDS = [NeuronCommand, (NeuronExportCommand, ExportCommand)]
