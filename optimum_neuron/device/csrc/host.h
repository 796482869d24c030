// What the C++ side asks of Python: how many cores there are, whose they are, how much HBM is left.
//
// Python knows the simulated instance and the environment; C++ knows the tensors. Python fills `Host` with callbacks
// (device/library.py). They run seldom: at the first use of a core and when memory runs short. An exception cannot
// cross the border, so a callback that refuses returns -1 and leaves its reason with `neuron_refuse`.
#pragma once
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <pthread.h>
#include <atomic>
#include <string>
#include "device_type.h"

namespace neuron {

using c10::Device;
using c10::DeviceIndex;

constexpr int kMaxDevices = 127; // c10::DeviceIndex is a signed byte

struct Meter;

struct Host {
  int64_t (*device_count)(); // devices of this process
  int64_t (*default_device)(); // the one a thread starts with; -1 where refused
  int64_t (*claim)(int64_t device); // make the core this process's; HBM bytes for tensors, or -1
  int64_t (*limit)(int64_t device); // HBM bytes for tensors as of now
  int64_t (*out_of_memory)(int64_t device, int64_t size_bytes); // leave the table of the core as the reason
  int64_t (*start_lanes)(); // record calls for a profile; the number of the recording, or -1
  int64_t (*stop_lanes)(int64_t recording); // end it, and hand over its events with `neuron_add_lane_event`
  // Python's own functions: PyGILState_Check, PyEval_SaveThread and PyEval_RestoreThread.
  int (*holds_interpreter)();
  void* (*leave_interpreter)();
  void (*enter_interpreter)(void* thread);
  Meter* meters; // of the cores, counted for another device of the same cores already; null for none
};

inline Host host{};
inline thread_local std::string refusal;

// Reasons come from Python whole, so they get no C++ backtrace or file name.
[[noreturn]] inline void refuse() {
  TORCH_CHECK(false, refusal);
}

inline DeviceIndex device_count() noexcept {
  static std::atomic<int64_t> known{-1};
  int64_t count = known.load(std::memory_order_relaxed);
  if (count < 0) {
    count = host.device_count(); // 0 where the environment names no usable core; claiming one then says why
    if (count > 0) known = count;
  }
  return static_cast<DeviceIndex>(count);
}

inline thread_local DeviceIndex current_device_of_thread = -1;

inline DeviceIndex current_device() {
  if (C10_UNLIKELY(current_device_of_thread < 0)) {
    int64_t device = host.default_device();
    if (device < 0) refuse();
    current_device_of_thread = static_cast<DeviceIndex>(device);
  }
  return current_device_of_thread;
}

inline DeviceIndex or_current(DeviceIndex device) {
  return device < 0 ? current_device() : device;
}

inline void set_current_device(DeviceIndex device) {
  if (device == current_device_of_thread) return;
  // Claiming a device that does not exist is what says so.
  if (device < 0 || device >= device_count()) {
    host.claim(device);
    refuse();
  }
  current_device_of_thread = device;
}

// Lets other threads of Python run for a scope: it waits for a thread that may have to call a kernel in Python.
class OutsideInterpreter {
 public:
  OutsideInterpreter() : thread_(host.holds_interpreter() ? host.leave_interpreter() : nullptr) {}
  ~OutsideInterpreter() {
    if (thread_ != nullptr) host.enter_interpreter(thread_);
  }
  OutsideInterpreter(const OutsideInterpreter&) = delete;

 private:
  void* thread_;
};

// Sets the device for a scope; an index below 0 means the current one.
class DeviceScope {
 public:
  explicit DeviceScope(DeviceIndex device) : before_(current_device_of_thread) {
    if (device >= 0) set_current_device(device);
  }
  ~DeviceScope() { current_device_of_thread = before_; }
  DeviceScope(const DeviceScope&) = delete;

 private:
  DeviceIndex before_;
};

} // namespace neuron
