// Which device of torch these sources become: "neuron", or "xla" where xla/xla.cpp includes them.
#pragma once
#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKey.h>

namespace neuron {

#ifdef NEURON_AS_XLA
constexpr bool kIsXla = true;
constexpr const char* kDeviceName = "xla";
constexpr const char* kOperators = "xla_sim"; // namespace of the operators that Python calls
constexpr c10::DeviceType kDeviceType = c10::DeviceType::XLA;
constexpr c10::DispatchKey kDeviceKey = c10::DispatchKey::XLA;
constexpr c10::DispatchKey kAutocastKey = c10::DispatchKey::AutocastXLA;
#else
constexpr bool kIsXla = false;
constexpr const char* kDeviceName = "neuron";
constexpr const char* kOperators = "neuron_sim";
constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
constexpr c10::DispatchKey kDeviceKey = c10::DispatchKey::PrivateUse1;
constexpr c10::DispatchKey kAutocastKey = c10::DispatchKey::AutocastPrivateUse1;
#endif

} // namespace neuron
