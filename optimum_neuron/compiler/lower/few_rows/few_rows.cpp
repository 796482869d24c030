// Products of a few rows with a weight: y = x @ w^T in float32, of a weight in float32 or bfloat16.
//
// A step of a decoder with a few sequences reads each weight once, so it should take as long as reading. A weight is
// converted in registers, for all rows of a tile; several outputs are summed side by side, because the sum of one waits
// for the adder. The sum of a row does not depend on how many rows there are.
//
// Inductor's code calls `aoti_torch_cpu_few_rows`. The threads are torch's.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace neuron_host {

#define UNROLL _Pragma("GCC unroll 16")

// A tile of kRows x kOutputs sums and as many weights fill the registers of the target.
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kRows = 8, kOutputs = 3;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32, kRows = 4, kOutputs = 3;
#else
constexpr int kVectorBytes = 16, kRows = 4, kOutputs = 2;
#endif
constexpr int kLanes = kVectorBytes / sizeof(float);
constexpr int64_t kGrainBytes = 1 << 16; // of weights, that are worth a thread

typedef float Vector __attribute__((vector_size(kVectorBytes)));
typedef int32_t Integers __attribute__((vector_size(kVectorBytes)));
typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2), aligned(alignof(uint16_t)), may_alias));
typedef float Unaligned __attribute__((vector_size(kVectorBytes), aligned(alignof(float)), may_alias));

struct Product {
  const float* x = nullptr;
  const void* weight = nullptr;
  float* result = nullptr;
  int64_t num_rows = 0, num_inputs = 0, num_outputs = 0;
};

inline Vector load(const float* from) {
  return *reinterpret_cast<const Unaligned*>(from);
}

inline Vector load(const uint16_t* from) {
  return reinterpret_cast<Vector>(__builtin_convertvector(*reinterpret_cast<const Halves*>(from), Integers) << 16);
}

inline float one(const float* from) {
  return *from;
}

inline float one(const uint16_t* from) {
  const uint32_t bits = static_cast<uint32_t>(*from) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float sum(Vector vector) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(reinterpret_cast<__m512>(vector));
#else
  float total = 0.0f;
  UNROLL for (int lane = 0; lane < kLanes; lane++) total += vector[lane];
  return total;
#endif
}

template <class Weight, int num_rows>
void multiply_tile(const Product& p, int64_t row, const int64_t* outputs) {
  const Weight* weights[kOutputs];
  UNROLL for (int o = 0; o < kOutputs; o++)
    weights[o] = static_cast<const Weight*>(p.weight) + outputs[o] * p.num_inputs;
  const float* x = p.x + row * p.num_inputs;
  Vector sums[num_rows][kOutputs] = {};
  int64_t i = 0;
  for (; i + kLanes <= p.num_inputs; i += kLanes) {
    Vector weight[kOutputs];
    UNROLL for (int o = 0; o < kOutputs; o++) {
      weight[o] = load(weights[o] + i);
      __builtin_prefetch(weights[o] + i + kOutputs * p.num_inputs); // of the next outputs
    }
    UNROLL for (int r = 0; r < num_rows; r++) {
      const Vector from = load(x + r * p.num_inputs + i);
      UNROLL for (int o = 0; o < kOutputs; o++) sums[r][o] += from * weight[o];
    }
  }
  UNROLL for (int r = 0; r < num_rows; r++)
    UNROLL for (int o = 0; o < kOutputs; o++) {
      float total = sum(sums[r][o]);
      for (int64_t k = i; k < p.num_inputs; k++) total += x[r * p.num_inputs + k] * one(weights[o] + k);
      p.result[(row + r) * p.num_outputs + outputs[o]] = total;
    }
}

template <class Weight>
void run_range(int64_t begin, int64_t end, void* context) {
  const Product& p = *static_cast<const Product*>(context);
  for (int64_t first = begin; first < end; first += kOutputs) {
    int64_t outputs[kOutputs];
    // The last one again where fewer are left: no other code for them.
    UNROLL for (int o = 0; o < kOutputs; o++) outputs[o] = std::min(first + o, end - 1);
    int64_t row = 0;
    for (; row + kRows <= p.num_rows; row += kRows) multiply_tile<Weight, kRows>(p, row, outputs);
    for (; row + 2 <= p.num_rows; row += 2) multiply_tile<Weight, 2>(p, row, outputs);
    for (; row < p.num_rows; row++) multiply_tile<Weight, 1>(p, row, outputs);
  }
}

void check(AOTITorchError status) {
  if (status != AOTI_TORCH_SUCCESS) throw std::runtime_error("a function of torch failed");
}

template <class T>
T* data_of(AtenTensorHandle handle) {
  void* data;
  check(aoti_torch_get_data_ptr(handle, &data));
  return static_cast<T*>(data);
}

} // namespace neuron_host

// Both are contiguous; the result has the sizes of `x` with the outputs in place of the inputs.
extern "C" __attribute__((visibility("default"))) AOTITorchError aoti_torch_cpu_few_rows(
    AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle* result) try {
  using namespace neuron_host;
  *result = nullptr;
  int64_t dim, *sizes, *weight_sizes;
  int32_t dtype;
  check(aoti_torch_get_dim(x, &dim));
  check(aoti_torch_get_sizes(x, &sizes));
  check(aoti_torch_get_sizes(weight, &weight_sizes));
  check(aoti_torch_get_dtype(weight, &dtype));
  const bool is_float = dtype == aoti_torch_dtype_float32();
  Product p;
  p.x = data_of<const float>(x);
  p.weight = data_of<const void>(weight);
  p.num_inputs = sizes[dim - 1];
  if (weight_sizes[1] != p.num_inputs) throw std::invalid_argument("a weight has another number of inputs");
  p.num_outputs = weight_sizes[0];
  p.num_rows = 1;
  std::array<int64_t, 8> result_sizes, strides;
  for (int64_t i = 0; i + 1 < dim; i++) p.num_rows *= result_sizes[i] = sizes[i];
  result_sizes[dim - 1] = p.num_outputs;
  int64_t stride = 1;
  for (int64_t i = dim - 1; i >= 0; stride *= result_sizes[i--]) strides[i] = stride;
  check(aoti_torch_empty_strided(
      dim, result_sizes.data(), strides.data(), aoti_torch_dtype_float32(), aoti_torch_device_type_cpu(), 0, result));
  p.result = data_of<float>(*result);
  const int64_t row_bytes = std::max<int64_t>(p.num_inputs * (is_float ? 4 : 2), 1);
  const int64_t grain = std::max<int64_t>(kGrainBytes / row_bytes / kOutputs, 1) * kOutputs;
  check(torch_parallel_for(0, p.num_outputs, grain, is_float ? run_range<float> : run_range<uint16_t>, &p));
  return AOTI_TORCH_SUCCESS;
} catch (const std::exception&) { // no memory, or a weight of another shape
  if (*result) aoti_torch_delete_tensor_object(*result);
  return AOTI_TORCH_FAILURE;
}
