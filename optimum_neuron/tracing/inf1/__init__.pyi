from .analysis import analyze_model as analyze_model
from .options import Optimization as Optimization
from .support import get_supported_operations as get_supported_operations, is_available as is_available
from .tracer import trace as trace
