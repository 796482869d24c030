from . import experts as experts
from .cache import SlotLayer as SlotLayer
from .frequencies import fix_frequencies as fix_frequencies
from .model import FULL_WITHIN_WINDOW as FULL_WITHIN_WINDOW, GenericDecoder as GenericDecoder, build as build
from .plan import split_generic as split_generic, split_transformers as split_transformers
from .probe import probe_states as probe_states
from .weights import weight_map as weight_map
from .windows import ring_states as ring_states
