// The call of an operator in the `emulated` numerics.
#pragma once
#include "rounding.h"
#include "traits.h"

namespace neuron {

inline at::Tensor widened(const at::Tensor& tensor) {
  return is_narrow(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

// Arguments in float32; a result that is asked for in a narrow type is asked for in float32 too.
inline torch::jit::Stack widened(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  torch::jit::Stack wide;
  for (size_t i = 0; i < arguments.size(); i++) {
    c10::IValue value = map_tensors(arguments[i], [](const at::Tensor& tensor) { return widened(tensor); });
    bool dtype = op.schema().arguments()[i].name() == "dtype" && value.isInt();
    if (dtype && is_narrow(value.toScalarType())) value = at::kFloat;
    wide.push_back(std::move(value));
  }
  return wide;
}

// Call `visit` with the tensors of two arguments or results that belong together.
template <class Visit>
void for_both(const c10::IValue& left, const c10::IValue& right, const Visit& visit) {
  if (left.isTensor() && left.toTensor().defined()) visit(left.toTensor(), right.toTensor());
  if (!left.isTensorList()) return;
  const auto &lefts = left.toTensorList(), &rights = right.toTensorList();
  for (size_t i = 0; i < lefts.size(); i++) visit(lefts.get(i), rights.get(i));
}

// An operator that writes: what it wrote in float32 is rounded into its arguments, which are its results.
inline void call_writing(
    const c10::OperatorHandle& op, const Traits& traits, const torch::jit::Stack& arguments, torch::jit::Stack* out) {
  torch::jit::Stack wide = widened(op, arguments);
  *out = wide;
  run_on_cpu(op, traits.product, out);
  for (int position : traits.written) {
    for_both(arguments[position], wide[position], [](at::Tensor to, const at::Tensor& from) {
      if (!is_narrow(to.scalar_type())) return;
      to.resize_(from.sizes());
      to.copy_(write_as(from, to.scalar_type()));
    });
    for (c10::IValue& result : *out)
      if (result.isTensor() && wide[position].isTensor() && result.toTensor().is_same(wide[position].toTensor()))
        result = arguments[position];
  }
}

// An operator that only computes: the host's own run says which dtypes its results have.
inline void call_computing(
    const c10::OperatorHandle& op, const Traits& traits, const torch::jit::Stack& arguments, torch::jit::Stack* out) {
  torch::jit::Stack expected = arguments;
  op.redispatchBoxed(kOnCpu, &expected);
  *out = widened(op, arguments);
  run_on_cpu(op, traits.product, out);
  for (size_t i = 0; i < out->size(); i++) {
    c10::List<at::Tensor> rounded;
    for_both((*out)[i], expected[i], [&](const at::Tensor& exact, const at::Tensor& like) {
      rounded.push_back(write_as(exact, like.scalar_type()));
    });
    if ((*out)[i].isTensorList())
      (*out)[i] = rounded;
    else if (rounded.size() == 1)
      (*out)[i] = rounded.get(0);
  }
}

// Run an operator whose arguments are on the CPU: operands rounded, narrow floats computed in float32 and rounded once.
inline void call_emulated(const c10::OperatorHandle& op, const Traits& traits, torch::jit::Stack* stack) {
  size_t base = stack->size() - traits.num_arguments;
  for (int position : traits.operands) {
    c10::IValue& value = (*stack)[base + position];
    value = map_tensors(value, [](const at::Tensor& tensor) {
      return tensor.scalar_type() == at::kFloat ? round_operand(tensor) : tensor;
    });
  }
  bool narrow = false;
  for (size_t i = base; i < stack->size(); i++)
    narrow |= any_tensor((*stack)[i], [](const at::Tensor& tensor) { return is_narrow(tensor.scalar_type()); });
  if (!narrow || (traits.operands.empty() && !numerics.stochastic)) return run_on_cpu(op, traits.product, stack);

  torch::jit::Stack arguments(stack->begin() + base, stack->end()), out;
  if (traits.writes)
    call_writing(op, traits, arguments, &out);
  else
    call_computing(op, traits, arguments, &out);
  stack->resize(base);
  stack->insert(stack->end(), out.begin(), out.end());
}

} // namespace neuron
