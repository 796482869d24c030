"""torch.distributed's backend "xla": `init_process_group("xla")`, groups with a mesh, and `init_method="xla://"`.

Collectives are those of the device's backend (`device/distributed.py`). Two things differ from other backends. Only the
members of a group call `new_group`, as in torch_xla, so its name follows from its ranks. And ranks compare each
collective before they start it: where they differ, all of them raise an error instead of waiting.

    >>> import torch.distributed as dist
    >>> register()
    >>> dist.init_process_group("xla", store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.new_group([0], pg_options={"xla_pg_options": {"mesh": [[0]]}})._mesh
    [[0]]
    >>> dist.destroy_process_group()
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ..device import distributed
from ..errors import ConfigError
from ..upstream.torch import GROUP_MESH, NEW_GROUP, create_process_group_wrapper
from . import exchanges as exchanges  # its operators stand for torch's collectives in recorded graphs

BACKEND = "xla"
Mesh = list[list[int]]

_meshes: dict[str, Mesh] = {}
"""Mesh of each group, by the group's name."""


class _OfBackend(type):
    """Lets a class stand for the groups of a backend: the groups themselves are torch's."""

    def __instancecheck__(cls, group: object) -> bool:
        with contextlib.suppress(ValueError):  # the group was destroyed
            return isinstance(group, dist.ProcessGroup) and dist.get_backend(group) == BACKEND
        return False


class ProcessGroupXla(metaclass=_OfBackend):
    """What `isinstance` compares with: a process group of the backend "xla" is one."""


@functools.cache
def register() -> None:
    """Register the backend "xla" and the address "xla://" with torch.distributed."""
    if not dist.is_available() or not dist.is_gloo_available():
        return
    distributed.register(BACKEND, _make_checked)
    dist.register_rendezvous_handler(BACKEND, _rendezvous)
    NEW_GROUP.replace(_made_by_members)
    GROUP_MESH.set(property(_mesh_of, _set_mesh))


def _make_checked(store: object, rank: int, size: int, timeout: timedelta) -> Any:
    """Make a backend whose ranks compare what they call before they exchange data."""
    gloo = distributed.make_gloo(store, rank, size, timeout)
    if size == 1:
        return gloo
    return create_process_group_wrapper(gloo, "checks", store, rank, size, timeout)


def _rendezvous(url: str, **options: object) -> Iterator[tuple[Any, int, int]]:
    """Find the other processes by the variables of the launcher; without them there are none."""
    from .links import launched

    if not launched():
        yield dist.HashStore(), 0, 1
        return
    options = {name: value for name, value in options.items() if name == "timeout"}
    yield from dist.rendezvous("env://", **options)


def _made_by_members(new_group: Callable[..., Any]) -> Callable[..., Any]:
    """Let members alone make groups of the backend, and give these their mesh."""

    @functools.wraps(new_group)
    def new_group_of_members(
        ranks: Sequence[int] | None = None,
        timeout: timedelta | None = None,
        backend: str | None = None,
        backend_options: object = None,
        *rest: object,
        **options: object,
    ) -> Any:
        if (backend or dist.get_backend()) != BACKEND:
            return new_group(ranks, timeout, backend, backend_options, *rest, **options)
        wanted = backend_options.get("xla_pg_options", {}) if isinstance(backend_options, dict) else {}
        world = list(range(dist.get_world_size()))
        members = world if ranks is None else list(ranks)
        mesh = _mesh_for(members, world, wanted)
        options["use_local_synchronization"] = True
        group = new_group(members, timeout, backend, None, *rest, **options)
        if isinstance(group, dist.ProcessGroup):
            _meshes[group.group_name] = mesh
        return group

    return new_group_of_members


def _mesh_for(members: list[int], world: list[int], options: dict[str, Any]) -> Mesh:
    """The groups that are made together with one of these ranks.

    Raises:
        ConfigError: the mesh of the options does not have it.
    """
    given = options.get("mesh")
    if members == world:
        return [members]
    if len(members) == 1:
        return [[rank] for rank in world]
    if given is None:
        return _columns_or_rows(members, world) if options.get("spmd") else [members]
    mesh = [list(row) for row in given]
    if sorted(members) not in [sorted(row) for row in mesh]:
        message = f"The mesh {mesh} has no group of the ranks {members}."
        raise ConfigError(message, hint="Pass a mesh with the ranks of this group.", mesh=mesh, ranks=members)
    return mesh


def _columns_or_rows(members: list[int], world: list[int]) -> Mesh:
    """The rectangle of all ranks in which these are a row or a column.

    Raises:
        ConfigError: there is none.
    """
    size = len(members)
    rows = [world[start : start + size] for start in range(0, len(world), size)]
    columns = [world[start :: len(world) // size] for start in range(len(world) // size)]
    for mesh in (rows, columns):
        if members in mesh and len(world) % size == 0:
            return mesh
    message = f"The ranks {members} are no row and no column of a rectangle of {len(world)} ranks."
    hint = "Pass all groups, pg_options={'xla_pg_options': {'mesh': GROUPS}}."
    raise ConfigError(message, hint=hint, ranks=members, world_size=len(world))


def _mesh_of(group: dist.ProcessGroup) -> Mesh:
    return _meshes.get(group.group_name, [])


def _set_mesh(group: dist.ProcessGroup, mesh: Mesh) -> None:
    _meshes[group.group_name] = mesh
