// Tensors of AOTInductor's C interface, as our kernels read and make them.
#pragma once
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <array>
#include <cstdint>
#include <stdexcept>

namespace neuron_host {

inline void check(AOTITorchError status) {
  if (status != AOTI_TORCH_SUCCESS) throw std::runtime_error("a function of torch failed");
}

template <class T>
T* data_of(AtenTensorHandle handle) {
  void* data;
  check(aoti_torch_get_data_ptr(handle, &data));
  return static_cast<T*>(data);
}

inline int64_t* sizes_of(AtenTensorHandle handle) {
  int64_t* sizes;
  check(aoti_torch_get_sizes(handle, &sizes));
  return sizes;
}

inline int32_t dtype_of(AtenTensorHandle handle) {
  int32_t dtype;
  check(aoti_torch_get_dtype(handle, &dtype));
  return dtype;
}

// A contiguous matrix whose rows are the last dimension of a tensor.
struct Rows {
  std::array<int64_t, 8> sizes;
  int64_t dim = 0, num_rows = 1, num_columns = 0;

  explicit Rows(AtenTensorHandle handle) {
    check(aoti_torch_get_dim(handle, &dim));
    const int64_t* from = sizes_of(handle);
    for (int64_t i = 0; i + 1 < dim; i++) num_rows *= sizes[i] = from[i];
    num_columns = sizes[dim - 1] = from[dim - 1];
  }

  // A new float32 tensor with the same rows, of another width.
  AtenTensorHandle allocate(int64_t width) const {
    std::array<int64_t, 8> result_sizes = sizes, strides;
    result_sizes[dim - 1] = width;
    int64_t stride = 1;
    for (int64_t i = dim - 1; i >= 0; stride *= result_sizes[i--]) strides[i] = stride;
    AtenTensorHandle result;
    check(aoti_torch_empty_strided(
        dim, result_sizes.data(), strides.data(), aoti_torch_dtype_float32(), aoti_torch_device_type_cpu(), 0, &result));
    return result;
  }
};

// Run the body of a C function that makes a result; there is none if it fails.
template <class Body>
AOTITorchError guarded(AtenTensorHandle* result, Body body) try {
  *result = nullptr;
  body();
  return AOTI_TORCH_SUCCESS;
} catch (const std::exception&) { // no memory, or a tensor of another shape
  if (*result) aoti_torch_delete_tensor_object(*result);
  return AOTI_TORCH_FAILURE;
}

} // namespace neuron_host
