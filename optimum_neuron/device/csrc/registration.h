// Kernels and operators of the device, registered with torch's dispatcher.
#pragma once
#include "autocast.h"
#include "cells.h"
#include "grouped.h"
#include "guard.h"
#include "kernels.h"
#include "python_ops.h"

namespace neuron {

using Kind = torch::Library::Kind;
using Key = c10::DispatchKey;

// Registrations last until the process ends: tensors of the device may be freed that late.
inline torch::Library& library(Kind kind, const char* name, std::optional<Key> key) {
  return *new torch::Library(kind, name, key, __FILE__, __LINE__);
}

// torch warns where a kernel replaces another one, which is the point here.
struct Quiet final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// `register_more` adds kernels that this device alone has.
template <class Register>
void register_device(const Register& register_more) {
  c10::SetAllocator(kDeviceType, &allocator);
  allocate_for_device();
  static NeuronGuard neuron_guard;
  c10::impl::DeviceGuardImplRegistrar registrar(kDeviceType, &neuron_guard);

  library(Kind::IMPL, "_", kDeviceKey).fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  auto& aten = library(Kind::IMPL, "aten", kDeviceKey);
  register_kernels(aten);
  register_cells(aten);
  register_grouped(aten);
  register_more(aten);
  register_operators(aten);
  register_collectives(library(Kind::IMPL, "c10d", kDeviceKey));

  library(Kind::IMPL, "_", kAutocastKey).fallback(torch::CppFunction::makeFallthrough());
  register_autocast(library(Kind::IMPL, "aten", kAutocastKey));

  define_python_ops(library(Kind::DEF, kOperators, std::nullopt));
  implement_python_ops(library(Kind::IMPL, kOperators, Key::CompositeExplicitAutograd));
  for (Key key : {Key::Autograd, Key::ADInplaceOrView}) fall_through(library(Kind::IMPL, kOperators, key));
}

} // namespace neuron
