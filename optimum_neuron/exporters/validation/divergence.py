"""The first module of a compiled model whose results differ from the reference's: where to look for a defect.

Modules are compared by their names; where ours has a name that the reference has not, such as a joined projection, the
module around it is compared.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...base.transformers_types import PreTrainedModel
from .statistics import compare

if TYPE_CHECKING:
    import torch

    from ...kinds import Recorder, Scenario

_LOST_DB = 20.0
"""A module that loses so much of the signal-to-noise ratio is named."""


def first_diverging(scenario: Scenario, recorder: Recorder, reference: PreTrainedModel) -> str:
    """Return, in words, which module of a failed scenario is the first to lose 20 dB or to give NaN."""
    if recorder.group_size > 1:
        return (
            f"each of {recorder.group_size} cores computes a part of every module, so no module is compared; export "
            "with tensor_parallel_size=1 to see which one differs"
        )
    recorder.calls.clear()
    scenario.run()
    calls = _comparable(recorder)
    with _recorded(reference) as outputs:
        scenario.reference()
    state = recorder.take_state()
    previous = math.inf
    try:
        for graph, inputs in calls:
            trace = recorder.trace(graph, inputs, state)
            if (place := _embedding(trace, outputs, scenario.num_equal)) is not None:
                return place
            for path, results in trace:
                sqnr_db = _agreement(results, outputs.get(_plain(path, outputs), []), scenario.num_equal)
                if sqnr_db is None:
                    continue
                if math.isnan(sqnr_db) or sqnr_db < min(previous - _LOST_DB, _LOST_DB):
                    return f"the first diverging module is {path} (SQNR {sqnr_db:.1f} dB, before it {previous:.1f} dB)"
                previous = sqnr_db
    finally:
        recorder.give_back(state)
    return (
        "every compared module of its prompts agrees to 20 dB or drifts slowly: the cache, the norm or head after the "
        "last layer, or the sum of all differences is past the tolerance"
    )


def _comparable(recorder: Recorder) -> list[tuple[str, Sequence[torch.Tensor]]]:
    """The first call of each role, which begins with the first sequence or image as the reference's first call does.

    Later ones may be of other images or tokens, and decode and extend graphs, and further chunks, read the cache.
    """
    first: dict[str, tuple[str, Sequence[torch.Tensor]]] = {}
    for name, inputs in recorder.calls:
        graph = recorder.program.graphs[name]
        tensors = dict(zip(graph.inputs, inputs, strict=True))
        if "block_table" not in tensors or int(tensors["position_ids"][0, 0]) == 0:
            first.setdefault(graph.role, (name, inputs))
    return [call for role, call in first.items() if role not in ("decode", "extend")]


@contextlib.contextmanager
def _recorded(reference: PreTrainedModel) -> Iterator[dict[str, list[torch.Tensor]]]:
    """The first result of every module of the reference model, by the module's name."""
    import torch

    outputs: dict[str, list[torch.Tensor]] = {}

    def keep(name: str, tensor: object) -> None:
        if isinstance(tensor, torch.Tensor):
            outputs.setdefault(name, []).append(tensor)

    def keep_output(name: str, _module: object, _arguments: object, output: object) -> None:
        keep(name, output[0] if isinstance(output, (tuple, list)) else output)

    def keep_input(name: str, _module: Any, arguments: Any, keywords: Any) -> None:
        keep(_input_of(name), arguments[0] if arguments else keywords.get("hidden_states"))

    with contextlib.ExitStack() as hooks:
        for name, module in reference.named_modules():
            if name:
                hooks.enter_context(module.register_forward_hook(functools.partial(keep_output, name)))
            if name.endswith(".0"):
                hook = functools.partial(keep_input, name)
                hooks.enter_context(module.register_forward_pre_hook(hook, with_kwargs=True))
        yield outputs


def _plain(path: str, outputs: dict[str, list[torch.Tensor]]) -> str:
    """The reference's name of a module: names here begin with those of the wrappers around it."""
    while path and path not in outputs:
        within = [name for name in outputs if name.endswith(f".{path}")]
        if len(within) == 1:
            return within[0]
        path = path.partition(".")[2]
    return path


def _embedding(
    trace: list[tuple[str, list[torch.Tensor]]], outputs: dict[str, list[torch.Tensor]], num_equal: int | None
) -> str | None:
    """Return whether no result before the first layer is close to the input of the reference's first layer."""
    layer = next((place for place, (path, _) in enumerate(trace) if path.rpartition(".")[2].isdigit()), 0)
    expected = outputs.get(_input_of(_plain(trace[layer][0], outputs)), [])
    agreements = [_agreement([result], expected, num_equal) for _, results in trace[:layer] for result in results]
    best = max((sqnr_db for sqnr_db in agreements if sqnr_db is not None), default=math.inf)
    return None if best >= _LOST_DB else f"the embedding diverges (SQNR {best:.1f} dB)"


def _input_of(name: str) -> str:
    return f"input of {name}"


def _agreement(results: list[torch.Tensor], expected: list[torch.Tensor], num_equal: int | None) -> float | None:
    """Signal-to-noise ratio of the first result that has a counterpart; padding and further rows are left out."""
    for result in results:
        for other in expected:
            if result.ndim == other.ndim and result.shape[-1] == other.shape[-1] and other.is_floating_point():
                common = tuple(slice(min(pair)) for pair in zip(result.shape, other.shape, strict=True))
                if num_equal is not None:
                    common = (slice(1), slice(min(num_equal, result.shape[1], other.shape[1])), *common[2:])
                error = compare("", result[common].float(), other[common].float(), tolerance=0.0)
                return math.nan if math.isnan(error.max_abs_error) else error.sqnr_db
    return None
