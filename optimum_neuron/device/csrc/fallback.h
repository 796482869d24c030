// One boxed kernel for nearly every operator: alias the arguments to the CPU, run the CPU's kernel, give results back.
//
// It is the device's fallback, and it is registered directly on operators that would otherwise be composed of others
// (`add` would become meta, empty and `add.out`): one hop instead of three, and the CPU's own kernel, so that results
// are the CPU's bit for bit. Large products of float32 may go to another library (products.h).
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <string_view>
#include <unordered_map>
#include "deferral.h"
#include "emulation.h"
#include "recorded_call.h"

namespace neuron {

inline void call_cpu(const c10::OperatorHandle& op, const Traits& traits, torch::jit::Stack* stack) {
  if (C10_UNLIKELY(numerics.emulated) && traits.emulatable)
    call_emulated(op, traits, stack);
  else
    run_on_cpu(op, traits.product, stack);
}

inline void call_aliased(const c10::OperatorHandle& op, const Traits& traits, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView guard;
  size_t base = stack->size() - traits.num_arguments;
  RecordedCall recorded(op, traits, c10::ArrayRef<c10::IValue>(*stack).slice(base));
  Aliases aliases;
  for (size_t i = base; i < stack->size(); i++) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor() || value.isList() || value.isDevice() || value.isGenerator()) value = aliases.to_cpu(value);
  }
  TORCH_CHECK(
      !aliases.mixed() || traits.takes_host_tensors,
      "Expected all tensors to be on the same device, but found at least two devices, ", kDeviceName, ":",
      static_cast<int>(aliases.device()), " and cpu! (when calling ", op.schema().name(), ")");
  if (traits.generator >= 0 && (*stack)[base + traits.generator].isNone() && aliases.device() >= 0)
    (*stack)[base + traits.generator] = engine_of(default_generator(aliases.device()));
  int64_t counted_on = traits.views ? -1 : aliases.device(); // a view is no work
  auto arguments = [&] { return c10::ArrayRef<c10::IValue>(*stack).slice(base); };
  torch::jit::Stack written;
  if (downcasts())
    for (int position : traits.written) written.push_back((*stack)[base + position]);
  counting(op, counted_on, arguments, [&] { call_cpu(op, traits, stack); });
  if (downcasts() && !traits.views) {
    for (const c10::IValue& value : written) round_down(value);
    for (size_t i = stack->size() - traits.num_results; i < stack->size(); i++) round_down((*stack)[i]);
  }
  if (traits.writes) aliases.update_arguments();
  for (size_t i = stack->size() - traits.num_results; i < stack->size(); i++) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor() || value.isList()) value = aliases.to_device(value);
  }
  recorded.end(c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - traits.num_results));
}

inline void call_named(const c10::OperatorHandle& op, const Traits& traits, torch::jit::Stack* stack) {
  if (may_be_queued() && wait_or_settle(op, traits, stack)) return;
  naming(op, [&] { call_aliased(op, traits, stack); });
}

// For operators that are known when the device is loaded.
struct AliasingKernel final : c10::OperatorKernel {
  explicit AliasingKernel(Traits traits) : traits_(std::move(traits)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    call_named(op, traits_, stack);
  }

 private:
  const Traits traits_;
};

// For all others, such as custom operators that come later.
inline void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  thread_local std::unordered_map<c10::OperatorName, Traits> known;
  auto found = known.find(op.operator_name());
  if (found == known.end()) found = known.emplace(op.operator_name(), traits_of(op)).first;
  call_named(op, found->second, stack);
}

inline torch::CppFunction aliasing_kernel(const c10::OperatorHandle& op) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<AliasingKernel>(traits_of(op)));
}

inline std::string local_name(const c10::OperatorName& name) {
  std::string local = name.name.substr(name.name.find("::") + 2);
  return name.overload_name.empty() ? local : local + "." + name.overload_name;
}

// Composite operators that run as one although the CPU has no kernel of their own: they may allocate complex tensors,
// which the device refuses to users, and one call is quicker than two.
inline bool runs_whole(const std::string& name) {
  static const auto* names = new std::set<std::string>{
      "aten::clone", "aten::complex", "aten::constant_pad_nd", "aten::_conj_physical", "aten::polar"};
  return names->count(name) > 0;
}

inline void register_operators(torch::Library& aten) {
  using Key = c10::DispatchKey;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(kDeviceKey)) continue;
    bool composed = op->hasKernelForDispatchKey(Key::CompositeExplicitAutogradNonFunctional) ||
        op->hasKernelForDispatchKey(Key::CompositeExplicitAutograd) ||
        op->hasKernelForDispatchKey(Key::CompositeImplicitAutograd);
    if ((composed && op->hasKernelForDispatchKey(Key::CPU)) || runs_whole(name.name))
      aten.impl(local_name(name).c_str(), aliasing_kernel(*op));
  }
}

// Collectives of device tensors: the CPU's kernels look up the CPU's backend of the group, which is gloo.
inline void register_collectives(torch::Library& c10d) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    // A barrier has no tensor to alias: its own kernel finds the group's backend.
    if (name.name.rfind("c10d::", 0) != 0 || name.name == "c10d::barrier") continue;
    auto op = dispatcher.findSchema(name);
    if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CPU))
      c10d.impl(local_name(name).c_str(), aliasing_kernel(*op));
  }
}

} // namespace neuron
