from . import isa as isa, language as language
from .core import Access as Access, Record as Record
from .dtypes import FORMATS as FORMATS
from .kernel import Kernel as Kernel, jit as jit, launch as launch, simulate as simulate
from .tensor import NkiTensor as NkiTensor, UninitializedReadWarning as UninitializedReadWarning
