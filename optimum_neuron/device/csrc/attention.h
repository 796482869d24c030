// Which attention kernel runs: the CPU's flash kernel wherever the CPU would take it, so that results are the same
// bits.
#pragma once
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include "kernels.h"

namespace neuron {

// Only metadata is read: under torch.compile the tensors are fake. The conditions are those of the CPU's choice.
inline int64_t fused_sdp_choice(
    const Tensor& query, const Tensor& key, const Tensor& value, const Maybe<Tensor>& mask, double dropout_p, bool,
    Maybe<double>, bool enable_gqa) {
  auto& context = at::globalContext();
  auto fits = [&](const Tensor& tensor) {
    return tensor.dim() == 4 && tensor.layout() == c10::kStrided && tensor.sym_stride(-1) == 1 &&
        tensor.sym_numel() > 0 && tensor.sym_size(-1) == query.sym_size(-1) &&
        (enable_gqa || tensor.sym_size(1) == query.sym_size(1));
  };
  bool masked_grad = mask && mask->defined() && mask->requires_grad();
  if (context.userEnabledFlashSDP() && dropout_p == 0.0 && !masked_grad && query.dim() == 4 && fits(query) &&
      fits(key) && fits(value) && at::isFloatingType(query.scalar_type()))
    return static_cast<int64_t>(at::SDPBackend::flash_attention);
  TORCH_CHECK(context.userEnabledMathSDP(), "No viable backend for scaled_dot_product_attention was found.");
  return static_cast<int64_t>(at::SDPBackend::math);
}

} // namespace neuron
