"""Host fallback: operators that the target does not support run on the CPU, between parts that run on a core.

Parts are runs of calls in the order of the graph that have the same place; together they are one program and one file.
A user asks for this with a `PartitionerConfig`, whose limits are checked. Its decisions go to the logger "Neuron".
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..compiler.rules import MAKES, USES
from ..errors import ConfigError
from ..options.option import check_known
from .compile import Flags
from .entry import Entry
from .survey import SurveyedCall, survey

_LOGGER = logging.getLogger("Neuron")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartitionerConfig:
    """How a model may be divided between a core and the host.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import PartitionerConfig, trace

        class Sorted(torch.nn.Module):
            def forward(self, x):
                return torch.sort(torch.relu(x) + 1)[0]

        config = PartitionerConfig(max_subgraph_count=2)
        model = trace(Sorted(), torch.rand(4), partitioner_config=config, compiler_args="-O1")
        assert torch.equal(model(torch.tensor([3.0, -1.0, 2.0, 1.0])), torch.tensor([1.0, 2.0, 3.0, 4.0]))
        ```
    """

    trace_kwargs: Mapping[str, Any] | None = None
    """`compiler_args` and `compiler_workdir` for the parts on a core; they replace those given to `trace`."""
    model_support_percentage_threshold: float = 0.5
    """Least share of operators that the target supports, 0 to 1."""
    min_subgraph_size: int = -1
    """Least number of operators in a part; -1: any."""
    max_subgraph_count: int = -1
    """Largest number of parts; -1: any."""
    ops_to_partition: Collection[str] | None = None
    """Operators that run on the host although the target supports them, such as "aten::log_softmax"."""
    analyze_parameters: Mapping[str, Any] | None = None
    """`additional_ignored_ops`: operators that count neither as supported nor as unsupported. `compiler_workdir` and
    `max_workers` are accepted; the analysis writes nothing and needs no workers."""

    def __post_init__(self) -> None:
        problems = [
            f"{name}={getattr(self, name)!r}"
            for name in ("min_subgraph_size", "max_subgraph_count")
            if isinstance(getattr(self, name), bool) or not (getattr(self, name) == -1 or getattr(self, name) >= 1)
        ]
        if not 0 <= self.model_support_percentage_threshold <= 1:
            problems.append(f"model_support_percentage_threshold={self.model_support_percentage_threshold!r}")
        names = [name for name in self.ops_to_partition or () if "::" not in name]
        if isinstance(self.ops_to_partition, str) or names:
            problems.append(f"ops_to_partition={self.ops_to_partition!r}")
        if problems:
            hint = 'Pass sizes and counts of at least 1 or -1, a threshold of 0 to 1, operators as {"aten::sort"}.'
            message = f"PartitionerConfig has wrong values: {', '.join(problems)}."
            raise ConfigError(message, hint=hint, problems=problems)
        check_known(dict(self.trace_kwargs or {}), ["compiler_args", "compiler_workdir"], what="trace_kwargs")
        known = ["additional_ignored_ops", "compiler_workdir", "max_workers"]
        check_known(dict(self.analyze_parameters or {}), known, what="analyze_parameters")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partition:
    """Operators on the host, and the resulting parts."""

    host_ops: frozenset[str]
    """Operators on the host."""
    supported_share: float
    """Share of the operators that the target supports, 0 to 1."""
    subgraphs: tuple[tuple[str, tuple[str, ...]], ...]
    """Place ("neuron" or "cpu") and operators of each part, in order."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the artifact."""
        return {
            "host_ops": sorted(self.host_ops),
            "supported_share": self.supported_share,
            "subgraphs": [{"device": device, "operators": list(kinds)} for device, kinds in self.subgraphs],
        }


def partition(entry: Entry, flags: Flags, config: PartitionerConfig) -> Partition:
    """Decide the parts, and check the limits.

    Raises:
        ConfigError: a limit is exceeded.
        CaptureError: the code is not static.
    """
    ignored = set((config.analyze_parameters or {}).get("additional_ignored_ops", ()))
    calls = survey(entry, flags.target, flags.flags)
    # A size that depends on values stays unsupported: operators that use it could not run on a core either.
    unsupported = {c.kind for c in calls if not c.supported and c.ruling.rule not in (MAKES, USES)}
    moved = set(config.ops_to_partition or ())
    counted = [call for call in calls if call.kind not in ignored]
    share = sum(call.supported for call in counted) / len(counted) if counted else 1.0
    hosted = frozenset(unsupported | moved)
    grouped = itertools.groupby(calls, key=lambda call: "cpu" if call.kind in hosted else "neuron")
    subgraphs = tuple((device, tuple(call.kind for call in part)) for device, part in grouped)
    result = Partition(host_ops=hosted, supported_share=share, subgraphs=subgraphs)
    _log(result, counted)
    _check(result, config)
    return result


def _check(partition: Partition, config: PartitionerConfig) -> None:
    smallest, count = min((len(kinds) for _, kinds in partition.subgraphs), default=0), len(partition.subgraphs)
    share, threshold = partition.supported_share, config.model_support_percentage_threshold
    limit, least = config.max_subgraph_count, config.min_subgraph_size
    problems = {}
    if share < threshold:
        problem = f"{share:.2%} of the operators are supported, below the threshold of {threshold:.2%}"
        problems["model_support_percentage_threshold"] = problem
    if limit != -1 and count > limit:
        excess = f"which exceeds the specified max subgraph count of {limit}"  # the vendor's words
        problems["max_subgraph_count"] = f"the partitioner has found {count} subgraphs {excess}"
    if smallest < least:
        problem = f"a subgraph has {smallest} operators, below the specified min subgraph size of {least}"
        problems["min_subgraph_size"] = problem
    if problems:
        limits = "; ".join(problems.values())
        message = f"The model cannot be divided within the limits of the PartitionerConfig: {limits}."
        hint = f"Relax the limits, or change the operators on the host: {', '.join(sorted(partition.host_ops))}."
        raise ConfigError(message, hint=hint, options=list(problems), **partition.to_dict())


def _log(partition: Partition, counted: Sequence[SurveyedCall]) -> None:
    supported = sum(call.supported for call in counted)
    _LOGGER.info(
        "%.2f%% of operations (%d of %d) are supported", 100 * partition.supported_share, supported, len(counted)
    )
    _LOGGER.info("Num Partitions: %d", len(partition.subgraphs))
    for index, (device, kinds) in enumerate(partition.subgraphs):
        counts = ", ".join(f"{kind}: {count}" for kind, count in collections.Counter(kinds).items())
        _LOGGER.info("Partition #%d for %s: %s", index + 1, device, counts)
