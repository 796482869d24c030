from .plan import (
    DecoderKind as DecoderKind,
    GeneratingKind as GeneratingKind,
    adaptable as adaptable,
    choice_facts as choice_facts,
    decoder_captures as decoder_captures,
    expert_unit as expert_unit,
    graph_names as graph_names,
    num_positions as num_positions,
    quantized as quantized,
    require_cores as require_cores,
    state_specs as state_specs,
)
from .scenarios import Batch as Batch, DecoderScenarios as DecoderScenarios
from .signature import (
    KEYS_AND_VALUES as KEYS_AND_VALUES,
    Entry as Entry,
    decoder_signature as decoder_signature,
    require_topk as require_topk,
    sampled_outputs as sampled_outputs,
)
