"""Ranks that run one kernel together, and what they exchange: each posts what it has, and takes what the others posted.

A rank is a logical core: one or more physical ones that share HBM. `World` knows the ranks of one launch. The n-th
collective of a group is the same operation on all of its ranks: ranks that call another one, or end before it, are an
error with the lines of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .core import Core, Rule, kernel_line, refuse, require
from .world import Key, Post


def exchange(
    core: Core,
    group: tuple[int, ...],
    opcode: str,
    terms: tuple[Any, ...],
    tensors: tuple[torch.Tensor, ...],
    *,
    within_grid: bool = False,
    place: tuple[int, ...] = (),
) -> dict[int, tuple[torch.Tensor, ...]] | None:
    """Post the tensors of this rank, wait for the group, and return what each rank posted.

    Args:
        group: Ranks that take part; with `within_grid`, numbers of cores.
        within_grid: Whether programs of one grid exchange, and not ranks.
        place: Place in the grid of the cores that exchange, if each physical core of a rank does so for itself.

    Returns:
        Tensors by rank; None if another physical core of this rank did it.
    """
    require(core.tape is None, Rule.EXCHANGE_IN_STREAM, opcode=opcode)
    world, rank = core.world, core.number if within_grid else core.rank_id
    members = (within_grid, group, place)
    number = core.num_collectives.get(members, 0)
    core.num_collectives[members] = number + 1
    key = (*members, number)
    if key in world.posts and rank in world.posts[key]:
        _wait(core, opcode, group, lambda: (*key, rank) in world.done, key)
        return None
    posts = world.posts.setdefault(key, {})
    posts[rank] = Post(opcode, terms, kernel_line(), tuple(tensor.clone() for tensor in tensors))
    _compare(rank, posts, group)  # the later one of two ranks compares them
    _wait(core, opcode, group, lambda: len(posts) == len(group), key)
    world.done.add((*key, rank))
    return {member: posts[member].tensors for member in group}


def _wait(core: Core, opcode: str, group: tuple[int, ...], ready: Callable[[], bool], key: Key) -> None:
    if ready() or core.world.turns.wait(core.number, ready):
        return
    posted = core.world.posts.get(key, {})
    missing = [member for member in group if member not in posted]
    refuse(Rule.DEADLOCK, instruction=opcode, core=core, absent=_ranks(missing), group=group, missing=missing)


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _compare(rank: int, posts: dict[int, Post], group: tuple[int, ...]) -> None:
    mine = posts[rank]
    for other, post in posts.items():
        same = (post.opcode, post.terms) == (mine.opcode, mine.terms)
        ranks, lines = [rank, other], [mine.line, post.line]
        require(same, Rule.COLLECTIVES_DIFFER, group=group, mine=mine, post=post, ranks=ranks, lines=lines)
