// Grouped products of FP8 operands with a scale for each row and column, which the CPU has no kernel for.
//
// Letters: G groups, M rows, K contracted, N columns. A matrix that has no axis for groups is cut by `offsets`, the
// ends of the groups: rows of the left (MK x GKN), columns of the right (GMK x KN), or the contracted axis of both (MK
// x KN).
#pragma once
#include "kernels.h"

namespace neuron {

// One product in float32: TensorE multiplies FP8 operands and accumulates in float32, and scales come after it.
inline Tensor scaled_product(const Tensor& a_MK, const Tensor& b_KN, const Tensor& scale_M, const Tensor& scale_N) {
  return at::mm(a_MK.to(at::kFloat), b_KN.to(at::kFloat)) * scale_M.unsqueeze(-1) * scale_N.unsqueeze(0);
}

inline Tensor scaled_grouped_mm(
    const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b, const Maybe<Tensor>& offsets,
    const Maybe<Tensor>& bias, const Maybe<Tensor>& scale_result, Maybe<ScalarType> out_dtype, bool /*fast_accum*/) {
  bool a_grouped = a.dim() == 3, b_grouped = b.dim() == 3, cut = !(a_grouped && b_grouped);
  TORCH_CHECK(!bias && !scale_result, "_scaled_grouped_mm takes neither bias nor scale_result");
  TORCH_CHECK(
      scale_a.scalar_type() == at::kFloat && scale_b.scalar_type() == at::kFloat,
      "_scaled_grouped_mm on ", kDeviceName, " takes float32 scales, one for each row of the left and column of the right");
  TORCH_CHECK(!cut || (offsets && offsets->defined()), "_scaled_grouped_mm needs offs where an operand has no groups");
  int64_t rows = a.size(-2), columns = b.size(-1);
  int64_t groups = a_grouped ? a.size(0) : b_grouped ? b.size(0) : offsets->size(0);
  Tensor ends = cut ? offsets->cpu().to(at::kLong) : Tensor();
  std::vector<Tensor> products;
  for (int64_t group = 0, start = 0; group < groups; group++) {
    int64_t end = cut ? ends[group].item<int64_t>() : 0;
    Tensor left = a_grouped ? a[group] : a.slice(b_grouped ? 0 : 1, start, end);
    Tensor right = b_grouped ? b[group] : b.slice(a_grouped ? 1 : 0, start, end);
    auto scale_of = [&](const Tensor& scale, bool grouped, bool other_grouped, int64_t size) {
      if (grouped) return scale[group];
      return other_grouped ? scale.slice(0, start, end) : scale.slice(0, group * size, (group + 1) * size);
    };
    products.push_back(scaled_product(
        left, right, scale_of(scale_a, a_grouped, b_grouped, rows), scale_of(scale_b, b_grouped, a_grouped, columns)));
    start = end;
  }
  Tensor out = a_grouped == b_grouped ? at::stack(products) : at::cat(products, a_grouped ? 1 : 0);
  return out.to(out_dtype.value_or(at::kBFloat16));
}

inline void register_grouped(torch::Library& aten) {
  aten.impl("_scaled_grouped_mm", &scaled_grouped_mm);
}

} // namespace neuron
