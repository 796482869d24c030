"""Inductor's code generator, made to write one small C++ function for each subgraph.

Inductor writes the kernels; the code that calls them is written here instead of by AOTInductor, whose model container
takes g++ ten times as long as the kernels and keeps a reference to every input. A function borrows its arguments,
returns new tensors, and keeps nothing between calls, so threads may call it at once. Its helpers are in `host.h`.

    with writing_functions(), V.set_graph_handler(lowered):
        text, _ = lowered.codegen_with_cpp_wrapper()
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import LoweringError
from ...upstream.inductor import DTYPE_TO_CPP, CppWrapperCpu, ReuseLine, V, common, ir

if TYPE_CHECKING:
    import torch

MAX_STACK_BYTES = 100 * 1024
"""Intermediate results up to this size in all live on the stack: some thirty allocations less for a block and token."""

FUNCTION_NAME = "RUN_SUBGRAPH"
"""The function's name in the generated text; `unit.py` puts another in its place."""


class FunctionWrapper(CppWrapperCpu):
    """Writes `int32_t RUN_SUBGRAPH(AtenTensorHandle* arguments, AtenTensorHandle* results)`."""

    def __init__(self) -> None:
        super().__init__()
        self._on_stack: set[str] = set()
        self._stack_bytes = 0
        self._results: set[str] = set()

    @staticmethod
    def create(
        is_subgraph: bool, subgraph_name: object, parent_wrapper: object, partition_signatures: object = None
    ) -> FunctionWrapper:
        """Return a wrapper; Inductor calls it."""
        return FunctionWrapper()

    def _write_nothing(self, *args: object, **kwargs: object) -> None:
        """Sizes are static, and the executor has compared them; the header is `host.h`; there is no Python."""

    write_header = add_device_include = _write_input_preamble = codegen_inputs = _write_nothing
    codegen_input_size_and_nan_asserts = _codegen_assert_size_stride = _write_nothing
    generate_after_suffix = add_benchmark_harness = _write_nothing

    def _define_kernel_helper(
        self, kernel_name: str, kernel_body: str, metadata: Any = None, gpu: bool = False, cpp_definition: Any = None
    ) -> None:
        # Functions of one file have kernels with the same names, each in a namespace.
        texts = [text and text.replace('extern "C"', "static") for text in (kernel_body, cpp_definition)]
        super()._define_kernel_helper(kernel_name, texts[0], metadata, gpu, texts[1])

    def _write_entry_point_signature(self) -> None:
        self.prefix.splice(f"""
            extern "C" int32_t {FUNCTION_NAME}(AtenTensorHandle* input_handles, AtenTensorHandle* output_handles) {{
            try {{
        """)

    def _write_input_unpacking(self) -> None:
        for index, name in enumerate(V.graph.graph_inputs):
            self.prefix.writeline(f"Argument {name}(input_handles[{index}]);")

    def _write_constants_unpacking(self) -> None:
        if V.graph.constants:
            raise LoweringError(f"the generated code has constants: {', '.join(V.graph.constants)}")

    # Small buffers are on the stack where only kernels see them.

    def memory_plan_reuse(self) -> None:
        """Plan which buffers take the memory of earlier ones, and note the memory of results."""
        super().memory_plan_reuse()
        self._results = set(V.graph.get_output_names())
        for line in reversed(self.lines):
            if isinstance(line, ReuseLine) and line.reused_as.get_name() in self._results:
                self._results.add(line.node.get_name())

    def make_buffer_allocation(self, buffer: Any) -> str:
        """Declare a buffer."""
        name, dtype = buffer.get_name(), buffer.get_dtype()
        num_elements = max(int(buffer.get_layout().storage_size()), 1)
        size_bytes = num_elements * dtype.itemsize
        seen_by_operators = any(isinstance(operation, ir.ExternKernel) for operation in V.graph.operations)
        fits = self._stack_bytes + size_bytes <= MAX_STACK_BYTES
        if seen_by_operators or not fits or name in self._results:
            return super().make_buffer_allocation(buffer)
        self._on_stack.add(name)
        self._stack_bytes += size_bytes
        kind = DTYPE_TO_CPP[dtype]
        return f"alignas(64) {kind} {name}_elements[{num_elements}]; StackBuffer<{kind}> {name}{{{name}_elements}};"

    def codegen_reinterpret_view(
        self, data: Any, size: Any, stride: Any, offset: Any, writeline: Any, dtype: torch.dtype | None = None
    ) -> str:
        """Return an expression for a view of a buffer."""
        if data.get_name() in self._on_stack:
            return f"{data.get_name()}.at({self.codegen_sizevar(offset)})"
        return super().codegen_reinterpret_view(data, size, stride, offset, writeline, dtype)

    def make_buffer_reuse(self, old: Any, new: Any, delete_old: bool) -> str:
        """Give a buffer's memory to another one."""
        if old.get_name() in self._on_stack:
            self._on_stack.add(new.get_name())
        return super().make_buffer_reuse(old, new, delete_old)

    # The end of the function, and its kernels after it.

    def generate_before_suffix(self, result: Any) -> None:
        """Close the function."""
        result.splice("""
            return 0;
            } catch (const std::exception& error) {
                return fail(error.what());
            }
            }
        """)

    def generate_end(self, result: Any) -> None:
        """Add the kernels."""
        result.splice(self.kernel_declarations.getvalue())
        self.kernel_declarations.clear()

    def generate_fallback_kernel_with_runtime_lookup_python(
        self, buf_name: str, python_kernel_name: str, *args: object
    ) -> None:
        """Raise an error for an operator that only Python can call."""
        raise LoweringError(f"{python_kernel_name} cannot be called from C++")


@contextlib.contextmanager
def writing_functions() -> Iterator[None]:
    """Have Inductor use this wrapper for C++ on the CPU."""
    common.init_backend_registration()
    before = common.device_codegens["cpu"]
    ours = common.DeviceCodegen(before.scheduling, before.wrapper_codegen, FunctionWrapper, before.fx_wrapper_codegen)
    common.device_codegens["cpu"] = ours
    try:
        yield
    finally:
        common.device_codegens["cpu"] = before
