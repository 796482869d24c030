from .adapters import fuse_loras as fuse_loras
from .additions import (
    ADDITION_GROUPS as ADDITION_GROUPS,
    ADDITION_OPTIONS as ADDITION_OPTIONS,
    ADDITION_SYNONYMS as ADDITION_SYNONYMS,
    DENOISERS as DENOISERS,
    PipelineAdditions as PipelineAdditions,
    denoiser_name as denoiser_name,
    denoiser_of as denoiser_of,
    split_additions as split_additions,
)
from .bare import bare_pipeline as bare_pipeline
from .components import empty_component as empty_component, load_component as load_component
from .customize import Custom as Custom, customize as customize
from .safety import compiled_models as compiled_models, describe_checker as describe_checker, unchecked as unchecked
from .stock import (
    component_sources as component_sources,
    pipeline_class as pipeline_class,
    read_additions as read_additions,
    stock_pipeline as stock_pipeline,
)
from .variants import IMAGE_ADAPTERS as IMAGE_ADAPTERS
