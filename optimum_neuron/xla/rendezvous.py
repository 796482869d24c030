"""Meeting points of the processes of a run: `xm.rendezvous`, `xm.mesh_reduce`, `xm.do_on_ordinals`.

They exchange data of the host, outside of graphs; a rendezvous ends the graph of a step.

    >>> rendezvous("example", b"payload")
    [b'payload']
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from ..errors import ConfigError
from .links import link
from .ordinals import global_ordinal


def rendezvous(tag: str, payload: bytes = b"", replicas: Sequence[int] = ()) -> list[bytes]:
    """Wait for other ranks, and exchange data with them.

    Args:
        tag: name of the meeting; all have to name the same one.
        payload: what this rank brings.
        replicas: the ranks that meet; empty: all.

    Returns:
        What each of them brings, in their order.

    Raises:
        CollectiveError: a rank is at another meeting, or has ended.
        ConfigError: the payload is not bytes.
    """
    from . import graphs

    if not isinstance(payload, bytes):
        message = f"The payload of the rendezvous {tag!r} is a {type(payload).__name__}."  # type: ignore[unreachable]
        raise ConfigError(message, hint="Pass bytes.", tag=tag)
    graphs.sync()
    group, call = link(list(replicas) or None), f"rendezvous({tag!r})"
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in group.members]
    group.run(call, lambda gloo: gloo.allgather([sizes], [torch.tensor([len(payload)])]))
    largest = max(int(size) for size in sizes)
    if largest == 0:
        return [b""] * len(sizes)
    padded = torch.frombuffer(bytearray(payload.ljust(largest, b"\0")), dtype=torch.uint8)
    brought = [torch.empty_like(padded) for _ in group.members]
    group.run(call, lambda gloo: gloo.allgather([brought], [padded]))
    return [data.numpy().tobytes()[: int(size)] for data, size in zip(brought, sizes, strict=True)]


def xla_rendezvous(payload: bytes = b"", ordinals: Sequence[int] | None = None, tag: str | None = None) -> list[bytes]:
    """Meet as `rendezvous` does.

    Args:
        payload: as of `rendezvous`.
        ordinals: as `replicas` of `rendezvous`; None: all ranks.
        tag: as of `rendezvous`.
    """
    return rendezvous(tag or "", payload, ordinals or ())


def mesh_reduce(tag: str, data: object, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """Combine data of all ranks on the host.

    Args:
        tag: as of `rendezvous`.
        data: tensors, numbers, and lists and dictionaries of them.
        reduce_fn: takes the list of all ranks' data, with tensors on the CPU.

    Returns:
        What the function returns.
    """
    from .nested import to_cpu

    file = io.BytesIO()
    torch.save(to_cpu(data), file)
    brought = rendezvous(tag, file.getvalue())
    return reduce_fn([torch.load(io.BytesIO(one), weights_only=True) for one in brought])


def do_on_ordinals(target: Callable[..., Any], data: object = (), ordinals: Collection[int] | int = (0,)) -> Any:
    """Call a function in some ranks, while the others wait.

    Args:
        target: the function.
        data: its arguments; tensors are moved to the CPU.
        ordinals: the ranks, or one of them.

    Returns:
        What it returns; None in other ranks.
    """
    from .nested import to_cpu

    chosen = (ordinals,) if isinstance(ordinals, int) else ordinals
    is_chosen = global_ordinal() in chosen
    arguments = to_cpu(data, convert=is_chosen)
    result = target(*arguments) if is_chosen else None
    rendezvous("torch_xla.core.xla_model.do_on_ordinals")
    return result
