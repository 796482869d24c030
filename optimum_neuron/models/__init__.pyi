from .heads import head_layout as head_layout
from .parallel import require_group_size as require_group_size, split_module as split_module
from .registry import (
    GENERIC as GENERIC,
    Family as Family,
    build_decoder as build_decoder,
    cast_parameters as cast_parameters,
    cast_weights as cast_weights,
    choose_family as choose_family,
    families as families,
    family_decoder as family_decoder,
    generic_decoder as generic_decoder,
    persistent_buffers as persistent_buffers,
)
