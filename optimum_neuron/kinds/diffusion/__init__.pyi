from .component import (
    METHODS as METHODS,
    CompiledComponent as CompiledComponent,
    part_name as part_name,
    redirected as redirected,
)
from .configuration import (
    NeuronDiffusionConfig as NeuronDiffusionConfig,
)
from .dry_run import (
    STRENGTH as STRENGTH,
    CallRecorder as CallRecorder,
    count_calls as count_calls,
    exact_sizes as exact_sizes,
    example_arguments as example_arguments,
    in_place as in_place,
    note_calls as note_calls,
)
from .effects import with_effects as with_effects
from .sharing import is_shared as is_shared, require_shared as require_shared, split_component as split_component
from .slicing import (
    comparable as comparable,
    remedy as remedy,
    require_sliceable as require_sliceable,
    sliced as sliced,
)
