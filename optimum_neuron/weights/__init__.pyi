from .bind import BoundWeights as BoundWeights, bind_weights as bind_weights
from .checkpoint import (
    SINGLE_FILE as SINGLE_FILE,
    Checkpoint as Checkpoint,
    StateDict as StateDict,
    TensorSource as TensorSource,
    weight_files as weight_files,
)
from .mapped import DTYPES as DTYPES, MAX_HEADER_BYTES as MAX_HEADER_BYTES, MappedFile as MappedFile
from .pack import pack_checkpoint as pack_checkpoint
from .pages import HUGE_PAGE_BYTES as HUGE_PAGE_BYTES, concatenate as concatenate, convert as convert
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
