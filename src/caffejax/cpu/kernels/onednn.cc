// oneDNN's convolutions, matrix products and maximum pooling, and their gradients, as foreign functions that XLA calls
// in training.
//
// Blobs have their channels last: (batch, *space, channels). Weights are in Caffe's order: (outputs, inputs
// per group, *kernel). Each function first checks all its arrays, then runs.

#include <optional>
#include <utility>

#include "channel_statistics.h"
#include "convolution_training.h"
#include "momentum_update.h"
#include "onednn_errors.h"
#include "onednn_pooling.h"
#include "onednn_primitives.h"
#include "onednn_shapes.h"
#include "rectangle_maxima.h"
#include "response_normalization.h"
#include "row_sums.h"

#include "xla/ffi/api/ffi.h"

namespace caffejax {
namespace {

namespace ffi = xla::ffi;
using Result = ffi::Result<Array>;

Array ArrayOf(Array argument) { return argument; }
Array ArrayOf(Result result) { return *result; }

// Returns the bias or its gradient, or nothing if no array remains. More than one remaining array is an error.
template <typename Remaining>
std::optional<Array> Optional(const Remaining& remaining) {
  if (remaining.empty()) return std::nullopt;
  Require(remaining.size() == 1, remaining.size(), " arrays in place of one bias");
  auto bias = remaining.template get<Array>(0);
  Require(bias.has_value(), "the bias is not of float32");
  return ArrayOf(*bias);
}

ffi::Error Output(Array x, Array weight, ffi::RemainingArgs bias, Result y, bool relu, Numbers stride, Numbers dilation,
                  Numbers low, Numbers high, int64_t groups) {
  return Guarded("convolution", [&] {
    Convolution c{x, weight, *y, Optional(bias), {stride, dilation, low, high, groups}};
    Check(c);
    Run(Kind::kOutput, c, relu);
  });
}

ffi::Error InputDiff(Array dy, Array weight, Result dx, Numbers stride, Numbers dilation, Numbers low, Numbers high,
                     int64_t groups) {
  return Guarded("input_diff", [&] {
    Convolution c{*dx, weight, dy, std::nullopt, {stride, dilation, low, high, groups}};
    Check(c);
    Run(Kind::kInputDiff, c);
  });
}

ffi::Error WeightDiff(Array x, Array dy, Result d_weight, ffi::RemainingRets d_bias, Numbers stride, Numbers dilation,
                      Numbers low, Numbers high, int64_t groups) {
  return Guarded("weight_diff", [&] {
    Convolution c{x, *d_weight, dy, Optional(d_bias), {stride, dilation, low, high, groups}};
    Check(c);
    Run(Kind::kWeightDiff, c);
  });
}

// Computes the diffs of input and weight in one call; see `NeededDiffs` in onednn.py.
ffi::Error ConvolutionDiffs(Array x, Array dy, Array weight, Result dx, Result d_weight, ffi::RemainingRets d_bias,
                            Numbers stride, Numbers dilation, Numbers low, Numbers high, int64_t groups) {
  return Guarded("convolution_diffs", [&] {
    Window window{stride, dilation, low, high, groups};
    Convolution for_input{*dx, weight, dy, std::nullopt, window};
    Convolution for_weight{x, *d_weight, dy, Optional(d_bias), window};
    CheckSame("x", x, *dx);
    CheckSame("weight", weight, *d_weight);
    Check(for_weight);
    RunDiffs(for_input, for_weight);
  });
}

ffi::Error Matmul(Array a, Array b, ffi::RemainingArgs bias, Result c, bool transpose_a, bool transpose_b, bool relu) {
  return Guarded("matmul", [&] {
    Product p{a, b, *c, Optional(bias), transpose_a, transpose_b};
    Check(p);
    Run(p);
    if (relu) ApplyRelu(p.c);
  });
}

// Computes the diffs of rows and weight in one call. The weight is (outputs, inputs), or (inputs, outputs) if
// `transpose` is true.
ffi::Error MatmulDiffs(Array x, Array dy, Array weight, Result dx, Result d_weight, bool transpose) {
  return Guarded("matmul_diffs", [&] {
    Product for_rows{dy, weight, *dx, std::nullopt, false, transpose};
    Product for_weight{transpose ? x : dy, transpose ? dy : x, *d_weight, std::nullopt, true, false};
    CheckSame("x", x, *dx);
    CheckSame("weight", weight, *d_weight);
    Check(for_rows);
    Check(for_weight);
    Run(for_rows);
    Run(for_weight);
  });
}

ffi::Error MaxPool(Array x, Result y, ffi::Result<Places> places, Numbers kernel, Numbers stride, Numbers low,
                   Numbers high) {
  return Guarded("max_pool", [&] {
    MaxPooling p{x, *y, *places, kernel, stride, low, high};
    Check(p);
    Run(p, false);
  });
}

ffi::Error MaxPoolDiff(Places places, Array dy, Result dx, Numbers kernel, Numbers stride, Numbers low, Numbers high) {
  return Guarded("max_pool_diff", [&] {
    MaxPooling p{*dx, dy, places, kernel, stride, low, high};
    Check(p);
    Run(p, true);
  });
}

// A step of SGD with momentum and L2 weight decay.
ffi::Error UpdateByMomentum(Array gradient, Array weight, Array slot, Array rate, Result new_weight, Result new_slot,
                            float lr_mult, float decay, float momentum) {
  return Guarded("momentum_update", [&] {
    Require(rate.element_count() == 1, "rate ", rate, " is not one number");
    MomentumUpdate u{gradient, weight, slot, *new_weight, *new_slot, rate.typed_data()[0] * lr_mult, decay, momentum};
    Check(u);
    Run(u);
  });
}

ffi::Error SumOfRows(Array x, Result sums, float factor) {
  return Guarded("row_sums", [&] {
    RowSums s{x, *sums, factor};
    Check(s);
    Run(s);
  });
}

ffi::Error ChannelMoments(Array x, Result mean, Result variance) {
  return Guarded("channel_moments", [&] {
    Moments m{x, *mean, *variance};
    Check(m);
    Run(m);
  });
}

ffi::Error SumsForNormalization(Array x, Array dy, Array mean, Array scale, Array factor, Array bias, Result d_factor,
                                Result d_bias, bool relu) {
  return Guarded("normalization_sums", [&] {
    NormalizationSums s{x, dy, mean, scale, factor, bias, *d_factor, *d_bias, relu};
    Check(s);
    Run(s);
  });
}

ffi::Error NormalizeResponse(Array x, Result y, int64_t size, float k, float alpha, float beta, bool within_channel) {
  return Guarded("normalize_response", [&] {
    ResponseNormalization n{x, *y, std::nullopt, size, k, alpha, beta, within_channel};
    Check(n);
    Run(n);
  });
}

ffi::Error NormalizeResponseDiff(Array x, Array dy, Result dx, int64_t size, float k, float alpha, float beta,
                                 bool within_channel) {
  return Guarded("normalize_response_diff", [&] {
    ResponseNormalization n{x, *dx, dy, size, k, alpha, beta, within_channel};
    Check(n);
    Run(n);
  });
}

ffi::Error MaximaOfRectangles(Array x, Integers32 rectangles, Result maxima) {
  return Guarded("rectangle_maxima", [&] {
    Rectangles r{x, rectangles};
    Check(r, maxima->dimensions());
    WriteMaxima(r, maxima->typed_data());
  });
}

ffi::Error PlacesInRectangles(Array x, Integers32 rectangles, ffi::Result<Integers32> places) {
  return Guarded("rectangle_places", [&] {
    Rectangles r{x, rectangles};
    Check(r, places->dimensions());
    WritePlaces(r, places->typed_data());
  });
}

template <typename Binding>
auto WithResponse(Binding&& binding) {
  return std::move(binding)
      .template Attr<int64_t>("size")
      .template Attr<float>("k")
      .template Attr<float>("alpha")
      .template Attr<float>("beta")
      .template Attr<bool>("within_channel");
}

template <typename Binding>
auto WithPooling(Binding&& binding) {
  return std::move(binding)
      .template Attr<Numbers>("kernel")
      .template Attr<Numbers>("stride")
      .template Attr<Numbers>("low")
      .template Attr<Numbers>("high");
}

template <typename Binding>
auto WithWindow(Binding&& binding) {
  return std::move(binding)
      .template Attr<Numbers>("stride")
      .template Attr<Numbers>("dilation")
      .template Attr<Numbers>("low")
      .template Attr<Numbers>("high")
      .template Attr<int64_t>("groups");
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    caffejax_convolution, Output,
    WithWindow(ffi::Ffi::Bind().Arg<Array>().Arg<Array>().RemainingArgs().Ret<Array>().Attr<bool>("relu")));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_input_diff, InputDiff,
                              WithWindow(ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Ret<Array>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_weight_diff, WeightDiff,
                              WithWindow(ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Ret<Array>().RemainingRets()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    caffejax_convolution_diffs, ConvolutionDiffs,
    WithWindow(ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Arg<Array>().Ret<Array>().Ret<Array>().RemainingRets()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    caffejax_matmul_diffs, MatmulDiffs,
    ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Arg<Array>().Ret<Array>().Ret<Array>().Attr<bool>("transpose"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_max_pool, MaxPool,
                              WithPooling(ffi::Ffi::Bind().Arg<Array>().Ret<Array>().Ret<Places>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_max_pool_diff, MaxPoolDiff,
                              WithPooling(ffi::Ffi::Bind().Arg<Places>().Arg<Array>().Ret<Array>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_momentum_update, UpdateByMomentum,
                              ffi::Ffi::Bind()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .Ret<Array>()
                                  .Ret<Array>()
                                  .Attr<float>("lr_mult")
                                  .Attr<float>("decay")
                                  .Attr<float>("momentum"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_row_sums, SumOfRows,
                              ffi::Ffi::Bind().Arg<Array>().Ret<Array>().Attr<float>("factor"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_channel_moments, ChannelMoments,
                              ffi::Ffi::Bind().Arg<Array>().Ret<Array>().Ret<Array>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_normalization_sums, SumsForNormalization,
                              ffi::Ffi::Bind()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .Ret<Array>()
                                  .Ret<Array>()
                                  .Attr<bool>("relu"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_rectangle_maxima, MaximaOfRectangles,
                              ffi::Ffi::Bind().Arg<Array>().Arg<Integers32>().Ret<Array>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_rectangle_places, PlacesInRectangles,
                              ffi::Ffi::Bind().Arg<Array>().Arg<Integers32>().Ret<Integers32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_normalize_response, NormalizeResponse,
                              WithResponse(ffi::Ffi::Bind().Arg<Array>().Ret<Array>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_normalize_response_diff, NormalizeResponseDiff,
                              WithResponse(ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Ret<Array>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_matmul, Matmul,
                              ffi::Ffi::Bind()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .RemainingArgs()
                                  .Ret<Array>()
                                  .Attr<bool>("transpose_a")
                                  .Attr<bool>("transpose_b")
                                  .Attr<bool>("relu"));

}  // namespace caffejax
