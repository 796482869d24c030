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
from .effects import size_multiple as size_multiple, with_effects as with_effects, with_sizes as with_sizes
from .parts import (
    calls_of as calls_of,
    component_of as component_of,
    config_of_part as config_of_part,
    is_divided as is_divided,
    is_shared as is_shared,
    require_shared as require_shared,
    split_component as split_component,
    whole_config as whole_config,
)
from .slicing import (
    comparable as comparable,
    remedy as remedy,
    require_sliceable as require_sliceable,
    sliced as sliced,
)
