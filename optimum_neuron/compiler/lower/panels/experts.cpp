// Products of rows with the weights of their experts, in panels (`../headers/panels.h`). The threads are torch's.
//
// Rows of the same expert that follow each other share one pass over its weight. A thread has some panels of every
// expert, so all threads read as much however the rows are divided among experts.
//
// Inductor's code calls `aoti_torch_cpu_panel_experts`.
#include "../headers/panels.h"

namespace neuron_host {

struct Experts {
  Product all; // rows, and the weight of the first expert
  const int64_t* expert = nullptr; // of each row
  int64_t num_experts = 0;
};

void run_experts(int64_t begin, int64_t end, void* context) {
  const Experts& e = *static_cast<const Experts*>(context);
  for (int64_t first = 0, last; first < e.all.num_rows; first = last) {
    const int64_t expert = e.expert[first];
    for (last = first + 1; last < e.all.num_rows && e.expert[last] == expert;) ++last;
    Product p = e.all;
    p.x += first * p.num_inputs, p.result += first * p.num_outputs, p.num_rows = last - first;
    if (expert >= 0 && expert < e.num_experts) {
      p.weight += expert * p.num_outputs * p.num_inputs;
      run_panels(begin, end, &p);
      continue;
    }
    const int64_t from = begin * kPanel, to = std::min(end * kPanel, p.num_outputs);
    for (int64_t row = 0; row < p.num_rows; row++)
      std::fill(p.result + row * p.num_outputs + from, p.result + row * p.num_outputs + to, 0.0f);
  }
}

} // namespace neuron_host

// All are contiguous, and the number of inputs is even; numbers that are no expert have zeros as their result.
extern "C" __attribute__((visibility("default"))) AOTITorchError aoti_torch_cpu_panel_experts(
    AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle expert, AtenTensorHandle* result) {
  using namespace neuron_host;
  return guarded(result, [=] {
    const Rows rows(x);
    const int64_t* sizes = sizes_of(weight);
    if (sizes_of(expert)[0] != rows.num_rows) throw std::invalid_argument("another number of rows");
    *result = rows.allocate(sizes[1]);
    Product p{data_of<const uint16_t>(x), data_of<const uint16_t>(weight), data_of<float>(*result)};
    p.num_rows = rows.num_rows, p.num_inputs = rows.num_columns, p.num_outputs = sizes[1];
    require(p, sizes[2]);
    Experts e{p, data_of<const int64_t>(expert), sizes[0]};
    check(torch_parallel_for(0, divide_up(p.num_outputs, kPanel), grain_of(p, p.num_rows), run_experts, &e));
  });
}
