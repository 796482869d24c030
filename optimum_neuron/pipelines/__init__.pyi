from .factory import pipeline as pipeline, pipeline_class as pipeline_class
from .names import ALIASES as ALIASES, NOT_SERVED as NOT_SERVED, PIPELINES as PIPELINES
