from .analysis import analyze_model as analyze_model
from .support import get_supported_operations as get_supported_operations, is_available as is_available
from .tracer import Optimization as Optimization, trace as trace
