from . import collectives as collectives, isa as isa, language as language
from .advice import Advice as Advice
from .analysis import Analysis as Analysis, Roofline as Roofline, analyze as analyze
from .core import Access as Access, Record as Record
from .dtypes import FORMATS as FORMATS
from .elements import UninitializedReadWarning as UninitializedReadWarning
from .hazards import Hazard as Hazard, Race as Race
from .kernel import (
    Kernel as Kernel,
    jit as jit,
    launch as launch,
    launch_ranks as launch_ranks,
    simulate as simulate,
)
from .occupancy import Occupancy as Occupancy, Tile as Tile
from .platform import Problem as Problem, problems_of as problems_of
from .published_costs import COSTS as COSTS, InstructionCost as InstructionCost
from .tensor import NkiTensor as NkiTensor
from .timeline import ENGINES as ENGINES, Event as Event, box_of as box_of, overlap as overlap
