from .estimate import diffusion_estimate as diffusion_estimate, picture_times as picture_times
from .modules import ComponentCall as ComponentCall, captured as captured, parameter_bytes as parameter_bytes
from .plan import plan_pictures as plan_pictures
from .request import picture_request as picture_request
from .source import (
    PIPELINES as PIPELINES,
    Component as Component,
    Pipeline as Pipeline,
    is_pipeline as is_pipeline,
    read_pipeline as read_pipeline,
    require_no_component as require_no_component,
)
