// The torch device "neuron": host memory behind the dispatch key PrivateUse1, computed by the CPU's kernels.
//
// One translation unit, compiled once for each torch on the user's machine (device/build.py). It includes no Python
// header and is loaded with ctypes; Python reaches it through the C functions below and the operators of
// `python_ops.h`.
//
// The same sources make the device "xla" in a shared object of its own, for its dispatch key (xla/xla.cpp).
//
//   device_type.h which of the two   registration.h   kernels, for the dispatcher   exports.h   the C functions
//   host.h        what is asked of Python: cores and limits    pinned.h      pinned host memory
//   queue.h, deferral.h   Adaptive Eager Execution: what waits to run, and which operators may
//   pages.h       large blocks of the host, for reuse          generator.h   random numbers
//   memory.h      storages, their CPU twins, HBM counted       guard.h       devices, streams, events
//   aliases.h     device tensors as CPU tensors and back       hooks.h       torch's generic entry points
//   fallback.h    the one kernel for nearly every operator     autocast.h    torch.autocast
//   kernels.h     operators with a kernel of their own         cells.h       cells of LSTM and GRU
//   attention.h   which attention kernel runs                  grouped.h     grouped products of FP8
//   census.h      eager operators, counted while somebody watches
//   rounding.h, emulation.h   the emulated numerics            python_ops.h  operators that Python calls
//   products.h    products of float32 by oneDNN                lanes.h       lanes of cores in torch.profiler
#include "attention.h"
#include "exports.h"
#include "hooks.h"
#include "lanes.h"
#include "registration.h"

namespace neuron {

void register_everything() {
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  at::RegisterPrivateUse1HooksInterface(new NeuronHooks);
  at::setHostAllocator(kDeviceType, &pinned_allocator);
  torch::profiler::impl::registerPrivateUse1Methods(new NeuronProfiler);
  register_lanes();

  register_device([](torch::Library& aten) { aten.impl("_fused_sdp_choice", &fused_sdp_choice); });
  register_grouped(library(Kind::IMPL, "aten", Key::CPU)); // for compiled graphs, whose tensors are the host's
  // Resolving these bits copies through `_copy_from`, which would resolve them again without end.
  for (Key key : {Key::Conjugate, Key::Negative})
    library(Kind::IMPL, "aten", key).impl("_copy_from", torch::CppFunction::makeFallthrough());
}

} // namespace neuron

namespace at::native {
// The macro builds a static object, which only stores a pointer.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &neuron::fused_sdp_choice);
} // namespace at::native

#pragma GCC visibility push(default)
extern "C" {

// One event of the profile that is being stopped in this thread; times in nanoseconds since the epoch.
void neuron_add_lane_event(int is_call, const char* name, int core, int64_t begin_ns, int64_t end_ns) {
  neuron::add_lane_event(is_call != 0, name, core, begin_ns, end_ns);
}

}
#pragma GCC visibility pop
