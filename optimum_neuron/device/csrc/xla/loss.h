// Losses of classes: XLA takes their numbers in any dtype, the CPU only in whole numbers.
#pragma once
#include <ATen/ops/nll_loss_nd_native.h>
#include "../kernels.h"

namespace neuron {

inline Tensor nll_loss_nd(
    const Tensor& self, const Tensor& target, const Maybe<Tensor>& weight, int64_t reduction,
    c10::SymInt ignore_index) {
  bool whole = at::isIntegralType(target.scalar_type(), false);
  return at::native::nll_loss_nd_symint(
      self, whole ? target : target.to(at::kLong), weight, reduction, std::move(ignore_index));
}

} // namespace neuron
