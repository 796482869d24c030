"""The simulated device at run time: cores and their claims, HBM accounting, execution.

    from optimum_neuron.runtime import held_cores

Names are imported when they are first used. The runtime knows no simulator: see `hooks.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .copies import Copies, CoreThreads, claimed, load_copies
    from .core_choice import num_usable
    from .cores import CoreClaim, claim_cores, held_cores
    from .executor import Executor, check_inputs
    from .hbm import CATEGORIES, MICROCODE_OWNER, TORCH_OWNER, HbmLedger, ledger, size_text
    from .hooks import HOOKS, CallCost
    from .loaded import LoadedProgram, announce, closed_error, load_program, require_fit, require_room
    from .private_core import PrivateCore
    from .segments import State
    from .status import CoreStatus, GraphStatus, ModelStatus, Status, read_status, status_path, watch
    from .timeline import TIMELINE, CoreUsage, Execution, Recording, Track, recording

__all__ = [
    "CATEGORIES",
    "HOOKS",
    "MICROCODE_OWNER",
    "TIMELINE",
    "TORCH_OWNER",
    "CallCost",
    "Copies",
    "CoreClaim",
    "CoreStatus",
    "CoreThreads",
    "CoreUsage",
    "Execution",
    "Executor",
    "GraphStatus",
    "HbmLedger",
    "LoadedProgram",
    "ModelStatus",
    "PrivateCore",
    "Recording",
    "State",
    "Status",
    "Track",
    "announce",
    "check_inputs",
    "claim_cores",
    "claimed",
    "closed_error",
    "held_cores",
    "ledger",
    "load_copies",
    "load_program",
    "num_usable",
    "read_status",
    "recording",
    "require_fit",
    "require_room",
    "size_text",
    "status_path",
    "watch",
]

_MODULES = {
    "CATEGORIES": "hbm",
    "HOOKS": "hooks",
    "MICROCODE_OWNER": "hbm",
    "TIMELINE": "timeline",
    "TORCH_OWNER": "hbm",
    "CallCost": "hooks",
    "Copies": "copies",
    "CoreClaim": "cores",
    "CoreStatus": "status",
    "CoreThreads": "copies",
    "CoreUsage": "timeline",
    "Execution": "timeline",
    "Executor": "executor",
    "GraphStatus": "status",
    "HbmLedger": "hbm",
    "LoadedProgram": "loaded",
    "ModelStatus": "status",
    "PrivateCore": "private_core",
    "Recording": "timeline",
    "State": "segments",
    "Status": "status",
    "Track": "timeline",
    "announce": "loaded",
    "check_inputs": "executor",
    "claim_cores": "cores",
    "claimed": "copies",
    "closed_error": "loaded",
    "held_cores": "cores",
    "ledger": "hbm",
    "load_copies": "copies",
    "load_program": "loaded",
    "num_usable": "core_choice",
    "read_status": "status",
    "recording": "timeline",
    "require_fit": "loaded",
    "require_room": "loaded",
    "size_text": "hbm",
    "status_path": "status",
    "watch": "status",
}

__getattr__ = lazy_names(__name__, _MODULES)
