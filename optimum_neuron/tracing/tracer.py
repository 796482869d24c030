"""`torch_neuronx.trace`: compile a model for a simulated NeuronCore and get a ScriptModule that runs there.

model = trace(bert, (input_ids, attention_mask))
torch.jit.save(model, "bert.pt")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..options.option import checks_keywords
from .compile import checked_flags, compile_entries, work_folder
from .entry import make_entry, warn_ignored
from .partition import PartitionerConfig, partition
from .script import nested, script_neff
from .states import Aliases

if TYPE_CHECKING:
    import torch

_ENTRY = "graph"


@checks_keywords
def trace(
    func: Callable[..., Any],
    example_inputs: object = None,
    *_: object,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
    input_output_aliases: Aliases = {},  # noqa: B006
    compiler_workdir: str | Path | None = None,
    compiler_args: str | Sequence[str] | None = None,
    partitioner_config: PartitionerConfig | None = None,
    inline_weights_to_neff: bool = True,
    cpu_backend: bool = False,
) -> torch.jit.ScriptModule:
    """Compile a module or function, and load it on a simulated NeuronCore.

    Args:
        func: called with the example inputs; its code may not depend on their values.
        example_inputs: a tensor, or a tuple of tensors and of tuples, lists and dictionaries of tensors. Only shapes
            and dtypes are used.
        example_kwarg_inputs: in place of example_inputs, a dictionary of them by parameter name, as in
            `torch.jit.trace`; the traced model has these parameters.
        input_output_aliases: parameters or buffers of the module that stay on the device, each with the number of the
            output that is its next value; these outputs are not returned.
        compiler_workdir: folder that gets `graph.neff`; None keeps no file.
        compiler_args: flags of neuronx-cc, as one text or a list of words.
        partitioner_config: lets unsupported operators run on the host.
        inline_weights_to_neff: False keeps the weights outside the NEFF, where `replace_weights` can change them.
        cpu_backend: compile only, also for a target that the simulated instance is not; needs --target in
            compiler_args. A core is claimed with the first call.

    Returns:
        A ScriptModule with the inputs and outputs of `func`, on the CPU. It can be saved and loaded with `torch.jit`.

    Raises:
        ConfigError: an argument cannot be used.
        CaptureError: the code depends on values; the message names the user's line.
        UnsupportedOperatorError: an operator is not supported; all are listed with module, line, and code.
        CoreBusyError, DeviceMemoryError: the model cannot be loaded.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import trace

        linear = torch.nn.Linear(4, 2)
        model = trace(linear, torch.rand(3, 4), compiler_args="-O1")
        x = torch.rand(3, 4)
        torch.testing.assert_close(model(x), linear(x))
        ```
    """
    warn_ignored("trace takes func and example_inputs", _, stacklevel=4)  # `checks_keywords` calls this function
    facts: dict[str, Any] = {}
    host_ops: frozenset[str] = frozenset()
    options = partitioner_config.trace_kwargs or {} if partitioner_config is not None else {}
    flags = checked_flags(options.get("compiler_args", compiler_args), cpu_backend=cpu_backend, stacklevel=5)
    entry = make_entry(func, example_inputs, input_output_aliases, keywords=example_kwarg_inputs)
    if partitioner_config is not None:
        plan = partition(entry, flags, partitioner_config)
        host_ops, facts = plan.host_ops, {"partition": plan.to_dict()}
    with work_folder(options.get("compiler_workdir", compiler_workdir), flags.flags.temp_dir) as folder:
        neff, weights = compile_entries(
            {_ENTRY: entry},
            flags,
            folder,
            inline_weights=inline_weights_to_neff,
            host_ops=host_ops,
            facts=facts,
        )
        return nested(script_neff(neff, weights, lazy=cpu_backend), entry)
