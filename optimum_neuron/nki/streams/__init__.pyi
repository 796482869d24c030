from .codec import decode as decode, encode as encode
from .document import (
    FORMAT_VERSION as FORMAT_VERSION,
    Affine as Affine,
    Input as Input,
    Loop as Loop,
    Output as Output,
    Step as Step,
    Stream as Stream,
    View as View,
)
from .machine import record as record, run as run, verify as verify
from .tracing import Traced as Traced, output_dtype as output_dtype, trace as trace
