from .pipeline import (
    PreparedPipeline as PreparedPipeline,
    load_pipeline as load_pipeline,
    prepare_pipeline as prepare_pipeline,
)
from .placement import place as place
from .report import (
    PipelineReport as PipelineReport,
    describe_pipeline as describe_pipeline,
    export_pipeline as export_pipeline,
)
from .save import check_pipeline_output as check_pipeline_output, save_pipeline as save_pipeline
