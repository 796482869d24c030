from .config import MODEL_TYPES as MODEL_TYPES, decoder_config as decoder_config, uncovered as uncovered
from .model import build as build
from .plan import PLAN as PLAN
from .weights import WEIGHT_MAP as WEIGHT_MAP
