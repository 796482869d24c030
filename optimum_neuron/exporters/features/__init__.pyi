from . import plan as plan
from .architecture import FeatureArchitecture as FeatureArchitecture
from .plan import FeatureKind as FeatureKind
