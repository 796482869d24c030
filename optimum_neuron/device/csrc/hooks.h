// The device's entry points in torch's generic code: `torch.accelerator`, generators, pinning, the profiler.
#pragma once
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <torch/csrc/profiler/stubs/base.h>
#include "generator.h"
#include "guard.h"
#include "pinned.h"

namespace neuron {

struct NeuronHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(DeviceIndex device) const override { return meters[or_current(device)].claimed; }
  void init() const override {}
  DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(DeviceIndex device) const override { set_current_device(device); }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    DeviceIndex before = current_device();
    if (device >= 0) set_current_device(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void* pointer) const override { return pinned_ranges().contains(pointer); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  Device getDeviceFromPtr(void*) const override { return Device(kDeviceType, current_device()); }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return at::make_generator<NeuronGenerator>(or_current(device));
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size_bytes) const override {
    resize_storage(storage, size_bytes);
  }
};

// Device time in `torch.autograd.profiler.profile(use_device="neuron")`: the host's clock around each operator.
struct NeuronProfiler final : torch::profiler::impl::ProfilerStubs {
  using Time = std::chrono::steady_clock::time_point;
  using Stub = torch::profiler::impl::ProfilerVoidEventStub;

  void record(DeviceIndex* device, Stub* event, int64_t* cpu_ns) const override {
    settle(current_device(), "profiler");
    if (device != nullptr) *device = current_device();
    *event = std::make_shared<Time>(std::chrono::steady_clock::now());
    auto now = std::chrono::system_clock::now().time_since_epoch();
    if (cpu_ns != nullptr) *cpu_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }
  float elapsed(const Stub* start, const Stub* end) const override { // microseconds
    auto time = *static_cast<Time*>(end->get()) - *static_cast<Time*>(start->get());
    return std::chrono::duration<float, std::micro>(time).count();
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> visit) const override {
    for (int device = 0; device < device_count(); device++) visit(device);
  }
  void synchronize() const override { settle_all("profiler"); }
};

} // namespace neuron
