from .text import CLIP as CLIP, walk_clip as walk_clip, walk_t5 as walk_t5
from .transformers import walk_flux as walk_flux, walk_pixart as walk_pixart, walk_sd3 as walk_sd3
from .unet import UNET_DEFAULTS as UNET_DEFAULTS, uncounted as uncounted, walk_unet as walk_unet
from .vae import (
    VAE_DEFAULTS as VAE_DEFAULTS,
    scale_of as scale_of,
    walk_decoder as walk_decoder,
    walk_encoder as walk_encoder,
)
