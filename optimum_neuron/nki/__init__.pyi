from . import collectives as collectives, isa as isa, language as language, streams as streams
from .advice import Advice as Advice
from .analysis import Analysis as Analysis, Roofline as Roofline, analysis_of as analysis_of, analyze as analyze
from .arguments import tensors_in as tensors_in
from .calls import NKI_KERNEL as NKI_KERNEL, add_stream as add_stream, stream_of as stream_of
from .comparison import (
    Comparison as Comparison,
    LineChange as LineChange,
    LineCost as LineCost,
    compare as compare,
    costs_of as costs_of,
)
from .core import Record as Record
from .cost import InstructionCost as InstructionCost
from .custom_ops import WRITTEN_OUT as WRITTEN_OUT, nki_op as nki_op, wrap_nki as wrap_nki
from .dtypes import FORMATS as FORMATS
from .elements import UninitializedReadWarning as UninitializedReadWarning
from .hazards import Hazard as Hazard, Race as Race
from .hooks import HOOKS as HOOKS, Launch as Launch
from .instructions import COSTS as COSTS
from .jit import Kernel as Kernel, jit as jit, simulate as simulate
from .kernel import launch as launch, launch_ranks as launch_ranks
from .named import check_arguments as check_arguments, load_kernel as load_kernel, parse_argument as parse_argument
from .occupancy import Occupancy as Occupancy, Tile as Tile
from .platform import Problem as Problem, problems_of as problems_of
from .rulebook import Rule as Rule
from .tensor import NkiTensor as NkiTensor
from .timeline import ENGINES as ENGINES, Event as Event
from .timing import (
    KernelTime as KernelTime,
    analysis_of_kernel as analysis_of_kernel,
    analyze_stream as analyze_stream,
    kernel_time as kernel_time,
)
from .tuning import Trial as Trial, Tuning as Tuning, tune as tune
