from .quality import Quality as Quality, token_ids as token_ids
from .recorded import (
    checkpoint_files as checkpoint_files,
    comparison_key as comparison_key,
    recorded_or_compared as recorded_or_compared,
    validated as validated,
)
from .scenarios import validate as validate
from .statistics import (
    COMPARISONS as COMPARISONS,
    FLOAT32_TOLERANCE as FLOAT32_TOLERANCE,
    OutputError as OutputError,
    compare as compare,
    default_tolerance as default_tolerance,
    rounding_dtype as rounding_dtype,
    rounds_to_8_bits as rounds_to_8_bits,
)
from .weights import require_same_weights as require_same_weights, weight_error as weight_error
