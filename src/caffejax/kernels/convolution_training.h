// Chooses how a convolution and its gradients are computed in training: by Winograd's algorithm (winograd_training.h and
// winograd_weight_diff.h), by the weight gradients of pointwise_weight_diff.h and weight_diff.h, or by oneDNN.

#ifndef CAFFEJAX_KERNELS_CONVOLUTION_TRAINING_H_
#define CAFFEJAX_KERNELS_CONVOLUTION_TRAINING_H_

#include <algorithm>
#include <memory>
#include <optional>

#include "onednn_primitives.h"
#include "pointwise_weight_diff.h"
#include "weight_diff.h"
#include "winograd_training.h"
#include "winograd_weight_diff.h"

namespace caffejax {

// Returns the shape for the weight gradients that are not oneDNN's, or nothing if oneDNN has to compute the gradient.
inline std::optional<WeightDiffShape> ShapeOfWeightDiff(const Convolution& c) {
  const Window& w = c.window;
  Numbers x = c.x.dimensions(), weight = c.weight.dimensions(), y = c.y.dimensions();
  bool dilated = std::any_of(w.dilation.begin(), w.dilation.end(), [](int64_t d) { return d != 1; });
  if (x.size() != 4 || w.groups != 1 || dilated) return std::nullopt;
  return WeightDiffShape{x[0], x[1], x[2], x[3], y[1], y[2], y[3], {weight[2], weight[3]},
                         {w.stride[0], w.stride[1]}, {w.low[0], w.low[1]}};
}

// Computes the weight gradient by the fastest algorithm.
inline void RunWeightDiff(const Convolution& c) {
  static auto& cache = *new Cache<std::unique_ptr<WinogradWeightDiff>>(256);
  auto winograd = cache.Get(KeyOf(Kind::kWeightDiff, c, false), [&] { return WinogradWeightDiff::Make(c); });
  auto shape = ShapeOfWeightDiff(c);
  auto run = [&](const auto& algorithm) {
    algorithm.Run(c.x.typed_data(), c.y.typed_data(), c.weight.typed_data(), c.bias ? c.bias->typed_data() : nullptr);
  };
  if (*winograd) return run(**winograd);
  if (shape && PointwiseWeightDiff::IsWorth(*shape)) return run(PointwiseWeightDiff(*shape));
  if (shape && DirectWeightDiff::IsWorth(*shape)) return run(DirectWeightDiff(*shape));
  RunByOneDnn(Kind::kWeightDiff, c, false);
}

// Computes one of the convolution's three arrays from the other two.
inline void Run(Kind kind, const Convolution& c, bool relu = false) {
  if (kind == Kind::kWeightDiff) return RunWeightDiff(c);
  static auto& cache = *new Cache<std::unique_ptr<WinogradTraining>>(256);
  auto winograd = cache.Get(KeyOf(kind, c, relu), [&] { return WinogradTraining::Make(kind, c, relu); });
  if (!*winograd) return RunByOneDnn(kind, c, relu);
  bool backward = kind == Kind::kInputDiff;
  (*winograd)->Run((backward ? c.y : c.x).typed_data(), c.weight.typed_data(), c.bias ? c.bias->typed_data() : nullptr,
                   (backward ? c.x : c.y).typed_data());
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_CONVOLUTION_TRAINING_H_
