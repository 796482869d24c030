// Products with a bfloat16 weight in panels (`../headers/panels.h`). The threads are torch's.
//
// Inductor's code calls `aoti_torch_cpu_panel_linear`.
#include "../headers/panels.h"

// Both are contiguous, and the number of inputs is even.
extern "C" __attribute__((visibility("default"))) AOTITorchError aoti_torch_cpu_panel_linear(
    AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle* result) {
  using namespace neuron_host;
  return guarded(result, [=] {
    const Rows rows(x);
    const int64_t* sizes = sizes_of(weight);
    *result = rows.allocate(sizes[0]);
    Product p{data_of<const uint16_t>(x), data_of<const uint16_t>(weight), data_of<float>(*result)};
    p.num_rows = rows.num_rows, p.num_inputs = rows.num_columns, p.num_outputs = sizes[0];
    require(p, sizes[1]);
    check(torch_parallel_for(0, divide_up(p.num_outputs, kPanel), grain_of(p, divide_up(p.num_rows, kRows)), run_panels, &p));
  });
}
