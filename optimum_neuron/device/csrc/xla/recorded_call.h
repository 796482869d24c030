// One call of an operator on the tape: its arguments before it runs, its results when it has ended well.
#pragma once
#include "../memory.h"
#include "../traits.h"
#include "downcast.h"
#include <array>

namespace neuron {

inline bool is_special(double number) {
  return number == 0 || number == 1 || number == -1;
}

// Reading a value ends the graph that computes it.
inline void record_read(const at::Tensor& tensor, const OperatorRecord& op) {
  if (!recording.load(std::memory_order_relaxed) || !tensor.defined() || tensor.device().type() != kDeviceType) return;
  StorageRecord* record = record_of(tensor.storage());
  if (record == nullptr || !recorder().is_pending(record)) return;
  if (listeners.read(op.number) < 0) refuse();
}

// The words of the call that a thread makes; kept, so that no call allocates.
struct Buffer {
  std::vector<int64_t> words, written, kept;
  std::vector<int> slots, unhashed; // places of words
  uint32_t num_calls = 0;
};

inline thread_local Buffer buffer_of_thread;

class RecordedCall {
 public:
  RecordedCall(const c10::OperatorHandle& op, const Traits& traits, c10::ArrayRef<c10::IValue> arguments)
      : traits_(traits), buffer_(buffer_of_thread), active_(recording.load(std::memory_order_relaxed)) {
    if (!active_) return;
    if (reads(arguments)) {
      active_ = false, began_ns_ = clock_ns();
      recorder().operator_at(traits.record.number).reads.fetch_add(1, std::memory_order_relaxed);
      for (const c10::IValue& value : arguments) read(value);
      return;
    }
    buffer_.written.clear(), buffer_.slots.clear(), buffer_.unhashed.clear();
    KnownOperator& known = recorder().operator_at(traits.record.number);
    known.calls.fetch_add(1, std::memory_order_relaxed);
    hash_ = known.hash;
    recorder().num_traced.fetch_add(1, std::memory_order_relaxed);
    if (buffer_.num_calls++ % kTimedEach == 0) began_ns_ = clock_ns();
    word(kOperator), unhashed(traits.record.number), unhashed(0);
    for (size_t i = 0; i < arguments.size(); i++) value(arguments[i], traits.record.data[i]);
    for (int position : traits.written) {
      const c10::IValue& argument = arguments[position];
      if (argument.isTensor()) writes(argument.toTensor());
      if (argument.isTensorList())
        for (const at::Tensor& tensor : argument.toTensorList()) writes(tensor);
    }
  }
  RecordedCall(const RecordedCall&) = delete;

  void end(c10::ArrayRef<c10::IValue> results) {
    if (!active_) {
      if (began_ns_ != 0) // it has read: what it gives comes from the host
        for (const c10::IValue& result : results) arrives(result);
      return;
    }
    bool works = false;
    word(kResults), word(static_cast<int64_t>(results.size()));
    for (const c10::IValue& result : results) works |= result_value(result);
    if (!works && buffer_.written.empty()) return; // on no device
    if (C10_UNLIKELY(began_ns_ != 0)) recorder().traced_ns += kTimedEach * (clock_ns() - began_ns_);
    uint64_t kind = hash_of_words(), hash = kind;
    for (int place : buffer_.slots) hash = mixed(hash, buffer_.words[place]);
    if (traits_.views) hash = 0;
    int64_t count = recorder().append(buffer_.words.data(), num_words_, buffer_.written, hash, kind);
    if (C10_UNLIKELY(count < 0)) {
      recorder().know(kind, listeners.placed(traits_.record.number));
      count = recorder().append(buffer_.words.data(), num_words_, buffer_.written, hash, kind);
    }
    if (C10_UNLIKELY(count >= kLongGraph && (count & (count - 1)) == 0) && listeners.grew(count) < 0) refuse();
  }

 private:
  bool reads(c10::ArrayRef<c10::IValue> arguments) {
    if (!traits_.record.indexes) return traits_.record.reads;
    bool masked = false;
    auto look = [&](const at::Tensor& tensor) {
      masked |= tensor.defined() && (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
    };
    const c10::IValue& indices = arguments[1];
    if (indices.isList())
      for (const c10::IValue& index : indices.toListRef())
        if (index.isTensor()) look(index.toTensor());
    return masked;
  }

  void read(const c10::IValue& value) {
    if (value.isTensor()) record_read(value.toTensor(), traits_.record);
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorList()) record_read(tensor, traits_.record);
  }

  void arrives(const c10::IValue& value) {
    if (value.isTensor()) arrives(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorList()) arrives(tensor);
  }
  void arrives(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != kDeviceType || !tensor.has_storage()) return;
    record_transfer(record_of(tensor.storage()), tensor, began_ns_);
  }

  int64_t* room(size_t count) {
    size_t needed = num_words_ + count;
    if (C10_UNLIKELY(needed > buffer_.words.size())) buffer_.words.resize(2 * needed);
    int64_t* place = buffer_.words.data() + num_words_;
    num_words_ = static_cast<int>(needed);
    return place;
  }
  void word(int64_t word) { *room(1) = word; }
  void unhashed(int64_t word) {
    buffer_.unhashed.push_back(num_words_);
    *room(1) = word;
  }

  // What decides a compile, but for the slots.
  uint64_t hash_of_words() {
    for (int place : buffer_.slots) buffer_.unhashed.push_back(place);
    buffer_.kept.clear();
    for (int place : buffer_.unhashed) buffer_.kept.push_back(std::exchange(buffer_.words[place], 0));
    uint64_t hash = hash_;
    const int64_t* words = buffer_.words.data();
    for (int i = 0; i < num_words_; i++) hash = mixed(hash, static_cast<uint64_t>(words[i]));
    for (size_t i = 0; i < buffer_.kept.size(); i++) buffer_.words[buffer_.unhashed[i]] = buffer_.kept[i];
    return hash;
  }

  void geometry(const at::Tensor& tensor) {
    auto dimensions = static_cast<size_t>(tensor.dim());
    int64_t* words = room(1 + 2 * dimensions);
    *words++ = static_cast<int64_t>(dimensions);
    std::memcpy(words, tensor.sizes().data(), dimensions * sizeof(int64_t));
    std::memcpy(words + dimensions, tensor.strides().data(), dimensions * sizeof(int64_t));
  }

  void tensor(const at::Tensor& tensor, bool computed) {
    if (!tensor.defined()) return word(kNone);
    if (tensor.device().type() != kDeviceType || !tensor.has_storage()) return host_tensor(tensor);
    const c10::Storage& storage = tensor.storage();
    int64_t slot = recorder().slot_of(record_of(storage), static_cast<int64_t>(storage.nbytes()), computed);
    buffer_.slots.push_back(num_words_ + 1);
    int64_t* words = room(4);
    words[0] = kTensor, words[1] = slot, words[2] = static_cast<int64_t>(tensor.scalar_type());
    words[3] = tensor.storage_offset();
    geometry(tensor);
  }

  void host_tensor(const at::Tensor& tensor) {
    // PyTorch/XLA makes a tensor of it for the length of the call.
    num_created.fetch_add(1, std::memory_order_relaxed), num_destroyed.fetch_add(1, std::memory_order_relaxed);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.is_cpu()) {
      if (tensor.scalar_type() == at::kDouble) return real(*tensor.const_data_ptr<double>(), true);
      if (tensor.scalar_type() == at::kLong) return integer(*tensor.const_data_ptr<int64_t>(), true);
      if (tensor.scalar_type() == at::kBool) return boolean(*tensor.const_data_ptr<bool>());
    }
    word(kHostTensor);
    word(static_cast<int64_t>(tensor.scalar_type()));
    geometry(tensor);
  }

  void data(Word tag, int64_t bits) {
    word(tag);
    unhashed(bits);
  }
  void real(double number, bool is_data) {
    int64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    if (is_data && !is_special(number)) return data(kFloatData, bits);
    word(kFloat), word(bits);
  }
  void integer(int64_t number, bool is_data) {
    if (is_data && !is_special(static_cast<double>(number))) return data(kIntegerData, number);
    word(kInteger), word(number);
  }
  void boolean(bool value) { word(kBool), word(value); }

  void value(const c10::IValue& value, bool is_data) {
    if (value.isTensor()) return tensor(value.toTensor(), false);
    if (value.isNone()) return word(kNone);
    if (value.isInt()) return integer(value.toInt(), is_data);
    if (value.isBool()) return boolean(value.toBool());
    if (value.isDouble()) return real(value.toDouble(), is_data);
    if (value.isString()) {
      word(kString);
      unhashed(recorder().string(value.toStringRef()));
      return word(static_cast<int64_t>(hash_of(value.toStringRef())));
    }
    if (value.isIntList()) {
      const auto& list = value.toIntList();
      word(kList), word(static_cast<int64_t>(list.size()));
      for (size_t i = 0; i < list.size(); i++) integer(list.get(i), is_data);
    } else if (value.isTensorList()) {
      const auto& list = value.toTensorList();
      word(kList), word(static_cast<int64_t>(list.size()));
      for (const at::Tensor& item : list) tensor(item, false);
    } else if (value.isList()) {
      word(kList), word(static_cast<int64_t>(value.toList().size()));
      for (const c10::IValue& item : value.toList()) this->value(item, is_data);
    } else {
      word(kOpaque); // a device, a generator, a process group
    }
  }

  void writes(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != kDeviceType) return;
    const c10::Storage& storage = tensor.storage();
    buffer_.written.push_back(recorder().slot_of(record_of(storage), static_cast<int64_t>(storage.nbytes()), false));
  }

  // Whether a result is a tensor of the device.
  bool result_value(const c10::IValue& value) {
    if (value.isTensor()) {
      tensor(value.toTensor(), true);
      return value.toTensor().defined() && value.toTensor().device().type() == kDeviceType;
    }
    if (!value.isTensorList()) {
      word(kNone);
      return false;
    }
    const auto& list = value.toTensorList();
    word(kList), word(static_cast<int64_t>(list.size()));
    bool any = false;
    for (const at::Tensor& item : list) {
      tensor(item, true);
      any |= item.defined() && item.device().type() == kDeviceType;
    }
    return any;
  }

  const Traits& traits_;
  Buffer& buffer_;
  bool active_;
  int num_words_ = 0;
  uint64_t hash_ = 0;
  int64_t began_ns_ = 0;
};

// Copies on the device are operators; to the host they read, and from the host they make inputs.
template <class Copy>
void record_copy(const c10::OperatorHandle& op, at::Tensor& self, const at::Tensor& source, const Copy& copy) {
  static const Traits traits = traits_of(op);
  bool from_device = source.device().type() == kDeviceType, to_device = self.device().type() == kDeviceType;
  auto num_bytes = static_cast<int64_t>(self.numel() * self.element_size());
  int64_t began_ns = clock_ns();
  if (from_device && !to_device) {
    record_read(source, traits.record);
    copy();
    return recorder().add_transfer({0, num_bytes, clock_ns() - began_ns});
  }
  if (!from_device && self.storage().nbytes() == static_cast<size_t>(num_bytes)) {
    copy();
    return record_transfer(record_of(self.storage()), self, began_ns);
  }
  std::array<c10::IValue, 3> arguments{self, source, false};
  RecordedCall recorded(op, traits, arguments);
  copy();
  recorded.end({});
}

} // namespace neuron
