from .hf_tracer import HFTracer as HFTracer
from .rings import CollectivesConfig as CollectivesConfig
