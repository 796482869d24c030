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
