// Random numbers of the device: a counter-based state of 16 bytes, (seed, offset).
//
// DTensor's random operators read and write exactly such a state. Every random operator gets a CPU engine that is
// derived from it, so the CPU's kernels can draw, and the first operator after `manual_seed` draws what the CPU would.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Generator.h>
#include "host.h"

namespace neuron {

constexpr uint64_t kOffsetStep = 4; // as CUDA counts: one Philox call yields four numbers
constexpr int64_t kStateBytes = 16;

// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
inline uint64_t mix(uint64_t bits) {
  bits += 0x9e3779b97f4a7c15ULL;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  return bits ^ (bits >> 31);
}

struct NeuronGenerator final : c10::GeneratorImpl {
  explicit NeuronGenerator(DeviceIndex device)
      : GeneratorImpl(Device(kDeviceType, device), c10::DispatchKeySet(kDeviceKey)) {}

  static c10::DeviceType device_type() { return kDeviceType; }
  void set_current_seed(uint64_t seed) override { seed_ = seed, offset_ = 0; }
  uint64_t current_seed() const override { return seed_; }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom(true));
    return seed_;
  }

  // An engine for one operator.
  at::Generator engine() {
    std::lock_guard<std::mutex> lock(mutex_);
    uint64_t seed = offset_ == 0 ? seed_ : mix(seed_ ^ mix(offset_));
    offset_ += kOffsetStep;
    return at::detail::createCPUGenerator(seed);
  }

  void set_state(const c10::TensorImpl& state) override {
    bool fits = state.numel() == kStateBytes && state.is_cpu() && state.is_contiguous() &&
        state.dtype() == caffe2::TypeMeta::Make<uint8_t>();
    TORCH_CHECK(fits, "RNG state of ", kDeviceName, " must be a torch.ByteTensor of ", kStateBytes, " elements on the CPU");
    std::memcpy(&seed_, state.data(), 8);
    std::memcpy(&offset_, static_cast<const char*>(state.data()) + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::detail::empty_cpu({kStateBytes}, at::kByte);
    auto* bytes = static_cast<char*>(state.mutable_data_ptr());
    std::memcpy(bytes, &seed_, 8);
    std::memcpy(bytes + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }

 private:
  NeuronGenerator* clone_impl() const override {
    auto* copy = new NeuronGenerator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

inline at::Generator& default_generator(DeviceIndex device) {
  static auto* generators = [] {
    auto* made = new std::vector<at::Generator>;
    for (int index = 0; index < kMaxDevices; index++) made->push_back(at::make_generator<NeuronGenerator>(index));
    return made;
  }();
  return generators->at(or_current(device));
}

inline at::Generator engine_of(const at::Generator& generator) {
  return static_cast<NeuronGenerator*>(generator.unsafeGetGeneratorImpl())->engine();
}

} // namespace neuron
