// What the kernel has to know of an operator, and the call of one in the `emulated` numerics.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <map>
#include <set>
#include "rounding.h"

namespace neuron {

struct Traits {
  size_t num_arguments = 0, num_results = 0;
  int generator = -1; // position of the Generator argument
  bool writes = false; // changes an argument
  bool takes_host_tensors = false; // may mix device and host tensors
  bool emulatable = false; // computes, and may be computed again
  c10::SmallVector<int, 4> operands; // what TensorE multiplies
  c10::SmallVector<int, 2> written; // positions of the arguments that it changes
};

// Operators that run on TensorE, with the positions of what is multiplied, as PRODUCT_OPERANDS of passes/autocast.py.
inline const std::map<std::string, c10::SmallVector<int, 4>>& product_operands() {
  static const auto* table = new std::map<std::string, c10::SmallVector<int, 4>>{
      {"aten::mm", {0, 1}},
      {"aten::bmm", {0, 1}},
      {"aten::mv", {0, 1}},
      {"aten::dot", {0, 1}},
      {"aten::vdot", {0, 1}},
      {"aten::addmm", {1, 2}},
      {"aten::addmm_", {1, 2}},
      {"aten::_addmm_activation", {1, 2}},
      {"aten::addmv", {1, 2}},
      {"aten::addbmm", {1, 2}},
      {"aten::addbmm_", {1, 2}},
      {"aten::addr", {1, 2}},
      {"aten::baddbmm", {1, 2}},
      {"aten::baddbmm_", {1, 2}},
      {"aten::_grouped_mm", {0, 1}},
      {"aten::convolution", {0, 1}},
      {"aten::convolution_backward", {0, 1, 2}},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", {0, 1, 2}},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", {0, 1, 2, 3}},
  };
  return *table;
}

inline Traits traits_of(const c10::OperatorHandle& op) {
  // As on CUDA, the positions of an index may be on the host.
  static const auto* takes_host_tensors = new std::set<std::string>{
      "aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index",
      "aten::_unsafe_index_put", "aten::_copy_from", "aten::_copy_from_and_resize", "aten::copy_", "aten::set_"};
  const auto& schema = op.schema();
  Traits traits;
  traits.num_arguments = schema.arguments().size();
  traits.num_results = schema.returns().size();
  traits.writes = schema.is_mutable();
  bool views = false;
  for (size_t i = 0; i < traits.num_arguments; i++) {
    const auto& argument = schema.arguments()[i];
    const auto* alias = argument.alias_info();
    if (alias != nullptr && alias->isWrite()) traits.written.push_back(static_cast<int>(i));
    views |= alias != nullptr && !alias->isWrite();
    std::string type = argument.type()->str();
    if (type == "Generator?" || type == "Generator") traits.generator = static_cast<int>(i);
  }
  bool aten = schema.name().rfind("aten::", 0) == 0;
  // Operators of others may have host tensors as part of their contract.
  traits.takes_host_tensors = !aten || takes_host_tensors->count(schema.name()) > 0;
  auto found = product_operands().find(schema.name());
  if (found != product_operands().end()) traits.operands = found->second;
  // Attention is tagged as random for its dropout, which the CPU's kernel does not have.
  bool random = traits.generator >= 0 || (traits.operands.empty() && op.hasTag(at::Tag::nondeterministic_seeded));
  traits.emulatable = aten && !views && !random && schema.name() != "aten::resize_" && schema.name() != "aten::set_";
  return traits;
}

constexpr c10::DispatchKeySet kOnCpu(c10::DispatchKey::CPU);

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
  op.redispatchBoxed(kOnCpu, out);
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
    const c10::OperatorHandle& op, const torch::jit::Stack& arguments, torch::jit::Stack* out) {
  torch::jit::Stack expected = arguments;
  op.redispatchBoxed(kOnCpu, &expected);
  *out = widened(op, arguments);
  op.redispatchBoxed(kOnCpu, out);
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
  if (!narrow || (traits.operands.empty() && !numerics.stochastic)) return op.redispatchBoxed(kOnCpu, stack);

  torch::jit::Stack arguments(stack->begin() + base, stack->end()), out;
  if (traits.writes)
    call_writing(op, traits, arguments, &out);
  else
    call_computing(op, arguments, &out);
  stack->resize(base);
  stack->insert(stack->end(), out.begin(), out.end());
}

} // namespace neuron
