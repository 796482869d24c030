from . import quantization as quantization, source as source, tasks as tasks
from .adapters import merge_adapter as merge_adapter, read_description as read_description
from .copying import COPIED as COPIED, copy_files as copy_files
from .file_types import (
    EXPERT_COUNTS as EXPERT_COUNTS,
    GENERATION as GENERATION,
    SENTENCE_FACTS as SENTENCE_FACTS,
    SENTENCE_LIMITS as SENTENCE_LIMITS,
    SENTENCE_VECTORS as SENTENCE_VECTORS,
    TOKENIZER as TOKENIZER,
    read_modules as read_modules,
    read_typed as read_typed,
    require_sizes as require_sizes,
)
from .gguf import gguf_options as gguf_options, is_gguf as is_gguf
from .lora import Lora as Lora, read_lora as read_lora
from .pipeline_index import (
    FACTS as FACTS,
    INDEX_FILE as INDEX_FILE,
    DiffusersConfig as DiffusersConfig,
    is_exported_pipeline as is_exported_pipeline,
    is_pipeline as is_pipeline,
    read_index as read_index,
)
from .quantization import (
    STATIC as STATIC,
    layout_of as layout_of,
    method_of as method_of,
    published_cache as published_cache,
    published_scheme as published_scheme,
    quantization_of as quantization_of,
    require_plain as require_plain,
    require_readable as require_readable,
    with_quantization as with_quantization,
)
from .references import weights_reader as weights_reader
from .source import (
    CONFIGURATION_FILES as CONFIGURATION_FILES,
    ModelSource as ModelSource,
    find_folder as find_folder,
    infer_task as infer_task,
    load_source as load_source,
    read_config as read_config,
    served_task as served_task,
    unreadable_errors as unreadable_errors,
)
from .support import (
    COMPARED as COMPARED,
    SUPPORT_FILE as SUPPORT_FILE,
    read_support as read_support,
    support_rows as support_rows,
)
from .tasks import (
    TASKS as TASKS,
    Task as Task,
    architectures_of as architectures_of,
    find_task as find_task,
    kinds_of_task as kinds_of_task,
    other_tasks as other_tasks,
    plain_pipeline as plain_pipeline,
    plain_task as plain_task,
    task_of as task_of,
    tasks_of as tasks_of,
)
from .tensors import (
    check_files as check_files,
    fill_missing as fill_missing,
    load_original as load_original,
    open_tensors as open_tensors,
    plain_modules as plain_modules,
    require_cache_scales as require_cache_scales,
    tensors_in_memory as tensors_in_memory,
    with_head as with_head,
)
