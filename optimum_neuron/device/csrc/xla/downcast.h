// XLA_USE_BF16 and XLA_DOWNCAST_BF16: floats of the device have the precision of bfloat16, under their own dtype.
//
// Every value that an operator writes is rounded, and every one that the host gives; stochastically, if that is chosen
// (rounding.h).
#pragma once
#include "../rounding.h"

namespace neuron {

enum class Downcast : int { kNone, kAll, kHalved }; // kHalved: float64 becomes float32, and float32 bfloat16

inline std::atomic<Downcast> downcast{Downcast::kNone};

inline bool downcasts() {
  return C10_UNLIKELY(downcast.load(std::memory_order_relaxed) != Downcast::kNone);
}

inline void round_down(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != c10::kStrided) return;
  bool is_double = tensor.scalar_type() == at::kDouble;
  if (!is_double && tensor.scalar_type() != at::kFloat) return;
  at::Tensor target = tensor;
  if (is_double && downcast == Downcast::kHalved)
    target.copy_(tensor.to(at::kFloat));
  else
    target.copy_(write_as(tensor.to(at::kFloat), at::kBFloat16));
}

inline void round_down(const c10::IValue& value) {
  if (value.isTensor()) return round_down(value.toTensor());
  if (!value.isTensorList()) return;
  for (const at::Tensor& tensor : value.toTensorList()) round_down(tensor);
}

} // namespace neuron
