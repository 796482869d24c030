// The `emulated` numerics: operands rounded as TensorE reads them, float32 accumulation, stochastic rounding of what is
// written to 16-bit floats. In the `reference` numerics nothing here runs.
//
// The rounding of operands is that of compiler/passes/autocast.py; a test compares the bits.
#pragma once
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/stack.h>
#include "generator.h"

namespace neuron {

enum class Operand : int { kExact, kBFloat16, kFloat16, kTFloat32, kFloat8E4M3 }; // order of numerics.py: OPERANDS

struct Numerics {
  std::atomic<bool> emulated{false};
  std::atomic<Operand> operand{Operand::kExact};
  std::atomic<bool> stochastic{false};
  std::atomic<uint64_t> seed{0}, draws{0};
};

inline Numerics numerics;

constexpr double kFloat8Max = 240.0; // largest finite value of the chip's FP8 E4M3; torch's variant ends at 448
constexpr int32_t kTFloat32DroppedBits = 13; // 23 fraction bits less 10

inline bool is_narrow(c10::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf;
}

inline at::Tensor round_operand(const at::Tensor& exact) {
  switch (numerics.operand.load()) {
    case Operand::kExact:
      return exact;
    case Operand::kBFloat16:
      return exact.to(at::kBFloat16).to(at::kFloat);
    case Operand::kFloat16:
      return exact.to(at::kHalf).to(at::kFloat);
    case Operand::kFloat8E4M3:
      return exact.clamp(-kFloat8Max, kFloat8Max).to(at::kFloat8_e4m3fn).to(at::kFloat);
    case Operand::kTFloat32: {
      at::Tensor bits = exact.contiguous().view(at::kInt);
      at::Tensor last = bits.bitwise_right_shift(kTFloat32DroppedBits).bitwise_and(1);
      bits = (bits + last + ((1 << (kTFloat32DroppedBits - 1)) - 1)).bitwise_and(-(1 << kTFloat32DroppedBits));
      return bits.view(at::kFloat);
    }
  }
  return exact;
}

// Round up or down, each as likely as the value is near to it, so that the expected result is the value itself
// (Croci et al., "Stochastic rounding: implementation, error analysis and applications", 2022, section 2).
template <class Narrow>
void round_stochastically(const float* from, Narrow* to, int64_t num, uint64_t key) {
  for (int64_t i = 0; i < num; i++) {
    Narrow nearest(from[i]);
    float distance = from[i] - static_cast<float>(nearest);
    if (distance != 0.0f && std::isfinite(distance)) {
      // The neighbor on the value's other side: magnitudes of one sign are ordered as their bits are.
      Narrow other = nearest;
      bool away = (distance > 0) == (static_cast<float>(nearest) > 0);
      if (static_cast<float>(nearest) == 0.0f)
        other.x = static_cast<uint16_t>(distance > 0 ? 0x0001 : 0x8001);
      else
        other.x = static_cast<uint16_t>(nearest.x + (away ? 1 : -1));
      float gap = static_cast<float>(other) - static_cast<float>(nearest);
      float draw = static_cast<float>(mix(key + static_cast<uint64_t>(i)) >> 40) * 0x1p-24f;
      if (draw < distance / gap) nearest = other;
    }
    to[i] = nearest;
  }
}

// A float32 tensor in a narrow type, rounded as the mode says.
inline at::Tensor write_as(const at::Tensor& exact, c10::ScalarType type) {
  if (!numerics.stochastic || exact.scalar_type() != at::kFloat || !is_narrow(type)) return exact.to(type);
  at::Tensor from = exact.is_non_overlapping_and_dense() ? exact : exact.contiguous();
  at::Tensor to = at::empty_like(from, from.options().dtype(type));
  uint64_t key = mix(numerics.seed ^ mix(numerics.draws++));
  if (type == at::kBFloat16)
    round_stochastically(from.const_data_ptr<float>(), to.mutable_data_ptr<at::BFloat16>(), from.numel(), key);
  else
    round_stochastically(from.const_data_ptr<float>(), to.mutable_data_ptr<at::Half>(), from.numel(), key);
  return to;
}

// Apply a function to each tensor of an argument or result.
template <class Convert>
c10::IValue map_tensors(const c10::IValue& value, const Convert& convert) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(convert(value.toTensor())) : value;
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> out;
  for (const at::Tensor& tensor : value.toTensorList()) out.push_back(convert(tensor));
  return out;
}

inline bool any_tensor(const c10::IValue& value, bool (*holds)(const at::Tensor&)) {
  if (value.isTensor()) return value.toTensor().defined() && holds(value.toTensor());
  if (!value.isTensorList()) return false;
  for (const at::Tensor& tensor : value.toTensorList())
    if (holds(tensor)) return true;
  return false;
}

} // namespace neuron
