from .audio_text import AudioTextScenarios as AudioTextScenarios
from .decoder import DecoderScenarios as DecoderScenarios
from .encoder import encoder_scenarios as encoder_scenarios
from .encoder_decoder import EncoderDecoderScenarios as EncoderDecoderScenarios
from .features import FeatureScenarios as FeatureScenarios
from .image_text import ImageTextScenarios as ImageTextScenarios
from .rounding import cache_dtype as cache_dtype
from .scenario import Recorder as Recorder, Results as Results, Scenario as Scenario
from .scenarios import validate as validate
from .statistics import (
    FLOAT32_TOLERANCE as FLOAT32_TOLERANCE,
    OutputError as OutputError,
    compare as compare,
    default_tolerance as default_tolerance,
    rounding_dtype as rounding_dtype,
    rounds_to_8_bits as rounds_to_8_bits,
)
from .weights import require_same_weights as require_same_weights, weight_error as weight_error
