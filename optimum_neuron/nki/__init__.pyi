from . import isa as isa, language as language
from .core import Access as Access, Record as Record
from .dtypes import FORMATS as FORMATS
from .elements import UninitializedReadWarning as UninitializedReadWarning
from .kernel import Kernel as Kernel, jit as jit, launch as launch, simulate as simulate
from .tensor import NkiTensor as NkiTensor
