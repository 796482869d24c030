// The cells of nn.LSTM and nn.GRU, which torch fuses for accelerators and which the CPU has no kernels for.
//
// They are composed of other operators. The layout of the workspace is ours: torch only hands it to the backward pass.
#pragma once
#include "kernels.h"

namespace neuron {

inline std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cell, const Maybe<Tensor>& input_bias,
    const Maybe<Tensor>& hidden_bias) {
  Tensor gates = input_gates + hidden_gates;
  if (input_bias && input_bias->defined()) gates = gates + *input_bias + *hidden_bias;
  auto parts = gates.chunk(4, 1);
  Tensor in = parts[0].sigmoid(), forget = parts[1].sigmoid(), candidate = parts[2].tanh(), out = parts[3].sigmoid();
  Tensor new_cell = forget * cell + in * candidate;
  return {out * new_cell.tanh(), new_cell, at::cat({in, forget, candidate, out}, 1)};
}

inline std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const Maybe<Tensor>& grad_hidden, const Maybe<Tensor>& grad_cell, const Tensor& cell, const Tensor& new_cell,
    const Tensor& workspace, bool has_bias) {
  auto parts = workspace.chunk(4, 1);
  const Tensor &in = parts[0], &forget = parts[1], &candidate = parts[2], &out = parts[3];
  bool given = grad_hidden && grad_hidden->defined();
  Tensor from_hidden = given ? *grad_hidden : at::zeros_like(new_cell);
  Tensor squashed = new_cell.tanh();
  Tensor to_cell = from_hidden * out * (1 - squashed * squashed);
  if (grad_cell && grad_cell->defined()) to_cell = to_cell + *grad_cell;
  Tensor gates = at::cat(
      {to_cell * candidate * in * (1 - in), to_cell * cell * forget * (1 - forget),
       to_cell * in * (1 - candidate * candidate), from_hidden * squashed * out * (1 - out)},
      1);
  return {gates, to_cell * forget, has_bias ? gates.sum(0) : Tensor()};
}

inline std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hidden, const Maybe<Tensor>& input_bias,
    const Maybe<Tensor>& hidden_bias) {
  bool biased = input_bias && input_bias->defined();
  auto from_input = (biased ? input_gates + *input_bias : input_gates).chunk(3, 1);
  auto from_hidden = (biased ? hidden_gates + *hidden_bias : hidden_gates).chunk(3, 1);
  Tensor reset = (from_input[0] + from_hidden[0]).sigmoid(), update = (from_input[1] + from_hidden[1]).sigmoid();
  Tensor candidate = (from_input[2] + reset * from_hidden[2]).tanh();
  return {candidate + update * (hidden - candidate), at::cat({reset, update, candidate, hidden, from_hidden[2]}, 1)};
}

inline std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad_hidden, const Tensor& workspace, bool has_bias) {
  auto parts = workspace.chunk(5, 1);
  const Tensor &reset = parts[0], &update = parts[1], &candidate = parts[2], &hidden = parts[3], &gate = parts[4];
  Tensor to_update = grad_hidden * (hidden - candidate) * update * (1 - update);
  Tensor to_candidate = grad_hidden * (1 - update) * (1 - candidate * candidate);
  Tensor to_reset = to_candidate * gate * reset * (1 - reset);
  Tensor input_gates = at::cat({to_reset, to_update, to_candidate}, 1);
  Tensor hidden_gates = at::cat({to_reset, to_update, to_candidate * reset}, 1);
  Tensor input_bias = has_bias ? input_gates.sum(0) : Tensor(), hidden_bias = has_bias ? hidden_gates.sum(0) : Tensor();
  return {input_gates, hidden_gates, grad_hidden * update, input_bias, hidden_bias};
}

inline void register_cells(torch::Library& aten) {
  aten.impl("_thnn_fused_lstm_cell", &lstm_cell);
  aten.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  aten.impl("_thnn_fused_gru_cell", &gru_cell);
  aten.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

} // namespace neuron
