from . import plan as plan
from .architecture import FeatureArchitecture as FeatureArchitecture
from .plan import FeatureKind as FeatureKind
from .scenarios import FeatureScenarios as FeatureScenarios
from .signature import (
    audio_signature as audio_signature,
    patches_signature as patches_signature,
    vision_signature as vision_signature,
)
