// The entry points of the device "xla" in torch's generic code: generators, and how many devices there are.
#pragma once
#include <ATen/detail/XLAHooksInterface.h>
#include "../generator.h"
#include "../memory.h"

namespace neuron {

struct XlaHooks final : at::XLAHooksInterface {
  explicit XlaHooks(at::XLAHooksArgs) {}
  XlaHooks() = default;
  void init() const override {}
  bool hasXLA() const override { return true; }
  std::string showConfig() const override { return "simulated NeuronCores"; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(DeviceIndex device) const override { return meters[or_current(device)].claimed; }
  DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(DeviceIndex device) const override { set_current_device(device); }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    DeviceIndex before = current_device();
    if (device >= 0) set_current_device(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  Device getDeviceFromPtr(void*) const override { return Device(kDeviceType, current_device()); }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return at::make_generator<NeuronGenerator>(or_current(device));
  }
};

// torch makes the hooks of this name, once, when somebody first asks for them.
inline void register_hooks() {
  at::XLAHooksRegistry()->Register(
      "torch_xla::detail::XLAHooks", [] { return std::unique_ptr<at::XLAHooksInterface>(new XlaHooks); });
}

} // namespace neuron
