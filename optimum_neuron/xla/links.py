"""Connections between the processes of a run, for collectives that need no process group of torch's.

A script may call `xm.all_reduce` without `init_process_group`. Each set of ranks has a link, which its members make at
its first use; no other process takes part. Before data is exchanged, members compare what they are about to do, so a
rank that calls another collective, or one of another shape, is an error in all of them instead of a wait without end.

    >>> link([0]).members
    (0,)
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from ..base import env
from ..base.wording import counted
from ..errors import CollectiveError, ConfigError
from .ordinals import global_ordinal, world_size

TIMEOUT = timedelta(minutes=30)
"""How long members wait for one that does not come, as torch's process groups do."""

_ENDED = "ended"
_SHOWN = 4


class Link:
    """Members of a group, connected.

    Args:
        members: their ranks, in the order of the group.
        store: where they find each other.
    """

    def __init__(self, members: tuple[int, ...], store: object) -> None:
        self.members = members
        self.index = members.index(global_ordinal())
        self._store = dist.PrefixStore("-".join(map(str, members)), store)
        self._num_disputes = 0
        _meet(members, self._store, store)
        with _said_clearly(members, "the first exchange"):
            self.gloo = dist.ProcessGroupGloo(self._store, self.index, len(members), timeout=TIMEOUT)

    def run(self, call: str, exchange: Callable[[Any], Any], *, tensors: Sequence[torch.Tensor] = ()) -> None:
        """Exchange data, if all members are about to do the same.

        Args:
            call: what this rank does.
            exchange: takes the backend, and returns work to wait for.
            tensors: arguments; their shapes and dtypes are to be the same.

        Raises:
            CollectiveError: a rank does something else, or has ended.
        """
        with _said_clearly(self.members, call):
            said = [call, *(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in tensors)]
            if len(self.members) > 1 and not self._agrees("\n".join(said)):
                self._dispute(said)
            exchange(self.gloo).wait()

    def _agrees(self, said: str) -> bool:
        digest = int.from_bytes(hashlib.blake2b(said.encode(), digest_size=7).digest(), "big")
        both = torch.tensor([digest, -digest])
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        self.gloo.allreduce([both], options).wait()
        return int(both[0]) == -int(both[1])

    def _dispute(self, said: list[str]) -> NoReturn:
        """Raise the error in which all members say what they do, and which operators led to it."""
        from . import device, graphs

        operators = graphs.discard() if device.is_enabled() else []
        self._num_disputes += 1
        key, own = f"dispute {self._num_disputes}", f"{global_ordinal()}"
        self._store.set(f"{key}/{own}", json.dumps([said, operators]))
        answers = {rank: json.loads(self._store.get(f"{key}/{rank}")) for rank in self.members}
        calls = {rank: _call_in_words(*said) for rank, (said, _) in answers.items()}
        parts = [f"rank {rank} calls {text}" for rank, text in calls.items()]
        differing = _first_difference("tensor", {rank: said[1:] for rank, (said, _) in answers.items()})
        differing += _first_difference("operator of the graph", {rank: names for rank, (_, names) in answers.items()})
        hint = "Let every rank make the same calls, in the same order and with the same shapes."
        message = f"Ranks differ: {'; '.join([*parts, *differing])}."
        raise CollectiveError(message, hint=hint, calls=calls, differing=differing)


def _call_in_words(call: str, *tensors: str) -> str:
    shown = ", ".join(tensors[:_SHOWN]) + (", ..." if len(tensors) > _SHOWN else "")
    count = f"{counted(len(tensors), 'tensor')}: " if len(tensors) > 1 else ""
    return f"{call} of {count}{shown}" if tensors else call


def _first_difference(kind: str, lists: dict[int, list[str]]) -> list[str]:
    """Say which of several things is the first that differs; empty if none does, or if there is only one."""
    length = max(map(len, lists.values()))
    for number in range(length if length > 1 else 0):
        here = {rank: texts[number] if number < len(texts) else "none" for rank, texts in lists.items()}
        if len(set(here.values())) > 1:
            parts = ", ".join(f"{text} on rank {rank}" for rank, text in here.items())
            return [f"{kind} {number} is the first that differs: {parts}"]
    return []


@contextlib.contextmanager
def _said_clearly(members: tuple[int, ...], call: str) -> Iterator[None]:
    """Raise a lost connection as an error that says which ranks to look at."""
    try:
        yield
    except CollectiveError:
        raise
    except RuntimeError as error:
        others = [rank for rank in members if rank != global_ordinal()]
        message = f"Rank {' or '.join(map(str, others))} has ended, or did not come in time, in {call}."
        hint = "Look for that rank's own error; all ranks must make the same calls."
        raise CollectiveError(message, hint=hint, call=call, ranks=others) from error


def link(members: Iterable[int] | None = None) -> Link:
    """Return the connection of a group; its members make it at its first use.

    Args:
        members: ranks in the order of the group; None: all.

    Raises:
        ConfigError: there is no such rank, or this rank is not a member.
        CollectiveError: a member has ended.
    """
    size, own = world_size(), global_ordinal()
    ranks = tuple(range(size)) if members is None else tuple(members)
    outside = [rank for rank in ranks if not 0 <= rank < size]
    if outside or len(set(ranks)) < len(ranks):
        message = f"A group has the ranks {list(ranks)}, but ranks are 0 to {size - 1}, each once."
        raise ConfigError(message, hint="Remove the others from `groups`.", ranks=list(ranks), world_size=size)
    if own not in ranks:
        message = f"Rank {own} is not in the group {list(ranks)}."
        raise ConfigError(message, hint="Let each rank be in one of `groups`.", rank=own, ranks=list(ranks))
    return _linked(ranks, size)


@functools.cache
def _linked(ranks: tuple[int, ...], size: int) -> Link:
    return Link(ranks, _store(size))


def group_of(groups: Sequence[Sequence[int]] | None) -> Link:
    """Return the connection of the group that this rank is in.

    Args:
        groups: lists of ranks; None or empty: one group of all.

    Raises:
        ConfigError: this rank is in none or in several of them, or they have ranks that do not exist.
    """
    if not groups:
        return link()
    own = global_ordinal()
    found = [group for group in groups if own in group]
    if len(found) != 1:
        message = f"Rank {own} is in {len(found)} of the groups {[list(group) for group in groups]}."
        raise ConfigError(message, hint="Let each rank be in one of `groups`.", rank=own, count=len(found))
    return link(found[0])


def launched() -> bool:
    """Return whether a launcher has set the variables by which processes find each other."""
    return None not in (env.master_address(), env.rank(), env.world_size())


@functools.cache
def _store(size: int) -> Any:
    """The key-value store of the run: that of the launcher's variables, or of torch's process group."""
    if size == 1:
        return dist.HashStore()
    if launched():
        store = next(dist.rendezvous("env://", timeout=TIMEOUT))[0]
    else:
        from ..upstream.torch import get_default_store

        store = get_default_store()
    leave_at_exit()
    return dist.PrefixStore("optimum_neuron.xla", store)


_num_sent: collections.Counter[str] = collections.Counter()
_num_received: collections.Counter[str] = collections.Counter()


def send_bytes(channel: str, data: bytes) -> None:
    """Leave data for the rank that receives from a channel.

    Args:
        channel: its name.
        data: the data.
    """
    _store(world_size()).set(f"{channel}/{_num_sent[channel]}", data)
    _num_sent[channel] += 1


def receive_bytes(channel: str) -> bytes:
    """Return the next data of a channel, once they are there, and remove them.

    Args:
        channel: its name.

    Raises:
        CollectiveError: nobody sends in time.
    """
    store, key = _store(world_size()), f"{channel}/{_num_received[channel]}"
    with _said_clearly(link().members, f"a receive from {channel}"):
        _wait(store, store, {key: None})
        data: bytes = store.get(key)
    store.delete_key(key)
    _num_received[channel] += 1
    return data


@functools.cache
def leave_at_exit() -> None:
    """Tell other ranks when this process ends; a rank that has exchanged nothing so far is waited for too."""
    atexit.register(leave)


def leave() -> None:
    """Tell ranks that wait for this one that it has ended."""
    has_store = _store.cache_info().currsize > 0 or (launched() and dist.is_torchelastic_launched())
    if world_size() == 1 or not has_store:
        return
    with contextlib.suppress(RuntimeError):  # if the process of the store has ended before, nobody waits
        _store(world_size()).set(f"{_ENDED}/{global_ordinal()}", "")


def _meet(members: tuple[int, ...], own: Any, store: Any) -> None:
    """Wait until all members are here.

    Raises:
        CollectiveError: one has ended.
    """
    with _said_clearly(members, "the first exchange"):
        own.set(f"here/{global_ordinal()}", "")
        _wait(own, store, {f"here/{rank}": rank for rank in members})


def _wait(keys: Any, store: Any, owners: dict[str, int | None]) -> None:
    """Wait for keys of ranks, unless one of these ranks has ended; None: any other rank.

    Raises:
        RuntimeError: a key will not come, or does not come in time.
    """
    end, pause = time.monotonic() + TIMEOUT.total_seconds(), 0.001
    others = [rank for rank in range(world_size()) if rank != global_ordinal()]
    while missing := [key for key in owners if not keys.check([key])]:
        ended = [rank for rank in others if store.check([f"{_ENDED}/{rank}"])]
        hopeless = ended == others if owners[missing[0]] is None else any(owners[key] in ended for key in missing)
        if (hopeless and not keys.check(missing)) or time.monotonic() > end:
            raise RuntimeError(f"{', '.join(missing)} did not come; ranks {ended} have ended.")
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
