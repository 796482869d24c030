from . import isa as isa, language as language
from .kernel import jit as jit, simulate_kernel as simulate_kernel
from .tiles import IndexedTile as IndexedTile, OlderTensor as OlderTensor, Product as Product
