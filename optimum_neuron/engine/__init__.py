"""How a compiled program is called: the one place that pads, splits, chooses buckets and keeps sequences.

A program has entry points with roles and sizes; a signature says how their inputs may be padded. Everything above calls
the engine: models behind transformers' interface, validation, profiles. It knows neither transformers nor checkpoints.

    signature.py        inputs, outputs, states, by role; written into the NEFF
    buckets.py          the choice of a bucket              rows.py      padding and splitting of rows
    forward.py          roles that keep nothing             sequences.py state of each sequence
    decoder.py          prefill, score, extend, decode      packing.py   padded batches to packed rows
    encoder_decoder.py  encode, first and next token        images.py    features in prompts
"""

from .buckets import choose_bucket, smallest_bucket
from .decoder import Decoder
from .encoder_decoder import EncoderDecoder
from .forward import Forward
from .images import PromptImages, image_index
from .packing import Packing, check_positions, plan_packing
from .rows import batches, pad_rows, run_rows
from .sequences import Group, Sequences
from .signature import BATCH_AXES, Input, OutputAxis, RoleSignature, Signature, StateSignature

__all__ = [
    "BATCH_AXES",
    "Decoder",
    "EncoderDecoder",
    "Forward",
    "Group",
    "Input",
    "OutputAxis",
    "Packing",
    "PromptImages",
    "RoleSignature",
    "Sequences",
    "Signature",
    "StateSignature",
    "batches",
    "check_positions",
    "choose_bucket",
    "image_index",
    "pad_rows",
    "plan_packing",
    "run_rows",
    "smallest_bucket",
]
