// Device tensors as CPU tensors over the same bytes, and results back, for the length of one operator call.
//
// On the way back a result is one of four things: an argument itself, a view of an argument's storage (so that every
// view operator works without a list of them), a second view of a new storage, or a new storage, which is adopted
// uncopied.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include "generator.h"
#include "memory.h"

namespace neuron {

inline bool is_on_device(const at::Tensor& tensor) {
  return tensor.device().type() == kDeviceType;
}

class Aliases {
 public:
  // The CPU alias of a device tensor; other tensors are returned as they are.
  at::Tensor to_cpu(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!is_on_device(tensor)) {
      host_tensor_ |= tensor.dim() > 0 && tensor.is_cpu();
      return tensor;
    }
    for (const Pair& pair : pairs_)
      if (pair.tensor.is_same(tensor)) return pair.alias;
    enter(tensor.device().index());
    TORCH_CHECK_NOT_IMPLEMENTED(
        tensor.layout() == c10::kStrided, kDeviceName, " has no ", tensor.layout(),
        " tensors; convert with to_dense()");
    at::Tensor alias = tensor._is_zerotensor() ? zeros_like(tensor)
                                               : view_of(twin_of(tensor.storage()), tensor, kCpuKeys);
    pairs_.push_back({tensor, alias});
    return alias;
  }

  // The device tensor of a result; what is not on the CPU is returned as it is.
  at::Tensor to_device(const at::Tensor& result) {
    if (!result.defined() || !result.is_cpu()) return result;
    for (const Pair& pair : pairs_)
      if (result.is_same(pair.alias)) return pair.tensor;
    if (device_ < 0) return result;
    TORCH_CHECK_NOT_IMPLEMENTED(
        result.layout() == c10::kStrided, kDeviceName, " has no ", result.layout(), " tensors");
    return view_of(storage_of(result), result, kDeviceKeys);
  }

  c10::IValue to_cpu(const c10::IValue& value) {
    if (value.isTensor()) return to_cpu(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> out;
      for (const at::Tensor& tensor : value.toTensorList()) out.push_back(to_cpu(tensor));
      return out;
    }
    if (value.isDevice()) {
      if (value.toDevice().type() != kDeviceType) return value;
      if (device_ < 0) device_ = or_current(value.toDevice().index());
      return Device(c10::DeviceType::CPU);
    }
    if (value.isGenerator()) {
      const at::Generator& generator = value.toGenerator();
      if (!generator.defined() || generator.device().type() != kDeviceType) return value;
      if (device_ < 0) device_ = generator.device().index();
      return engine_of(generator);
    }
    return each(value, [this](const c10::IValue& item) { return to_cpu(item); });
  }

  c10::IValue to_device(const c10::IValue& value) {
    if (value.isTensor()) return to_device(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> out;
      for (const at::Tensor& tensor : value.toTensorList()) out.push_back(to_device(tensor));
      return out;
    }
    return each(value, [this](const c10::IValue& item) { return to_device(item); });
  }

  // After an operator that writes: arguments take over sizes and storages that changed (`out=`, `resize_`, `t_`).
  void update_arguments() {
    for (const Pair& pair : pairs_) {
      if (pair.tensor._is_zerotensor()) continue;
      update_storage(pair);
      auto *tensor = pair.tensor.unsafeGetTensorImpl(), *alias = pair.alias.unsafeGetTensorImpl();
      if (tensor->sizes() != alias->sizes() || tensor->strides() != alias->strides() ||
          tensor->storage_offset() != alias->storage_offset())
        tensor->set_sizes_and_strides(alias->sizes(), alias->strides(), alias->storage_offset());
    }
  }

  // The device of the call, or -1 while no argument named one.
  DeviceIndex device() const { return device_; }
  void set_device(DeviceIndex device) { device_ = device; }
  // Whether the call mixes device tensors with host tensors that have dimensions.
  bool mixed() const { return host_tensor_ && !pairs_.empty(); }

 private:
  struct Pair {
    at::Tensor tensor, alias;
  };

  static constexpr c10::DispatchKeySet kCpuKeys{c10::DispatchKey::CPU};
  static constexpr c10::DispatchKeySet kDeviceKeys{kDeviceKey};

  void enter(DeviceIndex device) {
    TORCH_CHECK(
        pairs_.empty() || device_ == device,
        "Expected all tensors to be on the same device, but found at least two devices, ", kDeviceName, ":",
        static_cast<int>(device_), " and ", kDeviceName, ":", static_cast<int>(device), "!");
    device_ = device;
  }

  static c10::Storage twin_of(const c10::Storage& storage) {
    if (Block* block = block_of(storage)) return block->twin;
    c10::DataPtr data(const_cast<void*>(storage.data()), Device(c10::DeviceType::CPU));
    return c10::Storage(
        c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), c10::GetCPUAllocator(), true);
  }

  static at::Tensor zeros_like(const at::Tensor& tensor) {
    at::Tensor zeros = at::detail::empty_cpu(tensor.sizes(), tensor.scalar_type());
    if (zeros.numel() > 0) std::memset(zeros.mutable_data_ptr(), 0, zeros.nbytes());
    return zeros;
  }

  static at::Tensor view_of(c10::Storage storage, const at::Tensor& like, c10::DispatchKeySet keys) {
    auto view = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
    auto* impl = view.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
    if (like.is_conj()) impl->_set_conj(true);
    if (like.is_neg()) impl->_set_neg(true);
    return view;
  }

  c10::Storage storage_of(const at::Tensor& result) {
    auto* impl = result.storage().unsafeGetStorageImpl();
    for (const Pair& pair : pairs_)
      if (pair.alias.storage().unsafeGetStorageImpl() == impl) return pair.tensor.storage();
    for (const auto& [twin, storage] : adopted_)
      if (twin == impl) return storage;
    size_t size_bytes = impl->nbytes();
    c10::Storage storage(
        c10::Storage::use_byte_size_t(), size_bytes, adopt(result.storage(), device_), &allocator, true);
    adopted_.emplace_back(impl, storage);
    return storage;
  }

  void update_storage(const Pair& pair) {
    auto* storage = pair.tensor.storage().unsafeGetStorageImpl();
    const c10::Storage& twin = pair.alias.storage();
    if (twin.data() == storage->data() && twin.nbytes() == storage->nbytes()) return;
    Block* block = block_of(pair.tensor.storage());
    TORCH_CHECK(
        block != nullptr && twin.unsafeGetStorageImpl() == block->twin.unsafeGetStorageImpl(),
        kDeviceName, " cannot resize memory that it did not allocate");
    auto size_bytes = static_cast<int64_t>(twin.nbytes());
    charge(block->device, size_bytes);
    discharge(block->device, block->size_bytes);
    block->size_bytes = size_bytes;
    storage->_mutable_data_ptr_no_checks().release_context();
    void* data = const_cast<void*>(twin.data());
    storage->set_data_ptr_noswap(c10::DataPtr(data, block, &delete_block, Device(kDeviceType, block->device)));
    storage->set_nbytes(size_bytes);
  }

  // Lists of other kinds may hold tensors too: optional ones, or lists of them.
  template <class Convert>
  static c10::IValue each(const c10::IValue& value, const Convert& convert) {
    if (!value.isList() || value.isIntList() || value.isDoubleList() || value.isBoolList()) return value;
    auto list = value.toList();
    c10::impl::GenericList out(list.elementType());
    for (size_t i = 0; i < list.size(); i++) out.push_back(convert(list.get(i)));
    return out;
  }

  const ForDevice for_device_;
  c10::SmallVector<Pair, 6> pairs_;
  c10::SmallVector<std::pair<c10::StorageImpl*, c10::Storage>, 2> adopted_;
  DeviceIndex device_ = -1;
  bool host_tensor_ = false;
};

} // namespace neuron
