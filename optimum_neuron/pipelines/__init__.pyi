from .factory import pipeline as pipeline
from .names import ALIASES as ALIASES, NOT_SERVED as NOT_SERVED, PIPELINES as PIPELINES
