from . import collectives as collectives, tally as tally
from .capture import (
    Captured as Captured,
    capture as capture,
    capture_error as capture_error,
    fake_parameters as fake_parameters,
    fakes_of as fakes_of,
    quiet as quiet,
    swapped as swapped,
)
from .collectives import divided_prompts as divided_prompts, group_size_of as group_size_of
from .compile import (
    CapturedGraph as CapturedGraph,
    Compiled as Compiled,
    Recapture as Recapture,
    capture_graphs as capture_graphs,
    compile_graphs as compile_graphs,
    link as link,
    part_of as part_of,
)
from .custom_operators import define as define
from .flags import (
    ALIASES as ALIASES,
    SWITCHES as SWITCHES,
    VALUES as VALUES,
    CompilerFlags as CompilerFlags,
    arithmetic_options as arithmetic_options,
    parse_flags as parse_flags,
)
from .ir import Call as Call, Graph as Graph, Program as Program, Role as Role, Subprogram as Subprogram
from .kernels import add_members as add_members, kernels_in as kernels_in, members_of as members_of
from .memory import (
    MICROCODE_BYTES as MICROCODE_BYTES,
    MemoryNeed as MemoryNeed,
    fullest_need as fullest_need,
    memory_need as memory_need,
    stage_needs as stage_needs,
)
from .neuron_cc import (
    FRAMEWORKS as FRAMEWORKS,
    NEURON_CC_ARITY as NEURON_CC_ARITY,
    OF_NEURON_CC as OF_NEURON_CC,
    NeuronCcFlags as NeuronCcFlags,
    parse_neuron_cc as parse_neuron_cc,
)
from .package import WEIGHTS_MEMBER as WEIGHTS_MEMBER, read_program as read_program, write_program as write_program
from .placement import (
    JudgedCall as JudgedCall,
    OperatorCheck as OperatorCheck,
    group_calls as group_calls,
    judged_calls as judged_calls,
    placed_share as placed_share,
)
from .quantized import (
    DYNAMIC_LINEAR as DYNAMIC_LINEAR,
    PICK_EXPERTS as PICK_EXPERTS,
    QUANTIZED_EXPERTS as QUANTIZED_EXPERTS,
    QUANTIZED_EXPERTS_SUM as QUANTIZED_EXPERTS_SUM,
    QUANTIZED_LINEAR as QUANTIZED_LINEAR,
)
from .serialize import base_of as base_of, shares_memory as shares_memory, tensor_spec as tensor_spec
from .stacks import find_stacks as find_stacks, repeating as repeating
from .tiles import (
    chunk_tiles as chunk_tiles,
    contiguous_bytes as contiguous_bytes,
    convolution_cycles as convolution_cycles,
    product_cycles as product_cycles,
)
from .version import (
    COMPILER_VERSION as COMPILER_VERSION,
    source_hash as source_hash,
)
from .work import LOOKUPS as LOOKUPS, CallWork as CallWork, work_of as work_of
