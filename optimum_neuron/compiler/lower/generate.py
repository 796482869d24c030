"""Write the C++ of a subgraph: Inductor's passes and kernels, with a function around them that is ours.

It does not depend on compilers or files.

    text = generate(body_to_dict(body), "inductor", preparations)
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ...upstream.inductor import inductor_config
from ..serialize import body_from_dict
from . import experts
from .choose import HostLevel, compiler_knows_cpu, probe_cpu
from .functional import Traced, trace
from .kernels import KERNELS
from .panels import readers
from .prepare import CONVOLUTION_KINDS, Preparation

OPTIONS: dict[str, Any] = {
    "cpp_wrapper": True,
    # A precompiled header takes 5 s and 150 MB; functions that share a file save as much.
    "cpp_cache_precompile_headers": False,
    # A fused multiply-add rounds once instead of twice.
    "cpp.enable_floating_point_contract_flag": "fast",
    "size_asserts": False,
    "alignment_asserts": False,
    "nan_asserts": False,
}
PARALLEL_ELEMENTS = 1 << 14
"""From this many elements on, several threads share a loop; Inductor's own limit is 512 for each thread. A norm or an
activation of a step with 8 rows takes one thread some microseconds, which is what starting the others takes."""

_MAX_OPTIONS: dict[str, Any] = {"max_autotune": True, "cpp.enable_grouped_gemm_template": True}


def inductor_options(level: HostLevel) -> dict[str, Any]:
    """Return Inductor's settings for a level."""
    options = OPTIONS | (_MAX_OPTIONS if level == "inductor-max" else {})
    functions = {kernel.operator: [kernel.declaration] for kernel in KERNELS}
    options["aot_inductor.custom_ops_to_c_shims"] = functions | experts.c_functions()
    options["cpp.min_chunk_size"] = max(PARALLEL_ELEMENTS // torch.get_num_threads(), 512)
    options["cpp.vec_isa_ok"] = compiler_knows_cpu() or None
    options["cpp.march"] = probe_cpu().march
    return options


def generate(body: dict[str, Any], level: HostLevel, preparations: Sequence[Preparation] = ()) -> str:
    """Return the C++ of a stored subgraph.

    Args:
        body: as `serialize.body_to_dict` returns it.
        preparations: weights that it gets in another form.
    """
    convolutions = {one.targets[0]: one.kind for one in preparations if one.kind in CONVOLUTION_KINDS}
    orders = [(one.sources, one.targets) for one in preparations if one.kind == "channels_last"]
    with _quiet(), torch.no_grad(), inductor_config.patch(inductor_options(level)):
        module = body_from_dict(body)
        readers.take_panels(module, [one.targets[0] for one in preparations if one.kind in readers.KERNELS])
        # Where float32 is rounded and cast back (auto_cast), Inductor would go on with the value before.
        with inductor_config.patch(emulate_precision_casts=rounds_float32(module)):
            traced = trace(module, probe_cpu(), convolutions, *orders)  # type: ignore[arg-type]
            return _write(traced)


def rounds_float32(body: torch.fx.GraphModule) -> bool:
    """Return whether a body casts float32 to a narrower type and back."""
    casts = body.graph.find_nodes(op="call_function", target=torch.ops.aten.to.dtype)
    return any(
        node.meta["val"].dtype == torch.float32
        and node.args[0] in casts
        and node.args[0].meta["val"].element_size() < 4
        and node.args[0].args[0].meta["val"].dtype == torch.float32
        for node in casts
    )


def _write(traced: Traced) -> str:
    from ...upstream.inductor import (
        DebugContext,
        GraphLowering,
        V,
        fake_tensor_prop,
        recursive_joint_graph_passes,
        recursive_post_grad_passes,
        recursive_record_original_output_strides,
        view_to_reshape,
        whole_operators,
    )
    from .wrapper import writing_functions

    graph_module, inputs, mode = traced.graph_module, traced.inputs, traced.mode
    with writing_functions(), whole_operators(), V.set_fake_mode(mode), DebugContext():
        recursive_joint_graph_passes(graph_module)
        view_to_reshape(graph_module)
        fake_tensor_prop(graph_module, inputs)
        recursive_record_original_output_strides(graph_module)
        recursive_post_grad_passes(graph_module, is_inference=True)
        lowered = GraphLowering(
            graph_module, example_inputs=inputs, shape_env=mode.shape_env, cpp_wrapper=True, is_inference=True
        )
        with V.set_graph_handler(lowered), V.set_extern_kernel_nodes([]):
            lowered.run(*inputs)
            text, _ = lowered.codegen_with_cpp_wrapper()
    return text.value


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Inductor's warnings about operators that it calls through torch's dispatcher."""
    logger = logging.getLogger("torch._inductor")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
