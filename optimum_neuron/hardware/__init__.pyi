from .chips import CHIPS as CHIPS
from .core_pipeline import (
    WEIGHTS_OF_PIPELINE_CORE as WEIGHTS_OF_PIPELINE_CORE,
    pipeline_cores_of as pipeline_cores_of,
    require_pipeline_cores as require_pipeline_cores,
)
from .cores import CORES as CORES
from .fitting import instance_for_cores as instance_for_cores
from .instances import INSTANCES as INSTANCES
from .resolve import (
    require_default_lnc as require_default_lnc,
    resolve_instance as resolve_instance,
    resolve_target as resolve_target,
)
from .specs import (
    GIB as GIB,
    KIB as KIB,
    MIB as MIB,
    ChipSpec as ChipSpec,
    CoreSpec as CoreSpec,
    EngineSpec as EngineSpec,
    GpSimdSpec as GpSimdSpec,
    InstanceSpec as InstanceSpec,
    Sourced as Sourced,
)
from .targets import (
    TARGETS as TARGETS,
    Target as Target,
    canonical_dtype as canonical_dtype,
    kernels_for as kernels_for,
    require_compilable as require_compilable,
    require_dtype as require_dtype,
    taking_e4m3fn as taking_e4m3fn,
    target_of_kernels as target_of_kernels,
)
from .timings import TIMINGS as TIMINGS, CoreTiming as CoreTiming
from .topology import (
    MAX_INSTANCES as MAX_INSTANCES,
    CoreCounts as CoreCounts,
    cluster_of as cluster_of,
    fitting_instances as fitting_instances,
    is_first_of_instance as is_first_of_instance,
    legal_core_counts as legal_core_counts,
    one_of as one_of,
    require_core_count as require_core_count,
    require_degrees as require_degrees,
    stage_instances as stage_instances,
)
