// Operators with a kernel of their own: those that allocate, move between devices, or set storages.
#pragma once
#include <ATen/Context.h>
#include <ATen/ops/_copy_from_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros_native.h>
#include <torch/csrc/autograd/node.h>
#include "fallback.h"

namespace neuron {

using at::Tensor;
using c10::IntArrayRef;
using c10::ScalarType;
template <class T>
using Maybe = std::optional<T>;

// A complex64 tensor is pairs of float32, which rotary embeddings are written with. Other complex numbers and the FNUZ
// kinds of FP8 are refused with the compiler's codes (compiler/rules/codes.py).
// Inside a backward pass torch makes complex tensors itself, for operators whose results are complex.
inline void check_dtype(ScalarType type) {
  bool complex = c10::isComplexType(type) && type != at::kComplexFloat;
  if (C10_UNLIKELY(complex) && !torch::autograd::get_current_node())
    TORCH_CHECK_TYPE(
        false, "NCC_EVRF004: a ", type, " tensor on ", kDeviceName,
        ": the device keeps complex numbers as pairs of float32 only. ",
        "Cast it to complex64, or keep it on the CPU.");
  if (C10_UNLIKELY(type == at::kFloat8_e4m3fnuz || type == at::kFloat8_e5m2fnuz))
    TORCH_CHECK_TYPE(
        false, "NCC_EVRF005: a ", type, " tensor on ", kDeviceName,
        ": no NeuronCore has 8-bit floats of the FNUZ kind. ",
        "Cast it to float16 or bfloat16.");
}

inline void check_unpinned(Maybe<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

inline DeviceIndex index_of(Maybe<Device> device) {
  return device ? device->index() : -1;
}

inline Tensor empty(
    IntArrayRef size, Maybe<ScalarType> dtype, Maybe<c10::Layout>, Maybe<Device> device, Maybe<bool> pin_memory,
    Maybe<c10::MemoryFormat> format) {
  check_unpinned(pin_memory);
  check_dtype(c10::dtype_or_default(dtype));
  DeviceScope scope(index_of(device));
  constexpr c10::DispatchKeySet keys(kDeviceKey);
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(dtype), format);
}

inline Tensor empty_strided(
    IntArrayRef size, IntArrayRef stride, Maybe<ScalarType> dtype, Maybe<c10::Layout>, Maybe<Device> device,
    Maybe<bool> pin_memory) {
  check_unpinned(pin_memory);
  check_dtype(c10::dtype_or_default(dtype));
  DeviceScope scope(index_of(device));
  constexpr c10::DispatchKeySet keys(kDeviceKey);
  return at::detail::empty_strided_generic(size, stride, &allocator, keys, c10::dtype_or_default(dtype));
}

constexpr int64_t kLargeBytes = 1 << 20;

// A backward pass makes zeros for results that nobody used, such as the logits beside a loss, and only reads them.
inline Tensor zeros(
    IntArrayRef size, Maybe<ScalarType> dtype, Maybe<c10::Layout> layout, Maybe<Device> device,
    Maybe<bool> pin_memory) {
  ScalarType type = c10::dtype_or_default(dtype);
  bool strided = layout.value_or(c10::kStrided) == c10::kStrided;
  if (!strided || c10::multiply_integers(size) * static_cast<int64_t>(c10::elementSize(type)) < kLargeBytes)
    return at::native::zeros_symint(c10::fromIntArrayRefSlow(size), dtype, layout, device, pin_memory);
  check_unpinned(pin_memory);
  check_dtype(type);
  DeviceScope scope(index_of(device));
  constexpr c10::DispatchKeySet keys(kDeviceKey);
  return at::detail::empty_generic(size, &zeros_allocator, keys, type, std::nullopt);
}

// Copies go through two aliases: either side may be on the host or on another core.
inline Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  at::AutoDispatchBelowADInplaceOrView guard;
  Aliases from, to;
  Tensor source_cpu = from.to_cpu(source), self_cpu = to.to_cpu(self);
  if (may_be_queued()) {
    if (defers_copy(self, source)) {
      queue_of(to.device()).push({op, {self_cpu, source_cpu, non_blocking}}, true);
      return self;
    }
    settle(from.device(), "copy");
    settle(to.device(), "copy");
  }
  if (C10_UNLIKELY(numerics.emulated) && source_cpu.scalar_type() != self_cpu.scalar_type())
    source_cpu = write_as(source_cpu, self_cpu.scalar_type());
  bool stays = self.device() == source.device(); // other copies are transfers, which use no core
  auto arguments = [&] { return torch::jit::Stack{self_cpu, source_cpu, non_blocking}; };
  record_copy(op, self, source, [&] {
    counting(op, stays ? to.device() : -1, arguments, [&] { self_cpu.copy_(source_cpu, non_blocking); });
    if (downcasts() && to.device() >= 0) round_down(self_cpu);
  });
  return self;
}

inline Tensor copy_from(const Tensor& self, const Tensor& to, bool non_blocking) {
  Tensor target = to;
  return copy_(target, self, non_blocking);
}

inline Tensor copy_from_and_resize(const Tensor& self, const Tensor& to) {
  Tensor target = to;
  target.resize_(self.sizes());
  return copy_(target, self, false);
}

// Conversions that stay on the device run as one operator; transfers are torch's empty and copy_.
inline Tensor to_copy(
    const Tensor& self, Maybe<ScalarType> dtype, Maybe<c10::Layout> layout, Maybe<Device> device,
    Maybe<bool> pin_memory, bool non_blocking, Maybe<c10::MemoryFormat> format) {
  bool stays = is_on_device(self) && layout.value_or(c10::kStrided) == c10::kStrided &&
      (!device || *device == self.device() || (device->type() == kDeviceType && !device->has_index()));
  bool waits = defers(self) && !(dtype && c10::isComplexType(*dtype));
  if (!stays || pin_memory.value_or(false) || (dtype && numerics.emulated) || waits)
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
  if (dtype && !c10::isComplexType(*dtype)) check_dtype(*dtype);
  at::AutoDispatchBelowADInplaceOrView guard;
  Aliases aliases;
  Tensor alias = aliases.to_cpu(self);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_to_copy", "");
  static const Traits traits = traits_of(op);
  auto arguments = [&] {
    return torch::jit::Stack{alias, dtype, layout, Maybe<Device>(), pin_memory, non_blocking, format};
  };
  torch::jit::Stack recorded_arguments{self, dtype, layout, Maybe<Device>(), pin_memory, non_blocking, format};
  RecordedCall recorded(op, traits, recorded_arguments);
  Tensor copy;
  counting(op, aliases.device(), arguments, [&] {
    copy = at::native::_to_copy(alias, dtype, layout, std::nullopt, pin_memory, non_blocking, format);
  });
  if (downcasts()) round_down(copy);
  c10::IValue result = aliases.to_device(copy);
  recorded.end(result);
  return result.toTensor();
}

inline Tensor& set_storage_at(
    Tensor& self, c10::Storage storage, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  return at::cpu::set_(self, std::move(storage), offset, size, stride);
}

inline Tensor& set_storage(Tensor& self, c10::Storage storage) {
  auto size = static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize());
  return at::cpu::set_(self, std::move(storage), 0, {size}, {});
}

inline Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return at::cpu::set_(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

// A tensor of zeros without memory, which forward-mode autograd makes.
struct NoMemory final : c10::Allocator {
  explicit NoMemory(Device device) : device(device) {}
  c10::DataPtr allocate(size_t) override { return c10::DataPtr(nullptr, device); }
  void copy_data(void*, const void*, size_t) const override {}
  Device device;
};

inline Tensor efficientzerotensor(
    IntArrayRef size, Maybe<ScalarType> dtype, Maybe<c10::Layout>, Maybe<Device> device, Maybe<bool>) {
  NoMemory no_memory(Device(kDeviceType, or_current(index_of(device))));
  c10::DispatchKeySet keys({kDeviceKey, c10::DispatchKey::ZeroTensor});
  return at::detail::empty_generic(size, &no_memory, keys, c10::dtype_or_default(dtype), std::nullopt);
}

inline void record_stream(Tensor&, at::Stream) {} // work is done when a call returns

// The CPU's kernel draws from the CPU's generator; this one computes the same from the device's.
inline std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, Maybe<bool> train) {
  if (!train.value_or(true) || input.numel() == 0) return {input.clone(), at::ones_like(input, at::kBool)};
  double kept = 1 - p;
  Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  mask.bernoulli_(kept);
  return {mask.mul(input).mul_(kept == 0 ? 0.0 : 1.0 / kept), mask};
}

// The CPU counts floats only. Routers of experts count integers, as they may on other devices.
inline Tensor histc(const Tensor& self, int64_t num_bins, const at::Scalar& min, const at::Scalar& max) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::histc", "");
  bool integers = c10::isIntegralType(self.scalar_type(), /*includeBool=*/false);
  torch::jit::Stack stack{integers ? self.to(at::kDouble) : self, num_bins, min, max};
  fallback(op, &stack);
  Tensor counts = stack[0].toTensor();
  return integers ? counts.to(self.scalar_type()) : counts;
}

// `module.to("neuron")` may keep its Parameter objects: a device tensor can take the place of a host tensor.
inline bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  auto plain = [](const Tensor& tensor) {
    return (is_on_device(tensor) || tensor.is_cpu()) && tensor.layout() == c10::kStrided &&
        !tensor.key_set().has(c10::DispatchKey::Python);
  };
  return plain(self) && plain(from);
}

inline void register_kernels(torch::Library& aten) {
  aten.impl("empty.memory_format", &empty);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("zeros", &zeros);
  aten.impl("copy_", &copy_);
  aten.impl("_copy_from", &copy_from);
  aten.impl("_copy_from_and_resize", &copy_from_and_resize);
  aten.impl("_to_copy", &to_copy);
  aten.impl("as_strided", &at::native::as_strided_tensorimpl);
  aten.impl("view", &at::native::view);
  aten.impl("_reshape_alias", &at::native::_reshape_alias);
  aten.impl("set_.source_Storage", &set_storage);
  aten.impl("set_.source_Storage_storage_offset", &set_storage_at);
  aten.impl("set_.source_Tensor", &set_tensor);
  aten.impl("record_stream", &record_stream);
  aten.impl("native_dropout", &native_dropout);
  aten.impl("histc", &histc);
  aten.impl("_efficientzerotensor", &efficientzerotensor);
  aten.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const char* name : {"convolution", "convolution_backward", "_grouped_mm"})
    aten.impl(name, aliasing_kernel(*dispatcher.findSchema({std::string("aten::") + name, ""})));
}

} // namespace neuron
