"""The Optimum experience for AWS Trainium and Inferentia on a simulated NeuronCore: no hardware needed.

    from optimum_neuron import NeuronModelForCausalLM
    model = NeuronModelForCausalLM.from_pretrained("smollm2", export=True, sequence_length=512)

Names are imported when they are first used, so `import optimum_neuron` is quick and needs no torch.
"""

import lazy_loader

from . import wiring  # noqa: F401  (joins packages that do not know each other)

__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)

TRAINING_NAMES = (
    "NeuronDPOConfig",
    "NeuronDPOTrainer",
    "NeuronGRPOConfig",
    "NeuronGRPOTrainer",
    "NeuronORPOConfig",
    "NeuronORPOTrainer",
    "NeuronRewardConfig",
    "NeuronRewardTrainer",
    "NeuronSFTConfig",
    "NeuronSFTTrainer",
)
"""Names that need TRL, from the extra `training`; an `import *` leaves them out, so that it works without."""

DIFFUSION_NAMES = (
    "NeuronDDIMPipeline",
    "NeuronDDPMPipeline",
    "NeuronFluxImg2ImgPipeline",
    "NeuronFluxInpaintPipeline",
    "NeuronFluxKontextPipeline",
    "NeuronFluxPipeline",
    "NeuronLTXPipeline",
    "NeuronLatentConsistencyModelPipeline",
    "NeuronPixArtAlphaPipeline",
    "NeuronPixArtSigmaPipeline",
    "NeuronStableDiffusion3Img2ImgPipeline",
    "NeuronStableDiffusion3InpaintPipeline",
    "NeuronStableDiffusion3Pipeline",
    "NeuronStableDiffusionControlNetPipeline",
    "NeuronStableDiffusionImg2ImgPipeline",
    "NeuronStableDiffusionInpaintPipeline",
    "NeuronStableDiffusionInstructPix2PixPipeline",
    "NeuronStableDiffusionPipeline",
    "NeuronStableDiffusionXLControlNetPipeline",
    "NeuronStableDiffusionXLImg2ImgPipeline",
    "NeuronStableDiffusionXLInpaintPipeline",
    "NeuronStableDiffusionXLPipeline",
)
"""Names that need diffusers, from the extra `diffusers`, likewise."""

__all__ = [name for name in _names if name not in (*TRAINING_NAMES, *DIFFUSION_NAMES)]
