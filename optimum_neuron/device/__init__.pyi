from . import (
    autoload as autoload,
    build as build,
    census as census,
    kernels as kernels,
    library as library,
    numerics as numerics,
    placement as placement,
    products as products,
)
from .autoload import status as status
from .census import ASSUMPTION as ASSUMPTION, MODEL as MODEL, Census as Census
from .eager_work import work_of_operator as work_of_operator
from .lightning_hook import accelerator_class as accelerator_class, device_indices as device_indices
