"""Settings of traced models: their cores, when they load, and whether they take any batch size.

Cores and loading are properties of the model in this process; `lazy_load`, `async_load`, and `dynamic_batch` are also
saved with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .batches import compiled_rows
from .contexts import make_placement, num_cores
from .script import neuron_models, session_of

if TYPE_CHECKING:
    import torch


def set_neuron_cores(trace: torch.jit.ScriptModule, start_nc: int = -1, nc_count: int = -1) -> None:
    """Unload a traced model from its cores; its next call loads it on others. Each core gets a replica.

    Calls go to the replicas in turn, so several threads keep several cores busy.

    Args:
        trace: Result of `trace`.
        start_nc: First core, counted from 0 among those of the process; -1 is the least loaded one.
        nc_count: how many; -1 is one.

    Raises:
        ConfigError: the process has no such cores.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import set_neuron_cores, trace

        model = trace(torch.nn.ReLU(), torch.rand(2), compiler_args="-O1")
        set_neuron_cores(model, start_nc=0, nc_count=2)
        ```
    """
    placement = make_placement(start_nc, nc_count)
    for model in neuron_models(trace):
        session_of(model).place(placement)


def set_multicore(trace: torch.jit.ScriptModule) -> None:
    """Give every core of the process a replica of a traced model, see `set_neuron_cores`."""
    set_neuron_cores(trace, 0, num_cores())


def lazy_load(trace: torch.jit.ScriptModule, enable_lazy_load: bool = True) -> None:
    """Load a traced model with its first call, instead of when it is traced or loaded from a file.

    Called before `torch.jit.save`, it decides for whoever loads the file. A model that is on a core now is unloaded.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import lazy_load, trace

        model = trace(torch.nn.ReLU(), torch.rand(2), compiler_args="-O1")
        lazy_load(model)
        torch.jit.save(model, "relu.pt")
        ```
    """
    for model in neuron_models(trace):
        model.lazy_load = enable_lazy_load
        if enable_lazy_load:
            session_of(model).unload()


def async_load(trace: torch.jit.ScriptModule, enable_async_load: bool = True) -> None:
    """Let `torch.jit.load` return while a thread loads the model; its first call waits for that.

    With `lazy_load` too, loading waits for the first call or for `DataParallel`.
    """
    for model in neuron_models(trace):
        model.async_load = enable_async_load


def wait_for_host_code(trace: torch.jit.ScriptModule, timeout_s: float | None = None) -> bool:
    """Load a traced model and wait until its blocks that compile in the background are ready.

    Args:
        trace: the traced model.
        timeout_s: longest time to wait for each part, in seconds; None waits for the end.

    Returns:
        Whether they are ready.

    Raises:
        LoweringError: a block could not be compiled.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import trace, wait_for_host_code

        model = trace(torch.nn.ReLU(), torch.rand(2), compiler_args="-O1")
        assert wait_for_host_code(model)
        ```
    """
    return all([session_of(model).wait_for_host_code(timeout_s) for model in neuron_models(trace)])


def dynamic_batch(neuron_script: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Let a traced model take any size of dimension 0, and return it; the setting is saved with it.

    Calls are split into the compiled number of rows, and the last rows are padded. Time goes with the number of splits.

    Args:
        neuron_script: Result of `trace`; it is changed in place.

    Raises:
        ConfigError: inputs or outputs have no dimension 0 that all of them share, or the model has a state.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import dynamic_batch, trace

        model = trace(torch.nn.Linear(4, 2), torch.rand(3, 4), compiler_args="-O1")
        assert dynamic_batch(model)(torch.rand(7, 4)).shape == (7, 2)
        ```
    """
    for model in neuron_models(neuron_script):
        program = session_of(model).program
        for graph in program.graphs.values():
            compiled_rows(program, graph)
        model.dynamic_batch = True
    return neuron_script
