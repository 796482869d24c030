from . import inf1 as inf1, ops as ops
from .analysis import analyze as analyze
from .buckets import BucketModelConfig as BucketModelConfig, bucket_model_trace as bucket_model_trace
from .compile import (
    NEFF_FILE as NEFF_FILE,
    Flags as Flags,
    checked_flags as checked_flags,
    compile_entries as compile_entries,
)
from .contexts import (
    disable_nrt_load as disable_nrt_load,
    multicore_context as multicore_context,
    neuron_cores_context as neuron_cores_context,
)
from .data_parallel import DataParallel as DataParallel
from .entry import Entry as Entry, make_entry as make_entry
from .metaneff import MetaNeff as MetaNeff, MetaTensor as MetaTensor
from .of_model import inputs_of as inputs_of, outputs_of as outputs_of, script_of as script_of
from .operators import Argmax as Argmax, Softmax as Softmax, TopK as TopK
from .packing import expression_of as expression_of
from .partition import PartitionerConfig as PartitionerConfig
from .placement import (
    async_load as async_load,
    dynamic_batch as dynamic_batch,
    lazy_load as lazy_load,
    set_multicore as set_multicore,
    set_neuron_cores as set_neuron_cores,
    wait_for_host_code as wait_for_host_code,
)
from .platform import (
    NAMES_RELEASE as NAMES_RELEASE,
    SUPPORTED_TYPES as SUPPORTED_TYPES,
    get_platform_target as get_platform_target,
)
from .profiler import profile as profile
from .script import scripted as scripted
from .structure import pick as pick, rebuild as rebuild
from .testing import (
    assert_close as assert_close,
    custom_allclose as custom_allclose,
    neuron_allclose as neuron_allclose,
)
from .torch_profiler import NeuronConfig as NeuronConfig, NeuronProfiler as NeuronProfiler, ProfileMode as ProfileMode
from .tracer import trace as trace
from .weights import move_trace_to_device as move_trace_to_device, replace_weights as replace_weights
