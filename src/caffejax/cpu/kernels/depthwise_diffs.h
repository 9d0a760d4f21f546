// Both gradients of depthwise 3x3 convolutions with the channels last, for processors with AVX-512. Milliseconds beside
// oneDNN, batch 8, two threads, arrays not in the cache: 128 channels at 56x56 0.95 and 2.5, 512 at 14x14 0.30 and
// 0.55.
//
// A row of diffs is multiplied by the rows of inputs for the gradient of the weight, then the weight by the rows of
// diffs for the same rows of the gradient of the input. Each row is fetched while the row before it is computed.

#ifndef CAFFEJAX_KERNELS_DEPTHWISE_DIFFS_H_
#define CAFFEJAX_KERNELS_DEPTHWISE_DIFFS_H_

#include <algorithm>

#include <immintrin.h>

#include "planes.h"

namespace caffejax {

class DepthwiseDiffs {
 public:
  // Returns whether this code computes the gradients of a depthwise convolution of this shape, and is faster than
  // oneDNN's by measurement.
  static bool IsWorth(const PlaneShape& s) {
    auto is_short = [&](int axis) { return s.kernel[axis] == kKernel && s.low[axis] < kKernel; };
    bool is_same = s.inputs == s.outputs && s.stride[0] == s.stride[1] && s.stride[0] <= 2;
    return __builtin_cpu_supports("avx512f") && is_same && is_short(0) && is_short(1) && s.inputs >= kLanes &&
           s.OutPixels() > 0;
  }

  explicit DepthwiseDiffs(const PlaneShape& shape) : s_(shape), channels_(shape.inputs), stride_(shape.stride[0]) {}

  // Computes dx unless it is null, from dy and weight (channels, 1, 3, 3), and d_weight unless it is null, from x and
  // dy, and then d_bias (channels,) unless it is null.
  void Run(const float* x, const float* dy, const float* weight, float* dx, float* d_weight, float* d_bias) const {
    int64_t rows = s_.batch * s_.out_height, parts = std::min<int64_t>(MaxThreads(), rows);
    ZeroedFloats taps(dx ? kTaps * channels_ : 0), zeros(channels_), sums(d_weight ? parts * kSums * channels_ : 0);
    for (int64_t c = 0; dx && c < channels_; ++c) {
      for (int64_t t = 0; t < kTaps; ++t) taps.get()[t * channels_ + c] = weight[c * kTaps + t];
    }
    RunInParallel(parts, [&](int thread, int count) {
      for (int64_t part = thread; part < parts; part += count) {
        for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
          if (d_weight) AddRow(x, dy, row, zeros.get(), sums.get() + part * kSums * channels_);
          if (dx) WriteRows(dy, row, taps.get(), dx);
        }
      }
    });
    for (int64_t c = 0; d_weight && c < channels_; ++c) {
      for (int64_t t = 0; t < kSums; ++t) {
        float total = 0;
        for (int64_t part = 0; part < parts; ++part) total += sums.get()[(part * kSums + t) * channels_ + c];
        if (t < kTaps) d_weight[c * kTaps + t] = total;
        else if (d_bias) d_bias[c] = total;
      }
    }
  }

 private:
  static constexpr int64_t kLanes = 16, kVectors = 2, kKernel = 3, kTaps = kKernel * kKernel, kSums = kTaps + 1;

  // Rows of cells of all channels, which windows read.
  struct Lines {
    const float* start[kKernel];  // null where there is no row
    int64_t step[kKernel];  // floats from cell to cell, 0 for a row of zeros
  };

  // The channels of a few vectors.
  struct Masks {
    __mmask16 of[kVectors];
  };

  // Calls `work(channel, masks)` for all channels, kVectors vectors at a time.
  template <typename Work>
  void ForChannels(Work work) const {
    for (int64_t channel = 0; channel < channels_; channel += kVectors * kLanes) {
      Masks masks;
      for (int64_t v = 0; v < kVectors; ++v) {
        int64_t lanes = std::clamp<int64_t>(channels_ - channel - v * kLanes, 0, kLanes);
        masks.of[v] = static_cast<__mmask16>((1u << lanes) - 1);
      }
      work(channel, masks);
    }
  }

  static void Prefetch(const float* cell) {
    for (int64_t v = 0; v < kVectors; ++v) _mm_prefetch(cell + v * kLanes, _MM_HINT_T0);
  }

  // Adds to `sums` (taps, channels) the products of a row of diffs and its windows, and the diffs as the last.
  void AddRow(const float* x, const float* dy, int64_t row, const float* zeros, float* sums) const {
    int64_t image = row / s_.out_height, top = row % s_.out_height * stride_ - s_.low[0];
    Lines lines;
    for (int64_t i = 0; i < kKernel; ++i) {
      bool inside = 0 <= top + i && top + i < s_.height;
      lines.start[i] = inside ? x + (image * s_.height + top + i) * s_.width * channels_ : zeros;
      lines.step[i] = inside ? channels_ : 0;
    }
    ForChannels(
        [&](int64_t c, Masks masks) { AddCells(lines, c, dy + row * s_.out_width * channels_ + c, masks, sums + c); });
  }

  CAFFEJAX_AVX512 void AddCells(Lines lines, int64_t channel, const float* dy, Masks masks, float* sums) const {
    const int64_t channels = channels_, width = s_.width, out_width = s_.out_width, stride = stride_, low = s_.low[1];
    __m512 total[kSums][kVectors];
#pragma GCC unroll 10
    for (int t = 0; t < kSums; ++t) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        total[t][v] = _mm512_maskz_loadu_ps(masks.of[v], sums + t * channels + v * kLanes);
    }
    for (int i = 0; i < kKernel; ++i) lines.start[i] += channel;
    for (int64_t column = 0; column < out_width; ++column, dy += channels) {
      int64_t left = column * stride - low;
      Prefetch(dy + out_width * channels);
      for (int64_t i = 0; i < stride; ++i) {
        for (int64_t j = 0; j < stride; ++j) {
          Prefetch(lines.start[kKernel - 1] + ((i + 1) * width + column * stride + j) * channels);
        }
      }
      __m512 diff[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        diff[v] = _mm512_maskz_loadu_ps(masks.of[v], dy + v * kLanes);
        total[kTaps][v] = _mm512_add_ps(total[kTaps][v], diff[v]);
      }
#pragma GCC unroll 3
      for (int j = 0; j < kKernel; ++j) {
        if (left + j < 0 || left + j >= width) continue;
#pragma GCC unroll 3
        for (int i = 0; i < kKernel; ++i) {
          const float* cell = lines.start[i] + (left + j) * lines.step[i];
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) {
            __m512 input = _mm512_maskz_loadu_ps(masks.of[v], cell + v * kLanes);
            total[i * kKernel + j][v] = _mm512_fmadd_ps(diff[v], input, total[i * kKernel + j][v]);
          }
        }
      }
    }
#pragma GCC unroll 10
    for (int t = 0; t < kSums; ++t) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        _mm512_mask_storeu_ps(sums + t * channels + v * kLanes, masks.of[v], total[t][v]);
    }
  }

  // Writes the rows of dx that begin at the windows of a row of diffs, and after the last row of an image all that
  // remain.
  void WriteRows(const float* dy, int64_t row, const float* taps, float* dx) const {
    int64_t image = row / s_.out_height, in_image = row % s_.out_height;
    int64_t first = std::min(in_image * stride_, s_.height);
    int64_t end = in_image + 1 < s_.out_height ? std::min(first + stride_, s_.height) : s_.height;
    for (int64_t r = first; r < end; ++r) {
      Lines lines;
      for (int64_t i = 0; i < kKernel; ++i) {
        int64_t at = r + s_.low[0] - i;
        bool exists = at >= 0 && at % stride_ == 0 && at / stride_ < s_.out_height;
        lines.start[i] = exists ? dy + (image * s_.out_height + at / stride_) * s_.out_width * channels_ : nullptr;
      }
      float* to = dx + (image * s_.height + r) * s_.width * channels_;
      ForChannels([&](int64_t c, Masks masks) {
        if (stride_ == 1) WriteCells<1>(lines, c, taps + c, masks, to + c);
        else WriteCells<2>(lines, c, taps + c, masks, to + c);
      });
    }
  }

  template <int64_t kStride>
  CAFFEJAX_AVX512 void WriteCells(Lines lines, int64_t channel, const float* taps, Masks masks, float* dx) const {
    const int64_t channels = channels_, width = s_.width, out_width = s_.out_width, low = s_.low[1];
    __m512 weight[kTaps][kVectors];
#pragma GCC unroll 9
    for (int t = 0; t < kTaps; ++t) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        weight[t][v] = _mm512_maskz_loadu_ps(masks.of[v], taps + t * channels + v * kLanes);
    }
    for (int64_t column = 0; column < width; ++column, dx += channels) {
      Prefetch(dx + width * channels);
      __m512 total[kVectors];
      std::fill_n(total, kVectors, _mm512_setzero_ps());
#pragma GCC unroll 3
      for (int j = 0; j < kKernel; ++j) {
        int64_t at = column + low - j;
        if (at < 0 || at % kStride || at / kStride >= out_width) continue;
        int64_t offset = at / kStride * channels + channel;
#pragma GCC unroll 3
        for (int i = 0; i < kKernel; ++i) {
          if (!lines.start[i]) continue;
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) {
            __m512 diff = _mm512_maskz_loadu_ps(masks.of[v], lines.start[i] + offset + v * kLanes);
            total[v] = _mm512_fmadd_ps(diff, weight[i * kKernel + j][v], total[v]);
          }
        }
      }
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) _mm512_mask_storeu_ps(dx + v * kLanes, masks.of[v], total[v]);
    }
  }

  PlaneShape s_;
  int64_t channels_, stride_;
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_DEPTHWISE_DIFFS_H_
