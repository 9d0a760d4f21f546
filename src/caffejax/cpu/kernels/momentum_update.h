// The update of a parameter by SGD with momentum, in place and in one pass over memory. XLA needs two passes, and
// compiles two kernels for each shape: half of all kernels of GoogLeNet's training step.

#ifndef CAFFEJAX_KERNELS_MOMENTUM_UPDATE_H_
#define CAFFEJAX_KERNELS_MOMENTUM_UPDATE_H_

#include "onednn_shapes.h"
#include "threads.h"

namespace caffejax {

// Reads the gradient, the weight and the slot, and writes the new weight and the new slot, which may be the same memory
// as the old ones.
struct MomentumUpdate {
  Array gradient, weight, slot, new_weight, new_slot;
  float rate, decay, momentum;
};

inline void Check(const MomentumUpdate& u) {
  for (const Array* array : {&u.weight, &u.slot, &u.new_weight, &u.new_slot}) {
    Require(array->dimensions() == u.gradient.dimensions(), "gradient ", u.gradient, " and an array of shape ", *array,
            " differ");
  }
}

CAFFEJAX_FOR_EACH_PROCESSOR
static void UpdateCells(const float* g, const float* w, const float* h, float* new_w, float* new_h, int64_t n,
                        float rate, float decay, float momentum) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    float step = rate * (g[i] + decay * w[i]) + momentum * h[i];
    new_w[i] = w[i] - step;
    new_h[i] = step;
  }
}

inline void Run(const MomentumUpdate& u) {
  constexpr int64_t kFewCells = 1 << 15;  // updating these takes as long as waking a thread
  int64_t cells = u.gradient.element_count();
  InParallelRanges(cells <= kFewCells ? 1 : MaxThreads(), cells, [&](int64_t start, int64_t end) {
    UpdateCells(u.gradient.typed_data() + start, u.weight.typed_data() + start, u.slot.typed_data() + start,
                u.new_weight.typed_data() + start, u.new_slot.typed_data() + start, end - start, u.rate, u.decay,
                u.momentum);
  });
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_MOMENTUM_UPDATE_H_
