"""Handles of tensors that a script keeps until the interpreter exits."""

import subprocess
import sys

SCRIPT = """
import torch
from optimum_neuron.compiler.lower import handles

kept = handles.Handles([torch.ones(2)])
# The interpreter clears the globals of modules, in an order that the script cannot choose.
vars(handles).update({name: None for name in vars(handles) if not name.startswith("__")})
"""


def test_handles_in_globals_are_silent_at_exit():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
