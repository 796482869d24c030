from . import checkpoint as checkpoint, pipeline as pipeline
from .checkpoint import has_sharded_optimizer as has_sharded_optimizer, plain_optimizer as plain_optimizer
from .consolidate import consolidate as consolidate, read_joined as read_joined
from .context import ContextParallel as ContextParallel
from .distribute import (
    DistributedModel as DistributedModel,
    distribute as distribute,
    is_distributed_here as is_distributed_here,
    num_microbatches as num_microbatches,
    require_whole_model as require_whole_model,
    shared_facts as shared_facts,
    wrap_blocks as wrap_blocks,
)
from .dtypes import NARROW as NARROW, narrow as narrow
from .gather import gather_for_metrics as gather_for_metrics
from .layout import (
    WITHOUT_EFFECT as WITHOUT_EFFECT,
    TrainingNeuronConfig as TrainingNeuronConfig,
    combination_problems as combination_problems,
    conflict as conflict,
)
from .mesh import require_agreement as require_agreement, require_processes as require_processes
from .pipeline import Pipeline as Pipeline
from .shard import mixed_precision as mixed_precision
from .whole import (
    describe_differences as describe_differences,
    load_weights as load_weights,
    other_model as other_model,
    read_converted as read_converted,
    shapes_of as shapes_of,
)
