from . import decoder as decoder
from .calls import Call as Call, Calls as Calls, Leaf as Leaf, flatten as flatten, unflatten as unflatten
from .decoder import Check as Check, Decoder as Decoder
from .drafts import Draft as Draft, SequenceDraft as SequenceDraft
from .encoder_decoder import EncoderDecoder as EncoderDecoder
from .features import (
    Modality as Modality,
    PromptFeatures as PromptFeatures,
    feature_index as feature_index,
    position_offset as position_offset,
)
from .forward import Forward as Forward
from .packing import (
    Packing as Packing,
    check_positions as check_positions,
    choose_bucket as choose_bucket,
    chunk_length as chunk_length,
    plan_packing as plan_packing,
    smallest_bucket as smallest_bucket,
)
from .paged import (
    PagedDecoder as PagedDecoder,
    make_decoder as make_decoder,
    make_sequences as make_sequences,
    pools_of as pools_of,
)
from .rows import run_rows as run_rows
from .sequences import Group as Group, Sequences as Sequences
from .signature import (
    ADAPTER_INDEX as ADAPTER_INDEX,
    BATCH_AXES as BATCH_AXES,
    NEXT_TOKEN as NEXT_TOKEN,
    SAMPLED as SAMPLED,
    STATE_ROW as STATE_ROW,
    TOP_LOGITS as TOP_LOGITS,
    TOP_TOKENS as TOP_TOKENS,
    Input as Input,
    OutputAxis as OutputAxis,
    RoleSignature as RoleSignature,
    Signature as Signature,
    StateSignature as StateSignature,
    is_of_layer as is_of_layer,
    reads_features as reads_features,
)
from .steps import Results as Results, Steps as Steps
