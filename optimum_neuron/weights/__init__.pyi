from .bind import BoundTensors as BoundTensors, BoundWeights as BoundWeights, bind_weights as bind_weights
from .checkpoint import (
    SINGLE_FILE as SINGLE_FILE,
    Checkpoint as Checkpoint,
    StateDict as StateDict,
    TensorSource as TensorSource,
    plain_names as plain_names,
    weight_files as weight_files,
)
from .gguf import GGUF_SCHEMES as GGUF_SCHEMES, GgufName as GgufName, GgufSource as GgufSource
from .gguf_file import GgufFile as GgufFile
from .gguf_rotary import GGUF_HINT as GGUF_HINT
from .gguf_settings import (
    apply_gguf_settings as apply_gguf_settings,
    require_all_read as require_all_read,
    require_settings as require_settings,
)
from .gguf_tensors import gguf_names as gguf_names
from .layouts import READERS as READERS, Layout as Layout
from .low_rank import LowRankStack as LowRankStack, low_rank_stack as low_rank_stack
from .mapped import DTYPES as DTYPES, MappedFile as MappedFile, drop_pages_of as drop_pages_of, empty as empty
from .mx import mx_numbers as mx_numbers, mx_scale as mx_scale
from .pack import pack_checkpoint as pack_checkpoint
from .published import PublishedSource as PublishedSource
from .published_experts import PublishedExperts as PublishedExperts, is_expert as is_expert
from .quantized import (
    QuantizedSource as QuantizedSource,
    Recipe as Recipe,
    recipe_of as recipe_of,
)
from .schemes import (
    HEAD_SCHEME as HEAD_SCHEME,
    LIMITS as LIMITS,
    RUN as RUN,
    SCHEME_NAMES as SCHEME_NAMES,
    SYMMETRIC_ZERO as SYMMETRIC_ZERO,
    Scheme as Scheme,
    dequantize as dequantize,
    parse_schemes as parse_schemes,
    quantize_rows as quantize_rows,
)
from .shards import (
    ZEROS as ZEROS,
    Range as Range,
    Shard as Shard,
    Shards as Shards,
    Split as Split,
    even_split as even_split,
    first_split as first_split,
    joined_split as joined_split,
    packed_split as packed_split,
    range_split as range_split,
    unit_split as unit_split,
)
