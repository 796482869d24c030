from .document import (
    DOCUMENT_NAME as DOCUMENT_NAME,
    FORMAT_VERSION as FORMAT_VERSION,
    HEADER_SIZE_BYTES as HEADER_SIZE_BYTES,
)
from .reader import (
    Neff as Neff,
    check_target as check_target,
    neff_from_bytes as neff_from_bytes,
    open_neff as open_neff,
)
from .unpack import unpack as unpack
from .writer import write_neff as write_neff
