// `torch.autocast("neuron")`: the operator lists are torch's own (ATen/autocast_mode.h), one boxed kernel for each
// policy.
#pragma once
#include <ATen/autocast_mode.h>
#include "fallback.h"

namespace neuron {

enum class Policy { kLowerPrecision, kFloat32, kFloat32Result, kPromote };

template <class Visit>
void for_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor() && value.toTensor().defined()) visit(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorList()) visit(tensor);
}

inline void cast_arguments(torch::jit::Stack* stack, size_t base, c10::ScalarType type) {
  for (size_t i = base; i < stack->size(); i++)
    (*stack)[i] = map_tensors(
        (*stack)[i], [type](const at::Tensor& tensor) { return at::autocast::cached_cast(type, tensor, kDeviceType); });
}

template <Policy policy>
void autocast(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard guard(kAutocastKey);
  const auto& arguments = op.schema().arguments();
  size_t base = stack->size() - arguments.size();
  auto lower = at::autocast::get_autocast_dtype(kDeviceType);
  if constexpr (policy == Policy::kLowerPrecision) {
    cast_arguments(stack, base, lower);
  } else if constexpr (policy == Policy::kFloat32) {
    cast_arguments(stack, base, at::kFloat);
  } else if constexpr (policy == Policy::kPromote) {
    auto widest = lower;
    for (size_t i = base; i < stack->size(); i++)
      for_tensors((*stack)[i], [&](const at::Tensor& tensor) {
        widest = at::autocast::prioritize(widest, tensor, kDeviceType);
      });
    cast_arguments(stack, base, widest);
  } else {
    // Inputs stay as they are; the result is asked for in float32 unless the caller asked for something.
    bool eligible = false;
    for (size_t i = base; i < stack->size(); i++)
      for_tensors((*stack)[i], [&](const at::Tensor& t) { eligible |= at::autocast::is_eligible(t, kDeviceType); });
    for (size_t i = 0; eligible && i < arguments.size(); i++)
      if (arguments[i].name() == "dtype" && (*stack)[base + i].isNone()) (*stack)[base + i] = at::kFloat;
  }
  op.callBoxed(stack);
}

template <Policy policy>
void register_policy(torch::Library& aten, const char* name, const char* overload = "") {
  std::string full = *overload == '\0' ? std::string(name) : std::string(name) + "." + overload;
  aten.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&autocast<policy>>());
}

// torch's lists are macros that call another one with a name, or with a name and an overload.
#define NEURON_PICK(_1, _2, NAME, ...) NAME
#define NEURON_NAME(policy, name) register_policy<policy>(aten, #name);
#define NEURON_OVERLOAD(policy, name, overload) register_policy<policy>(aten, #name, #overload);
#define NEURON_POLICY(policy, ...) NEURON_PICK(__VA_ARGS__, NEURON_OVERLOAD, NEURON_NAME)(policy, __VA_ARGS__)
#define NEURON_LOWER(...) NEURON_POLICY(Policy::kLowerPrecision, __VA_ARGS__)
#define NEURON_FLOAT32(...) NEURON_POLICY(Policy::kFloat32, __VA_ARGS__)
#define NEURON_RESULT(...) NEURON_POLICY(Policy::kFloat32Result, __VA_ARGS__)
#define NEURON_PROMOTE(...) NEURON_POLICY(Policy::kPromote, __VA_ARGS__)

inline void register_autocast(torch::Library& aten) {
  AT_FORALL_LOWER_PRECISION_FP(NEURON_LOWER)
  AT_FORALL_FP32(NEURON_FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(NEURON_RESULT)
  AT_FORALL_PROMOTE(NEURON_PROMOTE)
  // Not in the list, because they take lists of tensors.
  register_policy<Policy::kPromote>(aten, "cat");
  register_policy<Policy::kPromote>(aten, "stack");
}

#undef NEURON_PICK
#undef NEURON_NAME
#undef NEURON_OVERLOAD
#undef NEURON_POLICY
#undef NEURON_LOWER
#undef NEURON_FLOAT32
#undef NEURON_RESULT
#undef NEURON_PROMOTE

} // namespace neuron
