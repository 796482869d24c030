// The torch device "xla": the device "neuron" for the dispatch key XLA, in a shared object of its own.
//
// It has the same cores, and charges the same HBM (`Host::meters`).
//
//   hooks.h   torch's generic entry points    attention.h   which attention kernel runs
#define NEURON_AS_XLA
#include "../exports.h"
#include "../registration.h"
#include "attention.h"
#include "hooks.h"

namespace neuron {

void register_everything() {
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  register_hooks();
  register_device([](torch::Library& aten) { aten.impl("scaled_dot_product_attention", &attention); });
  library(Kind::IMPL, "aten", Key::AutogradXLA).impl("scaled_dot_product_attention", &attention);
}

} // namespace neuron
