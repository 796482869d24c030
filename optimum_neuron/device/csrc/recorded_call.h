// The recording of one call of an operator: for the device "neuron" nothing is recorded.
#pragma once
#include "traits.h"

#ifdef NEURON_AS_XLA
#include "xla/recorded_call.h"
#else
namespace neuron {

struct RecordedCall {
  RecordedCall(const c10::OperatorHandle&, const Traits&, c10::ArrayRef<c10::IValue>) {}
  void end(c10::ArrayRef<c10::IValue>) {}
};

inline bool downcasts() {
  return false;
}
inline void round_down(const c10::IValue&) {}

template <class Copy>
void record_copy(const c10::OperatorHandle&, at::Tensor&, const at::Tensor&, const Copy& copy) {
  copy();
}

} // namespace neuron
#endif
