from .component import (
    CompiledComponent as CompiledComponent,
    part_name as part_name,
)
from .configuration import (
    NeuronDiffusionConfig as NeuronDiffusionConfig,
    ResolvedDiffusionConfig as ResolvedDiffusionConfig,
)
from .dry_run import (
    CallRecorder as CallRecorder,
    count_calls as count_calls,
    exact_sizes as exact_sizes,
    example_arguments as example_arguments,
    in_place as in_place,
)
from .pipeline import (
    PreparedPipeline as PreparedPipeline,
    calls_of_metadata as calls_of_metadata,
    component_of as component_of,
    config_of_part as config_of_part,
    load_pipeline as load_pipeline,
    prepare_pipeline as prepare_pipeline,
    size_multiple as size_multiple,
    with_sizes as with_sizes,
)
from .placement import place as place
from .report import (
    PipelineReport as PipelineReport,
    describe_pipeline as describe_pipeline,
    export_pipeline as export_pipeline,
)
from .save import check_pipeline_output as check_pipeline_output, save_pipeline as save_pipeline
from .sharing import is_shared as is_shared, split_component as split_component
from .slicing import remedy as remedy
