from .architecture import Architecture as Architecture, Layout as Layout
from .registry import (
    check_image_size as check_image_size,
    default_images as default_images,
    find_architecture as find_architecture,
    implemented as implemented,
)
