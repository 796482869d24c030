from . import core_files as core_files, publisher as publisher, status as status
from .copies import Copies as Copies, CoreThreads as CoreThreads, claimed as claimed, load_copies as load_copies
from .core_choice import allowed_cores as allowed_cores, num_usable as num_usable, ranges as ranges
from .core_files import Row as Row, claimed_clusters as claimed_clusters, claims_folder as claims_folder
from .cores import CoreClaim as CoreClaim, claim_cores as claim_cores, held_cores as held_cores
from .executor import Executor as Executor, rest_threads as rest_threads
from .fit import require_fit as require_fit
from .hbm import (
    CATEGORIES as CATEGORIES,
    MICROCODE_OWNER as MICROCODE_OWNER,
    TORCH_OWNER as TORCH_OWNER,
    HbmLedger as HbmLedger,
    ledger as ledger,
    size_text as size_text,
)
from .hooks import HOOKS as HOOKS, CallCost as CallCost, ServingCost as ServingCost
from .loaded import (
    LoadedProgram as LoadedProgram,
    announce as announce,
    closed_error as closed_error,
    load_program as load_program,
    require_room as require_room,
)
from .observers import OBSERVERS as OBSERVERS
from .private_core import PrivateCore as PrivateCore
from .publisher import INTERVAL_S as INTERVAL_S, Publisher as Publisher
from .segments import State as State
from .status import (
    CoreStatus as CoreStatus,
    GraphStatus as GraphStatus,
    ModelStatus as ModelStatus,
    Status as Status,
    read_status as read_status,
    status_path as status_path,
    watch as watch,
    write_status as write_status,
)
from .timeline import (
    TIMELINE as TIMELINE,
    CoreUsage as CoreUsage,
    Execution as Execution,
    Recording as Recording,
    Timeline as Timeline,
    Track as Track,
    recording as recording,
)
