"""Components of diffusion pipelines to work, counted from their configurations: diffusers and weights are not needed.

    unet.py            U-Nets: Stable Diffusion 1, 2, XL
    transformers.py    PixArt, Stable Diffusion 3, Flux
    vae.py             autoencoders, both ways
    text.py            CLIP, T5

Each walks through a model by its sizes and counts its layers with `work.layers`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
