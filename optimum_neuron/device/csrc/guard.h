// Devices, streams and events as torch sees them.
//
// Work is finished when a call returns, so a stream is an id and an event is a point in time. Under Adaptive Eager
// Execution the queue of the device is what is waited for, by all of its streams.
#pragma once
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <chrono>
#include "memory.h"

namespace neuron {

struct Event {
  std::chrono::steady_clock::time_point time;
};

inline double elapsed_ms(const Event* start, const Event* end) {
  return std::chrono::duration<double, std::milli>(end->time - start->time).count();
}

inline thread_local std::array<c10::StreamId, kMaxDevices> current_streams{};

struct NeuronGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDeviceType; }
  Device getDevice() const override { return Device(kDeviceType, current_device()); }
  Device exchangeDevice(Device device) const override {
    Device before = getDevice();
    setDevice(device);
    return before;
  }
  void setDevice(Device device) const override {
    if (device.index() >= 0) set_current_device(device.index());
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) current_device_of_thread = device.index();
  }
  DeviceIndex deviceCount() const noexcept override { return device_count(); }
  c10::DeviceCapability getDeviceCapability(Device) const override { return c10::DeviceCapability(); }

  c10::Stream getStream(Device device) const override {
    return stream(current_streams[or_current(device.index())], device);
  }
  c10::Stream getDefaultStream(Device device) const override { return stream(0, device); }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device); }
  c10::Stream getNewStream(Device device, int = 0) const override {
    static std::atomic<c10::StreamId> next{1};
    return stream(next++, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    c10::Stream before = getStream(stream.device());
    current_streams[or_current(stream.device_index())] = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override { return is_idle(stream.device_index()); }
  void synchronizeStream(const c10::Stream& stream) const override { settle(stream.device_index(), kSynchronize); }
  void synchronizeDevice(const DeviceIndex device) const override { settle(device, kSynchronize); }

  void record(void** event, const c10::Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    settle(stream.device_index(), "event");
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->time = std::chrono::steady_clock::now();
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
    return elapsed_ms(static_cast<Event*>(start), static_cast<Event*>(end));
  }

 private:
  static constexpr const char* kSynchronize = "synchronize";
  static c10::Stream stream(c10::StreamId id, Device device) {
    return c10::Stream(c10::Stream::UNSAFE, Device(kDeviceType, or_current(device.index())), id);
  }
};

} // namespace neuron
