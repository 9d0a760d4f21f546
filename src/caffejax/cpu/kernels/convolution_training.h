// Chooses how a convolution and its gradients are computed in training: by Winograd's algorithm (winograd_training.h
// and winograd_weight_diff.h), by pointwise_convolution.h and narrow_convolution.h, by the gradients of
// depthwise_diffs.h, pointwise_weight_diff.h and weight_diff.h, or by oneDNN.

#ifndef CAFFEJAX_KERNELS_CONVOLUTION_TRAINING_H_
#define CAFFEJAX_KERNELS_CONVOLUTION_TRAINING_H_

#include <algorithm>
#include <memory>
#include <optional>

#include "depthwise_diffs.h"
#include "narrow_convolution.h"
#include "onednn_primitives.h"
#include "pointwise_convolution.h"
#include "pointwise_weight_diff.h"
#include "weight_diff.h"
#include "winograd_training.h"
#include "winograd_weight_diff.h"

namespace caffejax {

// Returns the sizes of a convolution over planes without dilation.
inline std::optional<PlaneShape> ShapeOfPlanes(const Convolution& c) {
  const Window& w = c.window;
  Numbers x = c.x.dimensions(), weight = c.weight.dimensions(), y = c.y.dimensions();
  bool dilated = std::any_of(w.dilation.begin(), w.dilation.end(), [](int64_t d) { return d != 1; });
  if (x.size() != 4 || dilated) return std::nullopt;
  return PlaneShape{x[0],
                    x[1],
                    x[2],
                    x[3],
                    y[1],
                    y[2],
                    y[3],
                    {weight[2], weight[3]},
                    {w.stride[0], w.stride[1]},
                    {w.low[0], w.low[1]}};
}

// Returns the gradients of a depthwise convolution, or nothing if the convolution is another or oneDNN is faster.
inline std::optional<DepthwiseDiffs> DepthwiseDiffsOf(const Convolution& c) {
  auto shape = ShapeOfPlanes(c);
  if (!shape || c.window.groups != shape->inputs || !DepthwiseDiffs::IsWorth(*shape)) return std::nullopt;
  return DepthwiseDiffs(*shape);
}

inline float* BiasOf(const Convolution& c) { return c.bias ? c.bias->typed_data() : nullptr; }

// Computes the weight gradient by the fastest algorithm.
inline void RunWeightDiff(const Convolution& c) {
  static auto& cache = *new Cache<std::unique_ptr<WinogradWeightDiff>>(256);
  auto winograd = cache.Get(KeyOf(Kind::kWeightDiff, c), [&] { return WinogradWeightDiff::Make(c); });
  auto run = [&](const auto& algorithm) {
    algorithm.Run(c.x.typed_data(), c.y.typed_data(), c.weight.typed_data(), BiasOf(c));
  };
  if (*winograd) return run(**winograd);
  if (auto depthwise = DepthwiseDiffsOf(c)) {
    return depthwise->Run(c.x.typed_data(), c.y.typed_data(), nullptr, nullptr, c.weight.typed_data(), BiasOf(c));
  }
  auto shape = c.window.groups == 1 ? ShapeOfPlanes(c) : std::nullopt;
  if (shape && PointwiseWeightDiff::IsWorth(*shape)) return run(PointwiseWeightDiff(*shape));
  if (shape && DirectWeightDiff::IsWorth(*shape)) return run(DirectWeightDiff(*shape));
  RunByOneDnn(Kind::kWeightDiff, c);
}

// Computes one of the convolution's three arrays from the other two.
inline void Run(Kind kind, const Convolution& c, bool relu = false) {
  if (kind == Kind::kWeightDiff) return RunWeightDiff(c);
  bool backward = kind == Kind::kInputDiff;
  const float *from = (backward ? c.y : c.x).typed_data(), *weight = c.weight.typed_data();
  float* to = (backward ? c.x : c.y).typed_data();
  if (auto depthwise = backward ? DepthwiseDiffsOf(c) : std::nullopt) {
    return depthwise->Run(nullptr, from, weight, to, nullptr, nullptr);
  }
  static auto& cache = *new Cache<std::unique_ptr<WinogradTraining>>(256);
  Key key = KeyOf(kind, c);
  key.push_back(relu);
  auto winograd = cache.Get(key, [&] { return WinogradTraining::Make(kind, c, relu); });
  if (*winograd) return (*winograd)->Run(from, weight, BiasOf(c), to);
  if (auto shape = c.window.groups == 1 ? ShapeOfPlanes(c) : std::nullopt) {
    if (PointwiseConvolution::IsWorth(*shape)) {
      return PointwiseConvolution(*shape, backward).Run(from, weight, BiasOf(c), relu, to);
    }
    if (backward && NarrowConvolution::IsWorthForInputDiff(*shape)) {
      return NarrowConvolution(*shape).RunInputDiff(from, weight, to);
    }
    if (!backward && NarrowConvolution::IsWorth(*shape)) {
      NarrowConvolution narrow(*shape);
      ZeroedFloats packed(narrow.PackedFloats());
      narrow.Pack(weight, packed.get());
      return narrow.Run(from, packed.get(), BiasOf(c), relu, to);
    }
  }
  RunByOneDnn(kind, c);
  if (relu) ApplyRelu(c.y);
}

// Computes both gradients of a convolution; `for_input` and `for_weight` differ in the array that is computed.
inline void RunDiffs(const Convolution& for_input, const Convolution& for_weight) {
  if (auto depthwise = DepthwiseDiffsOf(for_weight)) {
    return depthwise->Run(for_weight.x.typed_data(), for_weight.y.typed_data(), for_input.weight.typed_data(),
                          for_input.x.typed_data(), for_weight.weight.typed_data(), BiasOf(for_weight));
  }
  Run(Kind::kInputDiff, for_input);
  Run(Kind::kWeightDiff, for_weight);
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_CONVOLUTION_TRAINING_H_
