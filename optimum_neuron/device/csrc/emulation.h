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
  traits.emulatable =
      aten && !views && traits.generator < 0 && !op.hasTag(at::Tag::nondeterministic_seeded) &&
      schema.name() != "aten::resize_" && schema.name() != "aten::set_";
  auto found = product_operands().find(schema.name());
  if (found != product_operands().end()) traits.operands = found->second;
  return traits;
}

// Run an operator whose arguments are on the CPU: operands rounded, 16-bit floats computed in float32 and rounded once.
inline void call_emulated(const c10::OperatorHandle& op, const Traits& traits, torch::jit::Stack* stack) {
  constexpr c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
  size_t base = stack->size() - traits.num_arguments;
  auto is_float32 = [](const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat; };
  for (int position : traits.operands) {
    c10::IValue& value = (*stack)[base + position];
    value = map_tensors(value, [&](const at::Tensor& t) { return is_float32(t) ? round_operand(t) : t; });
  }
  bool narrow = false;
  for (size_t i = base; i < stack->size(); i++)
    narrow |= any_tensor((*stack)[i], [](const at::Tensor& t) { return is_narrow(t.scalar_type()); });
  if (!narrow || (traits.operands.empty() && !numerics.stochastic)) return op.redispatchBoxed(cpu, stack);

  torch::jit::Stack arguments(stack->begin() + base, stack->end());
  torch::jit::Stack expected; // what the CPU computes, for its dtypes
  if (!traits.writes) {
    expected = arguments;
    op.redispatchBoxed(cpu, &expected);
  }
  torch::jit::Stack wide;
  for (const c10::IValue& value : arguments)
    wide.push_back(map_tensors(
        value, [](const at::Tensor& t) { return is_narrow(t.scalar_type()) ? t.to(at::kFloat) : t; }));
  for (size_t i = 0; i < wide.size(); i++) {
    bool dtype = op.schema().arguments()[i].name() == "dtype" && wide[i].isInt();
    if (dtype && is_narrow(wide[i].toScalarType())) wide[i] = c10::IValue(at::kFloat);
  }
  torch::jit::Stack results = wide;
  op.redispatchBoxed(cpu, &results);
  auto write_back = [](const at::Tensor& to, const at::Tensor& from) {
    if (!is_narrow(to.scalar_type())) return;
    to.resize_(from.sizes());
    to.copy_(write_as(from, to.scalar_type()));
  };
  for (int position : traits.written) {
    const c10::IValue &to = arguments[position], &from = wide[position];
    if (to.isTensor() && to.toTensor().defined()) write_back(to.toTensor(), from.toTensor());
    if (to.isTensorList())
      for (size_t i = 0; i < to.toTensorList().size(); i++) write_back(to.toTensorList()[i], from.toTensorList()[i]);
  }
  stack->resize(base);
  for (size_t i = 0; i < results.size(); i++) {
    if (traits.writes) {
      // A result is the argument that it was written to.
      c10::IValue result = results[i];
      for (int position : traits.written)
        if (result.isTensor() && wide[position].isTensor() && result.toTensor().is_same(wide[position].toTensor()))
          result = arguments[position];
      stack->push_back(std::move(result));
    } else {
      auto type = [&](const at::Tensor& exact, const at::Tensor& like) {
        return is_narrow(like.scalar_type()) ? write_as(exact, like.scalar_type()) : exact.to(like.scalar_type());
      };
      if (results[i].isTensor() && results[i].toTensor().defined())
        stack->push_back(type(results[i].toTensor(), expected[i].toTensor()));
      else if (results[i].isTensorList()) {
        c10::List<at::Tensor> out;
        for (size_t k = 0; k < results[i].toTensorList().size(); k++)
          out.push_back(type(results[i].toTensorList()[k], expected[i].toTensorList()[k]));
        stack->push_back(out);
      } else
        stack->push_back(results[i]);
    }
  }
}

} // namespace neuron
