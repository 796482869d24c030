from .document import (
    FORMAT_VERSION as FORMAT_VERSION,
)
from .reader import (
    Neff as Neff,
    check_target as check_target,
    neff_from_bytes as neff_from_bytes,
    open_neff as open_neff,
)
from .unpack import unpack as unpack
from .writer import write_neff as write_neff
