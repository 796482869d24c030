// Operators that Python calls as `torch.ops.neuron_sim.*`: how objects cross the border without Python headers here.
#pragma once
#include <ATen/ops/alias_native.h>
#include "fallback.h"

namespace neuron {

// The host's view of device memory, for compiled graphs; no copy.
inline at::Tensor alias_cpu(const at::Tensor& tensor) {
  settle_all("compiled graph");
  at::AutoDispatchBelowADInplaceOrView guard;
  Aliases aliases;
  at::Tensor alias = aliases.to_cpu(tensor);
  return alias.is_same(tensor) ? at::native::alias(tensor) : alias;
}

inline std::vector<at::Tensor> alias_cpu_list(at::TensorList tensors) {
  settle_all("compiled graph"); // constants of a graph are not among the tensors
  std::vector<at::Tensor> out;
  for (const at::Tensor& tensor : tensors) out.push_back(alias_cpu(tensor));
  return out;
}

// Host results as device tensors; those that are views of one of `inputs` keep that storage.
inline std::vector<at::Tensor> alias_neuron_list(at::TensorList results, at::TensorList inputs, int64_t device) {
  at::AutoDispatchBelowADInplaceOrView guard;
  Aliases aliases;
  for (const at::Tensor& input : inputs) aliases.to_cpu(input);
  aliases.set_device(static_cast<DeviceIndex>(device));
  std::vector<at::Tensor> out;
  for (const at::Tensor& result : results) out.push_back(aliases.to_device(result));
  return out;
}

inline at::Tensor alias_neuron(const at::Tensor& tensor, int64_t device) {
  return alias_neuron_list({tensor}, {}, device)[0];
}

inline at::Generator default_generator_of(int64_t device) {
  return default_generator(static_cast<DeviceIndex>(device));
}

// A CPU engine for one random operator, or for one compiled graph.
inline at::Generator engine_for(int64_t device) {
  return engine_of(default_generator(static_cast<DeviceIndex>(device)));
}

inline void define_python_ops(torch::Library& library) {
  // The annotations of aliasing are what keeps AOTAutograd from functionalizing writes away.
  library.def("alias_cpu(Tensor(a) tensor) -> Tensor(a)");
  library.def("alias_cpu_list(Tensor(a)[] tensors) -> Tensor(a)[]");
  library.def("alias_neuron(Tensor(a) tensor, int device) -> Tensor(a)");
  library.def("alias_neuron_list(Tensor(a)[] results, Tensor(a)[] inputs, int device) -> Tensor(a)[]");
  library.def("default_generator(int device) -> Generator?", &default_generator_of);
  library.def("engine(int device) -> Generator?", &engine_for);
}

inline void implement_python_ops(torch::Library& library) {
  library.impl("alias_cpu", &alias_cpu);
  library.impl("alias_cpu_list", &alias_cpu_list);
  library.impl("alias_neuron", &alias_neuron);
  library.impl("alias_neuron_list", &alias_neuron_list);
}

inline void fall_through(torch::Library& library) {
  for (const char* name : {"alias_cpu", "alias_cpu_list", "alias_neuron", "alias_neuron_list"})
    library.impl(name, torch::CppFunction::makeFallthrough());
}

} // namespace neuron
