from ..kinds import (
    KINDS as KINDS,
    MODEL as MODEL,
    Kind as Kind,
    Plan as Plan,
    compile_options as compile_options,
    config_classes as config_classes,
    kind_of as kind_of,
    signature_of as signature_of,
)
from ..kinds.decoder import (
    DecoderKind as DecoderKind,
    decoder_captures as decoder_captures,
    decoder_signature as decoder_signature,
    num_positions as num_positions,
    state_specs as state_specs,
)
from ..kinds.encoder_decoder import encoder_decoder_signature as encoder_decoder_signature
from ..options.peer_attributes import (
    follows_upstream as follows_upstream,
    tell_ignored as tell_ignored,
    upstream_rules as upstream_rules,
)
from ..sources import (
    COMPARED as COMPARED,
    CONFIGURATION_FILES as CONFIGURATION_FILES,
    GENERATION as GENERATION,
    SENTENCE_FACTS as SENTENCE_FACTS,
    SENTENCE_LIMITS as SENTENCE_LIMITS,
    SENTENCE_VECTORS as SENTENCE_VECTORS,
    TASKS as TASKS,
    TOKENIZER as TOKENIZER,
    Lora as Lora,
    ModelSource as ModelSource,
    Task as Task,
    architectures_of as architectures_of,
    fill_missing as fill_missing,
    find_folder as find_folder,
    find_task as find_task,
    gguf_options as gguf_options,
    infer_task as infer_task,
    is_gguf as is_gguf,
    kinds_of_task as kinds_of_task,
    layout_of as layout_of,
    load_source as load_source,
    merge_adapter as merge_adapter,
    method_of as method_of,
    open_tensors as open_tensors,
    other_tasks as other_tasks,
    plain_pipeline as plain_pipeline,
    plain_task as plain_task,
    published_cache as published_cache,
    published_scheme as published_scheme,
    quantization as quantization,
    quantization_of as quantization_of,
    read_config as read_config,
    read_lora as read_lora,
    read_modules as read_modules,
    read_support as read_support,
    read_typed as read_typed,
    require_plain as require_plain,
    require_readable as require_readable,
    require_sizes as require_sizes,
    source as source,
    support_rows as support_rows,
    task_of as task_of,
    tasks as tasks,
    tasks_of as tasks_of,
    tensors_in_memory as tensors_in_memory,
    unreadable_errors as unreadable_errors,
    with_head as with_head,
    with_quantization as with_quantization,
)
from . import build as build, hub_cache as hub_cache, load as load
from .build import cache_request as cache_request, judging_target as judging_target
from .cached import cached_entries as cached_entries, cached_models as cached_models, fill_cache as fill_cache
from .export import main_export as main_export
from .folder import (
    public_facts as public_facts,
    read_bare_config as read_bare_config,
    read_folder as read_folder,
)
from .inspection import inspect_export as inspect_export
from .load import load_exported as load_exported
from .peer_options import (
    OF_GENERATION as OF_GENERATION,
    OTHER_NAMES as OTHER_NAMES,
    PEER_OPTIONS as PEER_OPTIONS,
    QUANTIZATION_OPTIONS as QUANTIZATION_OPTIONS,
    WITHOUT_EFFECT as WITHOUT_EFFECT,
    translate as translate,
)
from .prepare import check_tolerance as check_tolerance, prepare as prepare
from .prepared import Prepared as Prepared
from .report import ExportReport as ExportReport, describe as describe
from .request import (
    neuron_config as neuron_config,
    structure_differences as structure_differences,
    without_weights as without_weights,
)
from .save import save_folder as save_folder
from .validation import COMPARISONS as COMPARISONS, checkpoint_files as checkpoint_files, token_ids as token_ids
from .vendor_folder import refuse_vendor_export as refuse_vendor_export
from .warm import (
    Warmed as Warmed,
    WarmJob as WarmJob,
    no_ray_cluster as no_ray_cluster,
    read_jobs as read_jobs,
    warm_cache as warm_cache,
)
