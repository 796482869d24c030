from . import (
    autoload as autoload,
    build as build,
    callbacks as callbacks,
    kernels as kernels,
    library as library,
    numerics as numerics,
    placement as placement,
    products as products,
)
from .autoload import status as status
from .census import MODEL as MODEL
