// Rows through experts: each row is multiplied by the weight of its expert. `experts.py` has the operator.

#pragma once

#include <algorithm>
#include <cstring>

#include <torch/csrc/inductor/aoti_runtime/utils.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/c/shim_cpu.h>

namespace {

// A tensor of at most three dimensions.
struct Operand {
  char* data;
  int64_t *sizes, *strides, size_bytes; // of an element
  int32_t dtype;

  explicit Operand(AtenTensorHandle handle) {
    void* address;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(handle, &address));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(handle, &sizes));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(handle, &strides));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(handle, &dtype));
    data = static_cast<char*>(address);
    size_bytes = dtype == aoti_torch_dtype_bfloat16() ? 2 : 4;
  }

  // Rows of a matrix that ends with the tensor's last two dimensions.
  torch::aot_inductor::RAIIAtenTensorHandle matrix(int64_t first, int64_t num_rows, const int64_t* of, const int64_t* by)
      const {
    const int64_t shape[] = {num_rows, of[1]};
    AtenTensorHandle handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_create_tensor_from_blob(
        data + first * size_bytes, 2, shape, by, 0, dtype, aoti_torch_device_type_cpu(), 0, &handle));
    return torch::aot_inductor::RAIIAtenTensorHandle(handle);
  }
};

void multiply(const Operand& rows, const Operand& weight, const int64_t* expert, Operand& out) {
  const int64_t num_rows = rows.sizes[0], num_experts = weight.sizes[0], row_bytes = out.sizes[1] * out.size_bytes;
  for (int64_t first = 0, end; first < num_rows; first = end) {
    for (end = first + 1; end < num_rows && expert[end] == expert[first];) ++end;
    char* to = out.data + first * row_bytes;
    if (expert[first] >= num_experts) {
      std::memset(to, 0, (end - first) * row_bytes);
      continue;
    }
    auto x = rows.matrix(first * rows.strides[0], end - first, rows.sizes, rows.strides);
    auto w = weight.matrix(expert[first] * weight.strides[0], weight.sizes[1], weight.sizes + 1, weight.strides + 1);
    AtenTensorHandle product;
    AOTI_TORCH_ERROR_CODE_CHECK(
        aoti_torch_cpu__linear_pointwise(x, w, nullptr, "none", nullptr, 0, nullptr, &product));
    torch::aot_inductor::RAIIAtenTensorHandle owned(product);
    std::memcpy(to, Operand(product).data, (end - first) * row_bytes);
  }
}

}  // namespace

extern "C" AOTITorchError aoti_torch_cpu_experts_linear(
    AtenTensorHandle rows_handle, AtenTensorHandle weight_handle, AtenTensorHandle expert_handle,
    AtenTensorHandle* result) {
  const Operand rows(rows_handle), weight(weight_handle), expert(expert_handle);
  const int64_t sizes[] = {rows.sizes[0], weight.sizes[1]}, strides[] = {sizes[1], 1};
  AOTI_TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(2, sizes, strides, rows.dtype, aoti_torch_device_type_cpu(), 0, result));
  Operand out(*result);
  multiply(rows, weight, reinterpret_cast<const int64_t*>(expert.data), out);
  return AOTI_TORCH_SUCCESS;
}
