// Attention of the device "xla": the CPU's flash kernel wherever the CPU would take it.
//
// torch asks a table of devices which kernel runs, and this device is not in it. So the operator has a kernel of its
// own here, above autograd, which derives the flash kernel.
#pragma once
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include "../attention.h"

namespace neuron {

inline Tensor attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const Maybe<Tensor>& mask, double dropout_p,
    bool is_causal, Maybe<double> scale, bool enable_gqa) {
  auto kernel = static_cast<at::SDPBackend>(
      fused_sdp_choice(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa));
  if (kernel != at::SDPBackend::flash_attention)
    return at::native::scaled_dot_product_attention(
        query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
  Maybe<Tensor> added = mask;
  if (mask && mask->defined() && mask->scalar_type() == at::kBool)
    added = at::zeros_like(*mask, query.options()).masked_fill_(mask->logical_not(), -INFINITY);
  auto [result, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, added, scale);
  return result;
}

} // namespace neuron
