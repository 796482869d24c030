// Which operators may wait in the queue of their core, and how they get there.
//
// An operator with a meta function is split as torch does it for other devices: the meta function checks shapes and
// allocates the result, at once, and then calls the `out=` kernel, which is what waits. So errors of shapes and dtypes
// come where they belong, and results have the strides that the CPU gives them. An `out=` kernel that the program calls
// by itself does not wait: its result may have to be resized.
#pragma once
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include "aliases.h"
#include "rounding.h"
#include "traits.h"

namespace neuron {

// Nothing waits where the program asked for determinism (its debug mode included), or for the chip's rounding.
inline bool defers() {
  return C10_UNLIKELY(adaptive.enabled.load(std::memory_order_relaxed)) && !numerics.emulated &&
      !at::globalContext().deterministicAlgorithms();
}

inline bool is_plain(const at::Tensor& tensor) {
  return is_on_device(tensor) && tensor.layout() == c10::kStrided && !tensor.is_complex() && !tensor._is_zerotensor();
}

inline bool defers(const at::Tensor& tensor) {
  return defers() && is_plain(tensor);
}

// A copy may wait where it stays on its core and its checks are the ones made here: shapes, and memory that overlaps.
inline bool defers_copy(const at::Tensor& self, const at::Tensor& source) {
  return defers(self) && is_plain(source) && self.device() == source.device() &&
      at::has_internal_overlap(self) != at::MemOverlap::Yes && !self.storage().is_alias_of(source.storage()) &&
      at::is_expandable_to(source.sizes(), self.sizes());
}

// Device tensors of one core, and at most one number, which torch passes as a host tensor.
inline bool may_wait(const torch::jit::Stack& stack, size_t base) {
  int num_numbers = 0, device = -1;
  auto fits = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return true;
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && !is_on_device(tensor)) return ++num_numbers == 1;
    if (!is_plain(tensor) || (device >= 0 && device != tensor.device().index())) return false;
    device = tensor.device().index();
    return true;
  };
  for (size_t i = base; i < stack.size(); i++) {
    const c10::IValue& value = stack[i];
    if (value.isTensor() && !fits(value.toTensor())) return false;
    if (!value.isList() || value.isIntList() || value.isDoubleList() || value.isBoolList()) continue;
    if (!value.isTensorList()) return false;
    for (const at::Tensor& tensor : value.toTensorList())
      if (!fits(tensor)) return false;
  }
  return device >= 0;
}

// The operator whose meta function is running in this thread: its `out=` kernel may wait.
struct Splitting {
  const std::string* name = nullptr;
  bool fusible = false;
};

inline thread_local Splitting splitting;

class SplittingScope {
 public:
  SplittingScope(const std::string& name, bool fusible) : before_(splitting) { splitting = {&name, fusible}; }
  ~SplittingScope() { splitting = before_; }
  SplittingScope(const SplittingScope&) = delete;

 private:
  Splitting before_;
};

// `add_` is split into its meta function and `add.out`.
inline bool is_out_of(const std::string& name, const std::string& split) {
  bool in_place = split.size() == name.size() + 1 && split.back() == '_';
  return (in_place || split.size() == name.size()) && split.compare(0, name.size(), name) == 0;
}

inline void push(const c10::OperatorHandle& op, const Traits& traits, torch::jit::Stack* stack, bool fusible) {
  size_t base = stack->size() - traits.num_arguments;
  Aliases aliases;
  torch::jit::Stack arguments, results;
  for (size_t i = base; i < stack->size(); i++) arguments.push_back(aliases.to_cpu((*stack)[i]));
  for (int position : traits.written) results.push_back((*stack)[base + position]);
  queue_of(aliases.device()).push({op, std::move(arguments), traits.product}, fusible);
  stack->resize(base);
  stack->insert(stack->end(), results.begin(), results.end());
}

// Errors name the operator, which a traceback into C++ would not show.
template <class Call>
void naming(const c10::OperatorHandle& op, const Call& call) {
  try {
    call();
  } catch (c10::Error& error) {
    error.add_context(c10::str("while running ", op.schema().name(), " on ", kDeviceName));
    throw;
  }
}

// Let an operator wait, or the part of it that may; false where it has to run now.
inline bool defer(const c10::OperatorHandle& op, const Traits& traits, torch::jit::Stack* stack) {
  size_t base = stack->size() - traits.num_arguments;
  if (traits.split_at && may_wait(*stack, base)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    SplittingScope scope(op.schema().name(), traits.fusible);
    naming(op, [&] { op.callBoxedForDispatchKey(*traits.split_at, *stack); });
    return true;
  }
  bool allocated = splitting.name != nullptr && traits.writes && is_out_of(op.schema().name(), *splitting.name);
  if (!allocated && !traits.keeps_shape) return false;
  if (!may_wait(*stack, base)) return false;
  push(op, traits, stack, allocated ? splitting.fusible : true);
  return true;
}

inline void settle_devices_of(const c10::IValue& value, const std::string& reason) {
  if (value.isTensor() && value.toTensor().defined() && is_on_device(value.toTensor()))
    settle(value.toTensor().device().index(), reason);
  if (!value.isList() || value.isIntList() || value.isDoubleList() || value.isBoolList()) return;
  for (const c10::IValue& item : value.toList()) settle_devices_of(item, reason);
}

// True for an operator that waits now. One that has to run at once needs what waits for its cores, unless it only makes
// a view; an error of what waited is no error of this operator.
inline bool wait_or_settle(const c10::OperatorHandle& op, const Traits& traits, torch::jit::Stack* stack) {
  if (traits.views) return false;
  if (defers() && defer(op, traits, stack)) return true;
  const std::string& name = op.schema().name();
  std::string reason = name == "aten::_local_scalar_dense" ? "item" : name;
  if (name.rfind("c10d::", 0) == 0) reason = "collective";
  for (size_t i = stack->size() - traits.num_arguments; i < stack->size(); i++) settle_devices_of((*stack)[i], reason);
  return false;
}

} // namespace neuron
