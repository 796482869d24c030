from .factory import PIPELINES as PIPELINES, pipeline as pipeline
