from .architecture import Architecture as Architecture
from .registry import (
    all_sizes as all_sizes,
    check_image_size as check_image_size,
    default_images as default_images,
    find_architecture as find_architecture,
)
