"""The operators of namespace `neuron` that a traced model's TorchScript calls, and the sessions behind them.

Importing this module registers them; without it `torch.jit.load` says "Unknown builtin op: neuron::load". A session
belongs to the tensor that holds the bytes of its NEFF, so it ends with the ScriptModule, and a copy has its own.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ..artifact import read_artifact
from ..base import env
from ..compiler import tensor_spec
from ..compiler.neff import Neff, neff_from_bytes
from ..errors import ArtifactError, WeightsError
from .artifact import require_traced
from .contexts import IS_LAZY, PLACEMENT
from .ranks import stacked
from .session import Session

ORIGIN = "the traced model"
"""Name of a NEFF from a TorchScript file in messages."""

_SCHEMAS = (
    "load(Tensor neff, Tensor[] weights, str weights_hash, bool lazy, bool background) -> Tensor",
    "forward(Tensor[] inputs, Tensor neff, int entry, bool batches) -> Tensor[]",
    "weights_hash(Tensor[] weights) -> str",
    "close(Tensor(a!) neff) -> ()",  # marked as a write, or TorchScript would drop a call without results
    "load_ranks(Tensor(a!) neff, Dict(str, Tensor)[] weights) -> ()",
    "read_state(Tensor neff, str name, int rank) -> Tensor",
    "write_state(Tensor(a!) neff, str name, int rank, Tensor value) -> ()",
)

_SESSIONS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def open_session(neff: Neff, weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Make a session, and return the tensor that it belongs to: the bytes of the NEFF, without a copy."""
    require_traced(neff)
    session = Session(read_artifact(neff), weights, placement=PLACEMENT.get())
    with warnings.catch_warnings():
        # The mapping is for reading only, and torch warns about that.
        warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
        tensor = torch.frombuffer(neff.content, dtype=torch.uint8)
    keep_session(tensor, session)
    return tensor


def keep_session(tensor: torch.Tensor, session: Session) -> None:
    """Let a session belong to the tensor with the bytes of its NEFF."""
    _SESSIONS[tensor] = session


def session_of_bytes(neff: torch.Tensor) -> Session:
    """The session of a tensor that `open_session` returned."""
    session = _SESSIONS.get(neff)
    if session is None:
        message = f"The program of {ORIGIN} was replaced by a plain tensor."
        raise ArtifactError(message, hint="Load the file again with torch.jit.load.")
    return session


def start(session: Session, *, lazy: bool, background: bool) -> None:
    """Load now, in the background, or with the first call."""
    if lazy or IS_LAZY.get():
        return
    if background:
        session.load_in_background()
    else:
        session.load()


def weights_hash(weights: Sequence[torch.Tensor]) -> str:
    """sha256 of dtypes, shapes and bytes, in hexadecimal."""
    digest = hashlib.sha256()
    for tensor in weights:
        digest.update(str(tensor_spec(tensor)).encode())
        digest.update(memoryview(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def _load(neff: torch.Tensor, weights: list[torch.Tensor], expected: str, lazy: bool, background: bool) -> torch.Tensor:
    opened = neff_from_bytes(memoryview(neff.contiguous().numpy()), ORIGIN)
    if env.validate_hash() and weights_hash(weights) != expected:
        message = f"The {len(weights)} weights of {ORIGIN} were altered: their hash is not the one in the file."
        hint = "Copy the file again, or set NEURON_RT_VALIDATE_HASH=0 if you changed it yourself."
        raise WeightsError(message, hint=hint)
    tensor = open_session(opened, weights)
    session = session_of_bytes(tensor)
    session.require_target()  # a file for other cores fails here, also where it would be loaded later
    start(session, lazy=lazy, background=background)
    return tensor


def _forward(inputs: list[torch.Tensor], neff: torch.Tensor, entry: int, batches: bool) -> list[torch.Tensor]:
    return session_of_bytes(neff).run(inputs, entry, batches=batches)


def _close(neff: torch.Tensor) -> None:
    session_of_bytes(neff).close()


def load_ranks(neff: torch.Tensor, weights: Sequence[Mapping[str, torch.Tensor]]) -> None:
    """Give each rank its weights, and load."""
    session = session_of_bytes(neff)
    session.replace_weights(stacked(session.artifact, weights))
    start(session, lazy=False, background=False)


def _read_state(neff: torch.Tensor, name: str, rank: int) -> torch.Tensor:
    return session_of_bytes(neff).state_of(name, rank).clone()


def _write_state(neff: torch.Tensor, name: str, rank: int, value: torch.Tensor) -> None:
    session_of_bytes(neff).state_of(name, rank).copy_(value)


def unload_all() -> None:
    """Give the cores and the memory of all traced models back; their next call loads them again."""
    for session in list(_SESSIONS.values()):
        session.unload()


_LIBRARY = torch.library.Library("neuron", "FRAGMENT")
_KERNELS = (_load, _forward, weights_hash, _close, load_ranks, _read_state, _write_state)
for _schema, _kernel in zip(_SCHEMAS, _KERNELS, strict=True):
    _LIBRARY.define(_schema)
    # Implicit: gradients do not flow through a program, and outputs then say so.
    _LIBRARY.impl(_schema.partition("(")[0], _kernel, "CompositeImplicitAutograd")
