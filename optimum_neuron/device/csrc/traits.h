// What the kernel has to know of an operator; found once for each.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>
#include <map>
#include <optional>
#include <set>
#include <string>
#include "products.h"
#include "recording.h"

namespace neuron {

struct Traits {
  size_t num_arguments = 0, num_results = 0;
  int generator = -1; // position of the Generator argument
  bool writes = false; // changes an argument
  bool takes_host_tensors = false; // may mix device and host tensors
  bool emulatable = false; // computes, and may be computed again
  bool views = false; // returns other views of its arguments, and touches no bytes
  bool fusible = false; // computes element by element
  bool keeps_shape = false; // fills its argument, whatever that is
  std::optional<c10::DispatchKey> split_at; // where its kernel is that only calls others
  c10::SmallVector<int, 4> operands; // what TensorE multiplies
  Product product = Product::kOther; // what oneDNN may compute
  c10::SmallVector<int, 2> written; // positions of the arguments that it changes
  OperatorRecord record; // for the recorder

  explicit Traits(const c10::OperatorHandle& op) : record(op) {}
};

// Operators that run on TensorE, with the positions of what is multiplied, as PRODUCT_OPERANDS of rules/matmul.py.
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

inline bool is_out(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return !arguments.empty() && arguments.back().is_out();
}

// Operators with a meta function have an `out=` kernel of their own on the CPU; composed ones have none.
inline bool has_out_kernel(std::string name) {
  static const auto* names = [] {
    auto* found = new std::set<std::string>;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      auto op = dispatcher.findSchema(name);
      if (op && is_out(op->schema()) && op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) found->insert(name.name);
    }
    return found;
  }();
  if (name.back() == '_') name.pop_back();
  return names->count(name) > 0;
}

// Where the kernel of an operator is that only calls others: those allocate the result, and may wait.
inline std::optional<c10::DispatchKey> split_key(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  const auto& schema = op.schema();
  if (schema.name() == "aten::clone") return Key::CompositeExplicitAutograd;
  if (schema.name() == "aten::relu" || schema.name() == "aten::relu_") return Key::CPU; // it is clamp_min
  bool random = op.hasTag(at::Tag::nondeterministic_seeded);
  if (random || is_out(schema) || !op.hasKernelForDispatchKey(Key::CompositeExplicitAutogradNonFunctional) ||
      !op.hasKernelForDispatchKey(Key::CPU) || !has_out_kernel(schema.name()))
    return std::nullopt;
  return Key::CompositeExplicitAutogradNonFunctional;
}

inline Traits traits_of(const c10::OperatorHandle& op) {
  // As on CUDA, the positions of an index may be on the host.
  static const auto* takes_host_tensors = new std::set<std::string>{
      "aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index",
      "aten::_unsafe_index_put", "aten::_copy_from", "aten::_copy_from_and_resize", "aten::copy_", "aten::set_"};
  const auto& schema = op.schema();
  Traits traits(op);
  traits.num_arguments = schema.arguments().size();
  traits.num_results = schema.returns().size();
  traits.writes = schema.is_mutable();
  for (size_t i = 0; i < traits.num_arguments; i++) {
    const auto& argument = schema.arguments()[i];
    const auto* alias = argument.alias_info();
    if (alias != nullptr && alias->isWrite()) traits.written.push_back(static_cast<int>(i));
    traits.views |= alias != nullptr && !alias->isWrite();
    std::string type = argument.type()->str();
    if (type == "Generator?" || type == "Generator") traits.generator = static_cast<int>(i);
  }
  traits.views &= !traits.writes;
  traits.fusible = op.hasTag(at::Tag::pointwise);
  traits.keeps_shape =
      schema.name() == "aten::zero_" || (schema.name() == "aten::fill_" && schema.overload_name() == "Scalar");
  traits.split_at = split_key(op);
  traits.product = product_of(op.operator_name());
  bool aten = schema.name().rfind("aten::", 0) == 0;
  // Operators of others may have host tensors as part of their contract.
  traits.takes_host_tensors = !aten || takes_host_tensors->count(schema.name()) > 0;
  auto found = product_operands().find(schema.name());
  if (found != product_operands().end()) traits.operands = found->second;
  // Attention is tagged as random for its dropout, which the CPU's kernel does not have.
  bool random = traits.generator >= 0 || (traits.operands.empty() && op.hasTag(at::Tag::nondeterministic_seeded));
  traits.emulatable = aten && !traits.views && !random && schema.name() != "aten::resize_" && schema.name() != "aten::set_";
  return traits;
}

} // namespace neuron
