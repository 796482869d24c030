from .decoder import (
    Layout as Layout,
    cache_bytes as cache_bytes,
    decode_work as decode_work,
    parameter_bytes as parameter_bytes,
    prefill_work as prefill_work,
)
from .graph import (
    Role as Role,
    border_bytes as border_bytes,
    flops_by_dtype as flops_by_dtype,
    work_of_graph as work_of_graph,
    work_of_program as work_of_program,
    work_on_device as work_on_device,
)
from .published import as_published as as_published
from .reading import decoder_sizes as decoder_sizes
from .record import (
    Attention as Attention,
    GraphWork as GraphWork,
    Kernels as Kernels,
    Scan as Scan,
    Step as Step,
    Work as Work,
)
from .sizes import DecoderSizes as DecoderSizes
from .trained import (
    RECOMPUTE as RECOMPUTE,
    TrainedSizes as TrainedSizes,
    activation_bytes as activation_bytes,
    step_flops as step_flops,
    trained_sizes as trained_sizes,
)
