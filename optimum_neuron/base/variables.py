"""Every environment variable that Neuron users know, as data: its meaning here, or why it is ignored.

`env.py` reads the variables that are honored and warns once about each of the rest that is set;
`optimum-cli neuron doctor` lists them. A name that ends in `*` stands for every variable that begins like it; a row
with the full name has precedence. Source of names and meanings: Neuron docs (runtime configuration, compiler reference,
PyTorch NeuronX environment variables), torch_xla docs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PREFIXES = ("NEURON_", "NEURONCORE_", "OPTIMUM_NEURON_", "PT_XLA_", "TORCH_NEURONX_", "XLA_")
"""A variable with this prefix was set for Neuron, so it is never ignored without a warning."""


class Variable(NamedTuple):
    """One row."""

    meaning: str
    """Its effect here, or why it has none."""
    honored: bool = True
    """Whether this package reads it."""


def _no_effect(reason: str) -> Variable:
    return Variable(reason, honored=False)


TABLE: Mapping[str, Variable] = {
    "ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB": Variable(
        "MiB of gradients that xm.reduce_gradients sums at once (default: 50; 0: all)"
    ),
    "CUSTOM_CACHE_REPO": Variable(
        "compile cache to share: a Hub repository, a folder or an fsspec URL; has precedence over neuron cache set"
    ),
    "HF_HOME": Variable("root of the Hugging Face libraries' files; neuron cache set keeps its choice there"),
    "HF_HUB_DISABLE_PROGRESS_BARS": Variable("1 silences progress bars, as everywhere in the Hugging Face libraries"),
    "LOCAL_RANK": Variable("number of this process on its machine, which torchrun sets: its simulated core"),
    "LOCAL_WORLD_SIZE": Variable(
        "processes of a launch on its machine, which torchrun sets: all machines must have as many"
    ),
    "MASTER_ADDR": Variable("address of the first machine of a launch, which torchrun sets"),
    "NEURONCORE_GROUP_SIZES": Variable(
        'sizes of the groups of cores that this process claims, for example "2,2"; models load into them in turn'
    ),
    "NEURONCORE_NUM_DEVICES": Variable("processes that xmp.spawn and torch_xla.launch start (default: 1)"),
    "NEURON_CC_FLAGS": Variable(
        "compiler flags of every compile that does not set them itself, for example "
        '"--target trn2 --auto-cast matmult -O1"; also --cache_dir=URL and --no_cache'
    ),
    "NEURON_COMPILED_ARTIFACTS": Variable(
        "folder of vLLM's compiled model: it is loaded if it is there, else the model is exported into it"
    ),
    "NEURON_COMPILE_CACHE_URL": Variable(
        "where compiled NEFFs are kept: a folder or an fsspec URL such as s3://bucket/neffs"
    ),
    "NEURON_CONTEXT_LENGTH_BUCKETS": Variable('vLLM: prompt lengths to compile, for example "128,512"'),
    "NEURON_EXTRACT_GRAPHS_ONLY": Variable(
        "1 compiles graphs of the device xla without running them: their results are zeros"
    ),
    "NEURON_FRAMEWORK_DEBUG": _no_effect(
        "no files are left behind; torch_neuronx.trace(compiler_workdir=...) keeps the NEFF"
    ),
    "NEURON_FUSE_SOFTMAX": _no_effect("fusions are found in the graph"),
    "NEURON_LOGICAL_NC_CONFIG": Variable(
        "physical cores in a logical core; must be the default of the chip, because other sizes are not simulated"
    ),
    "NEURON_NUM_RECENT_MODELS_TO_KEEP": Variable(
        "graphs of the device xla that a process keeps loaded; others come from the compile cache again (default: all)"
    ),
    "NEURON_ON_DEVICE_SAMPLING_DISABLED": Variable("vLLM: 1 lets the host read all logits of a step"),
    "NEURON_PARALLEL_COMPILE": _no_effect("graphs are compiled and run; run the script with neuron_parallel_compile"),
    "NEURON_PLATFORM_TARGET_OVERRIDE": Variable(
        "target when none is given: inf2, trn1, trn1n, trn2, trn3; for NKI kernels also gen2, gen3, gen4"
    ),
    "NEURON_PROCESS_TAG": Variable("name of this process in neuron-top and neuron-monitor (default: its id)"),
    "NEURON_QUANT_DTYPE": Variable("vLLM: dtype of quantization=neuron_quant: s8 or f8e4m3fn (default: s8)"),
    "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS": _no_effect("a call of a compiled program returns when it has run"),
    "NEURON_RT_EXEC_TIMEOUT": _no_effect("calls have no time limit, because this host's time is not the chip's"),
    "NEURON_RT_INSPECT_*": _no_effect(
        "NEURON_RT_INSPECT_ENABLE=1 alone profiles everything; choose what to look at in the trace"
    ),
    "NEURON_RT_INSPECT_ENABLE": Variable("1 profiles the process and writes the profile when the process ends"),
    "NEURON_RT_INSPECT_OUTPUT_DIR": Variable(
        "folder for these profiles, one subfolder for each process (default: output)"
    ),
    "NEURON_RT_LOG_LEVEL": Variable(
        "least severe messages of this package's log: ERROR, WARNING, INFO, DEBUG or TRACE (default: Python's logging)"
    ),
    "NEURON_RT_LOG_LEVEL_*": _no_effect("the log has no levels of parts; set NEURON_RT_LOG_LEVEL"),
    "NEURON_RT_LOG_LOCATION": Variable("where that log goes: CONSOLE (stderr) or SYSLOG (default: Python's logging)"),
    "NEURON_RT_LOG_LOCATION_*": _no_effect("the log has no places for parts; set NEURON_RT_LOG_LOCATION"),
    "NEURON_RT_NUM_CORES": Variable("how many simulated cores this process claims (0: all)"),
    "NEURON_RT_ROOT_COMM_ID": _no_effect("torchrun's rendezvous connects the processes"),
    "NEURON_RT_STOCHASTIC_ROUNDING_EN": Variable("1 rounds what the device writes to 16-bit floats stochastically"),
    "NEURON_RT_STOCHASTIC_ROUNDING_SEED": Variable("seed of that rounding (default: 0)"),
    "NEURON_RT_VALIDATE_HASH": Variable("0 skips the check of weight hashes when an exported folder is loaded"),
    "NEURON_RT_VIRTUAL_CORE_SIZE": Variable("the same as NEURON_LOGICAL_NC_CONFIG"),
    "NEURON_RT_VISIBLE_CORES": Variable('which simulated cores this process may claim, for example "0" or "0-3,6"'),
    "NEURON_TOKEN_GEN_BUCKETS": Variable('vLLM: cache slots of decode steps to compile, for example "128,512"'),
    "NKI_PRECISE_FP": Variable("0 keeps all floats of NKI kernels in float32 (default: 1, their dtypes)"),
    "NXD_CPU_MODE": Variable("1 trains with neuronx_distributed on the CPU, without the device xla"),
    "NXD_LOG_LEVEL": Variable("level of neuronx_distributed's loggers (default: info); off writes nothing"),
    "OPTIMUM_NEURON_ADAPTIVE_EAGER": Variable("1 queues operators of the torch device and runs them in another thread"),
    "OPTIMUM_NEURON_API_KEY": Variable("key that requests to neuron serve must have, beside those of --api_key"),
    "OPTIMUM_NEURON_AUTO_CAST_TYPE": Variable(
        "matmul operands in emulated numerics: bf16, fp16, tf32, fp8_e4m3 or none"
    ),
    "OPTIMUM_NEURON_COMPILE_RECORDS": Variable(
        "folder in which processes record the graphs that they compile or find; neuron_parallel_compile sets it"
    ),
    "OPTIMUM_NEURON_DEBUG": Variable("1 shows tracebacks of known errors on the command line"),
    "OPTIMUM_NEURON_HOME": Variable("root of this package's own caches (default: ~/.cache/optimum_neuron)"),
    "OPTIMUM_NEURON_INSTANCE": Variable("instance type to simulate, for example inf2.xlarge or 2xtrn1.32xlarge"),
    "OPTIMUM_NEURON_NKI_PLATFORM_RULES": Variable(
        "1 refuses Python in NKI kernels that the hardware's compiler does not take"
    ),
    "OPTIMUM_NEURON_NUMERICS": Variable(
        "arithmetic of the torch device: reference (the host's) or emulated (the chip's)"
    ),
    "OPTIMUM_NEURON_VLLM": Variable(
        "1 lets libraries such as TRL and lm-eval see vllm; 0 hides it from scripts too (default: scripts may import "
        "it, and libraries do not see it)"
    ),
    "OPTIMUM_NEURON_XLA": Variable(
        "1 lets transformers and accelerate see torch_xla, and train on XLA; 0 hides it from scripts too (default: "
        "scripts may import it, and libraries see it after them)"
    ),
    "PJRT_DEVICE": Variable("NEURON is the same as OPTIMUM_NEURON_XLA=1"),
    "PT_XLA_DEBUG": Variable("1 writes cause and size of each graph of the device xla, when compiled and when run"),
    "PT_XLA_DEBUG_FILE": Variable("file that PT_XLA_DEBUG writes to (default: stderr)"),
    "PT_XLA_DEBUG_LEVEL": Variable("1 writes of compiled graphs of the device xla, 2 of their runs too, 0 nothing"),
    "RANK": Variable("number of this process among all of a launch, which torchrun sets"),
    "SM_ON_*": Variable(
        "argument of neuron serve, for example SM_ON_BATCH_SIZE=4, as in Optimum Neuron's container; the command line "
        "has precedence"
    ),
    "VLLM_API_KEY": Variable("key that requests to `vllm serve` must have, beside those of --api-key"),
    "VLLM_NEURON_FRAMEWORK": Variable(
        "neuronx-distributed-inference or transformers-neuronx; both are the engine here"
    ),
    "WORLD_SIZE": Variable("processes of a launch, which torchrun sets"),
    "XLA_*": _no_effect("there is no XLA: the device xla records graphs, and they are checked and timed here"),
    "XLA_ALWAYS_ALLREDUCE": Variable("1 lets xm.all_reduce copy and scale in a single process too"),
    "XLA_DOWNCAST_BF16": Variable(
        "1 rounds float32 of the device xla to bfloat16, float64 to float32; NEURON_RT_STOCHASTIC_ROUNDING_EN says how"
    ),
    "XLA_USE_BF16": Variable(
        "1 rounds float32 and float64 of the device xla to bfloat16; NEURON_RT_STOCHASTIC_ROUNDING_EN says how"
    ),
}
"""Variables by name, sorted."""


def row_of(name: str) -> Variable | None:
    """Return the row of a variable: its own, or else the longest pattern that it matches; None if there is none."""
    if name in TABLE and not name.endswith("*"):
        return TABLE[name]
    patterns = [pattern for pattern in TABLE if pattern.endswith("*") and name.startswith(pattern[:-1])]
    return TABLE[max(patterns, key=len)] if patterns else None
