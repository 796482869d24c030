// Hooks of the recorder of the device "xla" (xla/recorder.h); for the device "neuron" they are nothing.
#pragma once
#include "device_type.h"

#ifdef NEURON_AS_XLA
#include "xla/recorder.h"
#else
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace neuron {

struct StorageRecord {};
struct OperatorRecord {
  explicit OperatorRecord(const c10::OperatorHandle&) {}
};

inline void record_death(const StorageRecord&) noexcept {}
inline void record_fork(bool) {}
inline void record_moved(StorageRecord*, StorageRecord*) {}

} // namespace neuron
#endif
