from .base import DECODER_CHOICES as DECODER_CHOICES, MODEL as MODEL, SHARING as SHARING, Kind as Kind, Plan as Plan
from .registry import (
    KINDS as KINDS,
    compile_options as compile_options,
    config_classes as config_classes,
    kind_of as kind_of,
    signature_of as signature_of,
)
from .scenario import (
    Recorder as Recorder,
    Results as Results,
    Scenario as Scenario,
    cache_dtype as cache_dtype,
    cached_logits as cached_logits,
    computing_in as computing_in,
    flatten as flatten,
    is_reachable as is_reachable,
    unflatten as unflatten,
)
