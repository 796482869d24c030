// Products of a few rows with a weight: y = x @ w^T in float32, of a weight in float32 or bfloat16.
//
// A step of a decoder with a few sequences reads each weight once, so it should take as long as reading. A weight is
// converted in registers, for all rows of a tile; several outputs are summed side by side, because the sum of one waits
// for the adder. The sum of a row does not depend on how many rows there are.
//
// Inductor's code calls `aoti_torch_cpu_few_rows`. The threads are torch's.
#include <algorithm>
#include "../headers/registers.h"
#include "../headers/tensors.h"

namespace neuron_host {

// A tile of kRows x kOutputs sums and as many weights fill the registers of the target.
#if defined(__AVX512F__)
constexpr int kRows = 8, kOutputs = 3;
#elif defined(__AVX__)
constexpr int kRows = 4, kOutputs = 3;
#else
constexpr int kRows = 4, kOutputs = 2;
#endif
constexpr int64_t kGrainBytes = 1 << 16; // of weights, that are worth a thread

struct Product {
  const float* x = nullptr;
  const void* weight = nullptr;
  float* result = nullptr;
  int64_t num_rows = 0, num_inputs = 0, num_outputs = 0;
};

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

} // namespace neuron_host

// Both are contiguous; the result has the sizes of `x` with the outputs in place of the inputs.
extern "C" __attribute__((visibility("default"))) AOTITorchError aoti_torch_cpu_few_rows(
    AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle* result) {
  using namespace neuron_host;
  return guarded(result, [=] {
    const Rows rows(x);
    const int64_t* sizes = sizes_of(weight);
    if (sizes[1] != rows.num_columns) throw std::invalid_argument("a weight has another number of inputs");
    *result = rows.allocate(sizes[0]);
    Product p{data_of<const float>(x), data_of<const void>(weight), data_of<float>(*result)};
    p.num_rows = rows.num_rows, p.num_inputs = rows.num_columns, p.num_outputs = sizes[0];
    const bool is_float = dtype_of(weight) == aoti_torch_dtype_float32();
    const int64_t row_bytes = std::max<int64_t>(p.num_inputs * (is_float ? 4 : 2), 1);
    const int64_t grain = std::max<int64_t>(kGrainBytes / row_bytes / kOutputs, 1) * kOutputs;
    check(torch_parallel_for(0, p.num_outputs, grain, is_float ? run_range<float> : run_range<uint16_t>, &p));
  });
}
